//! The descriptor of a child: its durable name and what brings it back without its provider.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::text::{LabelError, check_label};

/// The descriptor version that this program writes and reads.
pub const DESCRIPTOR_VERSION: u64 = 1;

/// How a child lives.
///
/// ```
/// use greenroom_session::descriptor::{Descriptor, Mode};
/// assert_eq!(Descriptor::continuable("spawn", "collect facts", "reporter").mode, Mode::Continuable);
/// assert_eq!(Mode::OneShot.as_str(), "one-shot");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It takes further messages for as long as it exists.
    Continuable,
    /// It serves one message.
    OneShot,
}

impl Mode {
    /// Returns the name used in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continuable => "continuable",
            Self::OneShot => "one-shot",
        }
    }
}

/// A model route.
///
/// ```
/// use greenroom_session::descriptor::{Descriptor, ModelRoute};
/// let mut descriptor = Descriptor::continuable("spawn", "collect facts", "reporter");
/// descriptor.model = Some(ModelRoute { provider: None, name: "small".into() });
/// let json = serde_json::to_value(&descriptor)?;
/// assert_eq!(json["model"], serde_json::json!({ "name": "small" }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRoute {
    /// The provider, if named.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub provider: Option<String>,
    /// The model.
    pub name: String,
}

impl From<&str> for ModelRoute {
    /// Names a model and no provider.
    fn from(name: &str) -> Self {
        Self { provider: None, name: name.to_owned() }
    }
}

impl ModelRoute {
    /// Checks that neither part is empty.
    ///
    /// # Errors
    /// [`DescriptorError::Malformed`] naming the part.
    pub fn check(&self) -> Result<(), DescriptorError> {
        let empty = [("name", Some(&self.name)), ("provider", self.provider.as_ref())].into_iter().find(|(_, text)| text.is_some_and(String::is_empty));
        empty.map_or(Ok(()), |(part, _)| Err(DescriptorError::Malformed(format!("the {part} of a model route must not be empty"))))
    }
}

/// Which tools a child may use; at least one list is present.
///
/// ```
/// use greenroom_session::descriptor::{Descriptor, ToolFilter};
/// let mut descriptor = Descriptor::continuable("spawn", "collect facts", "reporter");
/// descriptor.tool_filter = Some(ToolFilter { allow: None, deny: Some(vec!["subagent".into()]) });
/// assert_eq!(Descriptor::parse(&serde_json::to_value(&descriptor)?)?, descriptor);
///
/// descriptor.tool_filter = Some(ToolFilter { allow: None, deny: None });
/// assert!(Descriptor::parse(&serde_json::to_value(&descriptor)?).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolFilter {
    /// Only these.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub allow: Option<Vec<String>>,
    /// Not these.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deny: Option<Vec<String>>,
}

/// A valid descriptor of version 1.
///
/// ```
/// use greenroom_session::descriptor::Descriptor;
/// let descriptor = Descriptor::continuable("spawn", "collect facts", "reporter");
/// let json = serde_json::to_value(&descriptor)?;
/// assert_eq!(Descriptor::parse(&json)?, descriptor);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Descriptor {
    /// Format version, [`DESCRIPTOR_VERSION`].
    pub version: u64,
    /// How the child lives.
    pub mode: Mode,
    /// The provider that prepared it.
    pub provider: String,
    /// Its durable label; always there for [`Mode::Continuable`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The registered behaviour that plays it.
    pub agent: String,
    /// Its alias, unique among its siblings.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// What its behaviour was given at creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// Its model route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRoute>,
    /// Its persona.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_filter: Option<ToolFilter>,
    /// Whether its parent is told when it settles although it is one-shot. Whoever started such a child waits for its answer if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
    /// Keys that this program does not know.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub ext: Map<String, Value>,
}

