//! What a child is to be and to do.

use greenroom_session::{
    descriptor::{DESCRIPTOR_VERSION, Descriptor, Mode},
    id::{MessageId, SessionId},
};
use serde_json::{Map, Value};

/// What a child is to be and to do.
///
/// ```
/// use greenroom_actors::Delegate;
/// let delegate = Delegate::new("reporter", "collect facts", "Collect three facts.").alias("r1");
/// assert_eq!(delegate.label, "collect facts");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Delegate {
    /// The registered behaviour that plays it.
    pub agent: String,
    /// Its durable label.
    pub label: String,
    /// Its first message.
    pub prompt: String,
    /// An alias, unique among its siblings.
    pub alias: Option<String>,
    /// What its behaviour is given.
    pub params: Option<Value>,
    /// `spawn` for an empty history, `fork` for the parent's up to its last ended turn.
    pub provider: String,
    /// Names the effect in place of its content.
    pub key: Option<String>,
}

impl Delegate {
    /// Describes a child with an empty history.
    pub fn new(agent: impl Into<String>, label: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { agent: agent.into(), label: label.into(), prompt: prompt.into(), alias: None, params: None, provider: "spawn".into(), key: None }
    }

    /// Gives it an alias.
    #[must_use]
    pub fn alias(mut self, alias: impl Into<String>) -> Self {
        self.alias = Some(alias.into());
        self
    }

    /// Gives its behaviour something.
    #[must_use]
    pub fn params(mut self, params: Value) -> Self {
        self.params = Some(params);
        self
    }

    /// Chooses the provider.
    #[must_use]
    pub fn provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = provider.into();
        self
    }

    /// Names the effect: two delegations of one key within the turns of one message are one.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        let parts = (&self.label, &self.prompt, &self.alias, &self.params, &self.provider);
        serde_json::to_vec(&parts).unwrap_or_else(|_| self.prompt.as_bytes().to_vec())
    }

    pub(crate) fn descriptor(&self, mode: Mode) -> Descriptor {
        Descriptor {
            version: DESCRIPTOR_VERSION,
            mode,
            provider: self.provider.clone(),
            label: Some(self.label.clone()),
            agent: self.agent.clone(),
            alias: self.alias.clone(),
            params: self.params.clone(),
            model: None,
            persona: None,
            tool_filter: None,
            ext: Map::new(),
        }
    }
}

/// A child whose first message is accepted.
///
/// ```
/// use greenroom_actors::{Delegate, Delegated, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// let Delegated { child, message, existing } = root.agent().start_continuable(Delegate::new("echo", "an echo", "one")).await?;
/// assert!(!existing);
/// assert!(host.message(&child, &message).await?.is_some()); // in its inbox, or already taken into a turn
/// # root.quiescent().await?;
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegated {
    /// The child.
    pub child: SessionId,
    /// Its first message.
    pub message: MessageId,
    /// Whether an earlier attempt had created it.
    pub existing: bool,
}
