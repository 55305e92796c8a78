//! Where a model is, and how it is spoken to.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use thiserror::Error;

/// The way in which a model's provider is spoken to.
///
/// ```
/// use greenroom::model::Api;
/// assert_eq!("anthropic".parse(), Ok(Api::Anthropic));
/// assert_eq!(Api::OpenAi.to_string(), "openai");
/// assert_eq!(Api::Ollama.base_url(), "http://localhost:11434/");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Api {
    /// OpenAI's chat completions, which many others offer too.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's generated content.
    Gemini,
    /// Ollama's own chat.
    Ollama,
}

impl Api {
    /// Every way, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Returns the name that is used in program files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Returns where whoever made it offers it.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Api {
    type Err = EndpointError;

    fn from_str(name: &str) -> Result<Self, EndpointError> {
        Self::ALL.into_iter().find(|api| api.as_str() == name).ok_or_else(|| EndpointError::Api(name.to_owned()))
    }
}

/// How long a model may take.
///
/// ```
/// use greenroom::model::Timeouts;
/// let timeouts = Timeouts::default();
/// assert!(timeouts.connect < timeouts.first && timeouts.first <= timeouts.whole);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the answer begins: a local server may have to load the model first.
    pub first: Duration,
    /// Between two pieces of it.
    pub next: Duration,
    /// Until it has ended.
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self { connect: Duration::from_secs(10), first: minutes(5), next: minutes(5), whole: minutes(30) }
    }
}

/// Where a model is, and how it is spoken to.
///
/// ```
/// use greenroom::model::{Api, Endpoint};
/// let endpoint = Endpoint::new(Api::OpenAi).base_url("https://models.example/v1").key("sk-secret");
/// assert!(!format!("{endpoint:?}").contains("sk-secret"));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Endpoint {
    pub(super) api: Api,
    pub(super) base_url: String,
    pub(super) key: Key,
    pub(super) timeouts: Timeouts,
}

impl Endpoint {
    /// Names the provider that has made an interface, at its usual place, without a key.
    pub fn new(api: Api) -> Self {
        Self { api, base_url: api.base_url().to_owned(), key: Key::default(), timeouts: Timeouts::default() }
    }

    /// Says where it is: what stands before `chat/completions`, `messages`, `models/` or `api/chat`.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = url.into();
        self
    }

    /// Gives the key. It is sent to the endpoint and shown to nobody.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        // What is read from a file ends with a line feed, which no header takes.
        self.key = Key(key.as_ref().trim().into());
        self
    }

    /// Says how long it may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Returns the URL with the slash at its end without which its last part would be lost, and whether it is this very machine.
    pub(super) fn checked_url(&self) -> Result<(String, bool), EndpointError> {
        let wrong = |reason: &str| EndpointError::Url { url: self.base_url.clone(), reason: reason.to_owned() };
        // Of a URL with a password no error may show anything.
        let secret = || EndpointError::Url { url: "…".to_owned(), reason: "a key is given beside the URL, not in it".to_owned() };
        let mut url = reqwest::Url::parse(&self.base_url).map_err(|error| if self.base_url.contains('@') { secret() } else { wrong(&error.to_string()) })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(secret());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(secret());
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("its scheme is neither http nor https"));
        }
        let host = url.host_str().ok_or_else(|| wrong("it names no host"))?;
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        Ok((url.into(), is_here))
    }
}

/// A key that is shown to nobody.
#[derive(Clone, Default)]
pub(super) struct Key(pub(super) Arc<str>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "…" })
    }
}

impl Key {
    /// Takes the key out of a text of somebody else.
    pub(super) fn hidden_in(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&*self.0, "…") }
    }
}

/// Why a model cannot be spoken to at all.
///
/// ```
/// use greenroom::model::{Api, EndpointError};
/// let error = "frobnicator".parse::<Api>().unwrap_err();
/// assert_eq!(error, EndpointError::Api("frobnicator".into()));
/// assert_eq!(error.code(), "MODEL_ENDPOINT");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Nothing is spoken to like this.
    #[error("there is no model interface `{0}`: it is one of openai, anthropic, gemini, ollama")]
    Api(String),
    /// The base URL is none.
    #[error("{url} is no base URL of a model: {reason}")]
    Url {
        /// The URL; left out where it may hold a secret.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The HTTP client cannot be made.
    #[error("no HTTP client: {0}")]
    Client(String),
}

impl EndpointError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Api(_) | Self::Url { .. } | Self::Client(_) => "MODEL_ENDPOINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_keeps_its_last_part_and_holds_no_secret() {
        for (url, expected) in [
            ("https://models.example/v1", Ok(("https://models.example/v1/", false))),
            ("https://models.example/v1/", Ok(("https://models.example/v1/", false))),
            ("https://models.example", Ok(("https://models.example/", false))),
            ("http://127.0.0.1:8080/v1", Ok(("http://127.0.0.1:8080/v1/", true))),
            ("http://[::1]:8080", Ok(("http://[::1]:8080/", true))),
            ("http://localhost:11434", Ok(("http://localhost:11434/", true))),
            ("https://user:secret@models.example/v1", Err("not in it")),
            ("https://user:secret@models example/v1", Err("not in it")),
            ("https://models.example/v1?key=secret", Err("not in it")),
            ("https://models.example/v1#secret", Err("not in it")),
            ("ftp://models.example/", Err("neither http nor https")),
            ("models.example/v1", Err("relative")),
            ("", Err("relative")),
        ] {
            match (Endpoint::new(Api::OpenAi).base_url(url).checked_url(), expected) {
                (Ok((found, is_here)), Ok(expected)) => assert_eq!((found.as_str(), is_here), expected),
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{error}");
                    assert!(!error.to_string().contains("secret"), "{error}");
                    assert_eq!(error.code(), "MODEL_ENDPOINT");
                }
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_key_is_shown_to_nobody() {
        let endpoint = Endpoint::new(Api::Anthropic).key("sk-secret\n");
        assert!(!format!("{endpoint:?}").contains("secret"));
        assert_eq!(endpoint.key.hidden_in("no such key: sk-secret."), "no such key: ….");
        assert_eq!(Key::default().hidden_in("no key"), "no key");
    }
}