/// Why a descriptor's data is not a descriptor.
///
/// ```
/// use greenroom_session::descriptor::{Descriptor, DescriptorError};
/// use serde_json::json;
/// let newer = Descriptor::parse(&json!({ "version": 2, "colour": "red" })).unwrap_err();
/// assert_eq!(newer, DescriptorError::Unsupported(2));
/// assert_eq!(newer.code(), "DESCRIPTOR_UNSUPPORTED");
/// assert_eq!(Descriptor::parse(&json!("reporter")).unwrap_err().code(), "DESCRIPTOR_MALFORMED");
/// ```
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The data breaks the format.
    #[error("malformed descriptor: {0}")]
    Malformed(String),
    /// The version is not one that this program reads.
    #[error("descriptor version {0} is not supported")]
    Unsupported(u64),
    /// The label breaks the rule for labels.
    #[error("malformed descriptor: {0}")]
    Label(#[from] LabelError),
}

impl DescriptorError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "DESCRIPTOR_UNSUPPORTED",
            Self::Malformed(_) | Self::Label(_) => "DESCRIPTOR_MALFORMED",
        }
    }
}

impl Descriptor {
    /// Describes a continuable child.
    pub fn continuable(provider: impl Into<String>, label: impl Into<String>, agent: impl Into<String>) -> Self {
        Self {
            version: DESCRIPTOR_VERSION,
            mode: Mode::Continuable,
            provider: provider.into(),
            label: Some(label.into()),
            agent: agent.into(),
            alias: None,
            params: None,
            model: None,
            persona: None,
            tool_filter: None,
            notice: false,
            ext: Map::new(),
        }
    }

    /// Reads a descriptor: the version first, then everything else.
    ///
    /// A label from an old log that breaks the rule for labels is accepted here, since refusing it would hide a child; it is shown escaped.
    ///
    /// # Errors
    /// [`DescriptorError::Unsupported`] for another version, [`DescriptorError::Malformed`] for anything else.
    pub fn parse(data: &Value) -> Result<Self, DescriptorError> {
        #[derive(Deserialize)]
        struct Wire {
            mode: Mode,
            provider: String,
            label: Option<String>,
            agent: String,
            #[serde(rename = "as")]
            alias: Option<String>,
            params: Option<Value>,
            model: Option<ModelRoute>,
            persona: Option<String>,
            tool_filter: Option<ToolFilter>,
            #[serde(default)]
            notice: bool,
            #[serde(default)]
            ext: Map<String, Value>,
            #[serde(flatten)]
            unknown: Map<String, Value>,
        }

        let object = data.as_object().ok_or_else(|| DescriptorError::Malformed("expected an object".into()))?;
        let version = object.get("version").and_then(Value::as_u64).ok_or_else(|| DescriptorError::Malformed("expected a number as `version`".into()))?;
        if version != DESCRIPTOR_VERSION {
            return Err(DescriptorError::Unsupported(version));
        }
        if let Some((key, _)) = object.iter().find(|(_, value)| value.is_null()) {
            return Err(DescriptorError::Malformed(format!("`{key}` must not be null")));
        }
        let wire = Wire::deserialize(data).map_err(|error| DescriptorError::Malformed(error.to_string()))?;
        let mut ext = wire.ext;
        ext.extend(wire.unknown.into_iter().filter(|(key, _)| key != "version"));
        if wire.mode == Mode::Continuable && wire.label.is_none() {
            return Err(DescriptorError::Malformed("a continuable child needs a label".into()));
        }
        for (name, text) in [("provider", &wire.provider), ("agent", &wire.agent)] {
            if text.is_empty() {
                return Err(DescriptorError::Malformed(format!("`{name}` must not be empty")));
            }
        }
        if wire.tool_filter.as_ref().is_some_and(|filter| filter.allow.is_none() && filter.deny.is_none()) {
            return Err(DescriptorError::Malformed("`tool_filter` needs `allow` or `deny`".into()));
        }
        Ok(Self {
            version,
            mode: wire.mode,
            provider: wire.provider,
            label: wire.label,
            agent: wire.agent,
            alias: wire.alias,
            params: wire.params,
            model: wire.model,
            persona: wire.persona,
            tool_filter: wire.tool_filter,
            notice: wire.notice,
            ext,
        })
    }

    /// Checks what a new child's descriptor must hold: what [`Descriptor::parse`] asks for, and beyond that a label that cannot mislead, and nothing that is said with an
    /// empty text.
    ///
    /// # Errors
    /// [`DescriptorError::Label`] for the label or the alias, [`DescriptorError::Malformed`] for a missing label, an empty persona, an empty name of a model or a tool, and a
    /// tool filter without a list.
    pub fn check_new(&self) -> Result<(), DescriptorError> {
        match &self.label {
            Some(label) => check_label(label)?,
            None if self.mode == Mode::Continuable => return Err(DescriptorError::Malformed("a continuable child needs a label".into())),
            None => {}
        }
        if let Some(alias) = &self.alias {
            check_label(alias)?;
        }
        let malformed = |what: &str| Err(DescriptorError::Malformed(what.into()));
        if let Some(model) = &self.model {
            model.check()?;
        }
        if self.persona.as_ref().is_some_and(String::is_empty) {
            return malformed("`persona` must not be empty");
        }
        match &self.tool_filter {
            Some(ToolFilter { allow: None, deny: None }) => malformed("`tool_filter` needs `allow` or `deny`"),
            Some(ToolFilter { allow, deny }) if allow.iter().chain(deny).flatten().any(String::is_empty) => malformed("the name of a tool must not be empty"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_version_is_looked_at_first() {
        let ok = json!({"version":1,"mode":"continuable","provider":"spawn","label":"l","agent":"a"});
        let with = |key: &str, value: Value| {
            let mut data = ok.clone();
            data[key] = value;
            Descriptor::parse(&data)
        };
        assert!(Descriptor::parse(&ok).is_ok());
        assert_eq!(Descriptor::parse(&json!({"version":2,"mode":17})), Err(DescriptorError::Unsupported(2)));
        for malformed in [json!(null), json!([]), json!({}), json!({"version":"1"}), json!({"version":-1}), json!({"version":1})] {
            assert_eq!(Descriptor::parse(&malformed).unwrap_err().code(), "DESCRIPTOR_MALFORMED", "{malformed}");
        }
        for (key, value) in [
            ("label", json!(3)),
            ("label", json!(null)),
            ("mode", json!("other")),
            ("provider", json!("")),
            ("agent", json!([])),
            ("tool_filter", json!({})),
            ("model", json!("m")),
            ("ext", json!(1)),
        ] {
            assert_eq!(with(key, value.clone()).unwrap_err().code(), "DESCRIPTOR_MALFORMED", "{key} {value}");
        }
    }

    #[test]
    fn a_new_descriptor_says_nothing_with_an_empty_text() {
        type Change = fn(&mut Descriptor);
        let check = |change: Change| {
            let mut descriptor = Descriptor::continuable("p", "l", "a");
            change(&mut descriptor);
            descriptor.check_new().map_err(|error| error.code())
        };
        let good: [Change; 5] = [
            |_| {},
            |new| (new.mode, new.label) = (Mode::OneShot, None),
            |new| new.tool_filter = Some(ToolFilter { allow: Some(Vec::new()), deny: None }),
            |new| new.model = Some(ModelRoute { provider: Some("p".into()), name: "m".into() }),
            |new| new.persona = Some(" ".into()),
        ];
        let bad: [Change; 7] = [
            |new| new.label = None,
            |new| new.persona = Some(String::new()),
            |new| new.model = Some("".into()),
            |new| new.model = Some(ModelRoute { provider: Some(String::new()), name: "m".into() }),
            |new| new.tool_filter = Some(ToolFilter { allow: None, deny: None }),
            |new| new.tool_filter = Some(ToolFilter { allow: Some(vec![String::new()]), deny: None }),
            |new| new.tool_filter = Some(ToolFilter { allow: None, deny: Some(vec!["x".into(), String::new()]) }),
        ];
        assert_eq!(good.map(check), [Ok(()); 5]);
        assert_eq!(bad.map(check), [Err("DESCRIPTOR_MALFORMED"); 7]);
    }

    #[test]
    fn unknown_keys_are_kept_and_ignored() {
        let data = json!({"version":1,"mode":"one-shot","provider":"p","agent":"a","colour":"red","ext":{"x":1}});
        let descriptor = Descriptor::parse(&data).unwrap();
        assert_eq!(Value::Object(descriptor.ext.clone()), json!({"x":1,"colour":"red"}));
        assert_eq!(Descriptor::parse(&serde_json::to_value(&descriptor).unwrap()).unwrap(), descriptor);
    }
}
