//! What a child is to be and to do.

use greenroom_session::{
    descriptor::{DESCRIPTOR_VERSION, Descriptor, Mode, ModelRoute, ToolFilter},
    id::{MessageId, SessionId},
};
use serde_json::{Map, Value};

use crate::provider::SPAWN;

/// What a child is to be and to do.
///
/// What is said here is recorded in the child's descriptor, but for the prompt, the key and the depth that is allowed: whoever resumes the child, in whichever process, finds
/// it there and asks nobody else.
///
/// ```
/// use greenroom_actors::Delegate;
/// use greenroom_session::descriptor::ToolFilter;
/// let delegate = Delegate::new("reporter", "collect facts", "Collect three facts.").alias("r1");
/// assert_eq!(delegate.label.as_deref(), Some("collect facts"));
///
/// // For a one-shot child, which needs no label.
/// let mut check = Delegate::unlabelled("checker", "Is this so?").persona("You doubt everything.").model("small").max_depth(2);
/// check.tool_filter = Some(ToolFilter { allow: Some(vec!["read".into()]), deny: None });
/// assert_eq!((check.label, check.max_depth), (None, Some(2)));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Delegate {
    /// The registered behaviour that plays it.
    pub agent: String,
    /// Its durable label. Only a one-shot child may be without.
    pub label: Option<String>,
    /// Its first message.
    pub prompt: String,
    /// An alias, unique among its siblings.
    pub alias: Option<String>,
    /// What its behaviour is given.
    pub params: Option<Value>,
    /// Who prepares what it begins with: `spawn` for an empty history, `fork` for the parent's up to its last ended turn, or what
    /// [`Host::register_provider`](crate::Host::register_provider) has added.
    pub provider: String,
    /// Its model route; the parent's own if `None`, and none if the parent has none.
    pub model: Option<ModelRoute>,
    /// Who it is to be, for a behaviour that asks [`Turn::persona`](crate::Turn::persona).
    pub persona: Option<String>,
    /// Which tools it may use, for a behaviour that asks [`Turn::tool_filter`](crate::Turn::tool_filter). One without either list is refused.
    pub tool_filter: Option<ToolFilter>,
    /// Whether its parent gets a notice when it settles although it is one-shot, for a parent that does not wait for its answer. A continuable child always gives one.
    pub notice: bool,
    /// The deepest that it may be; a root has depth 0, so that 0 forbids every child. It can only lower what the configuration says, and is a condition of the start
    /// alone: it is not recorded, and says nothing of the child's own children.
    pub max_depth: Option<u32>,
    /// Its id, if the caller has reserved one; derived from the effect, or new, if `None`. The same delegation again under it is the same acceptance.
    pub child: Option<SessionId>,
    /// Names the effect in place of its content.
    pub key: Option<String>,
}

impl Delegate {
    /// Describes a child with an empty history.
    pub fn new(agent: impl Into<String>, label: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..Self::unlabelled(agent, prompt) }
    }

    /// Describes a one-shot child with an empty history and without a label.
    pub fn unlabelled(agent: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            agent: agent.into(),
            label: None,
            prompt: prompt.into(),
            alias: None,
            params: None,
            provider: SPAWN.into(),
            model: None,
            persona: None,
            tool_filter: None,
            notice: false,
            max_depth: None,
            child: None,
            key: None,
        }
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

    /// Chooses its model route.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelRoute>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Says who it is to be.
    #[must_use]
    pub fn persona(mut self, persona: impl Into<String>) -> Self {
        self.persona = Some(persona.into());
        self
    }

    /// Says which tools it may use.
    #[must_use]
    pub fn tool_filter(mut self, tool_filter: ToolFilter) -> Self {
        self.tool_filter = Some(tool_filter);
        self
    }

    /// Has its parent told when it settles although it is one-shot.
    #[must_use]
    pub fn notice(mut self) -> Self {
        self.notice = true;
        self
    }

    /// Lowers how deep it may be.
    #[must_use]
    pub fn max_depth(mut self, max_depth: u32) -> Self {
        self.max_depth = Some(max_depth);
        self
    }

    /// Gives it an id of the caller's choice. A session of this id that was not created by this very delegation is `DUPLICATE_CHILD`.
    #[must_use]
    pub fn child(mut self, child: SessionId) -> Self {
        self.child = Some(child);
        self
    }

    /// Names the effect: two delegations of one key within the turns of one message are one.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns what tells this delegation from others. What came later than the rest counts only where it is said, so that the ids of children that are without do not move.
    pub(crate) fn content(&self, mode: Mode) -> Vec<u8> {
        let parts = (&self.label, &self.prompt, &self.alias, &self.params, &self.provider);
        let said = self.label.is_none() || self.model.is_some() || self.persona.is_some() || self.tool_filter.is_some();
        let json = match &self.child {
            Some(child) if self.notice => serde_json::to_vec(&(parts, &self.model, &self.persona, &self.tool_filter, child, mode, "notice")),
            None if self.notice => serde_json::to_vec(&(parts, &self.model, &self.persona, &self.tool_filter, "notice")),
            Some(child) => serde_json::to_vec(&(parts, &self.model, &self.persona, &self.tool_filter, child, mode)),
            None if said => serde_json::to_vec(&(parts, &self.model, &self.persona, &self.tool_filter)),
            None => serde_json::to_vec(&parts),
        };
        json.unwrap_or_else(|_| self.prompt.as_bytes().to_vec())
    }

    /// Describes the child. `route` is the parent's own.
    pub(crate) fn descriptor(&self, mode: Mode, route: Option<ModelRoute>) -> Descriptor {
        Descriptor {
            version: DESCRIPTOR_VERSION,
            mode,
            provider: self.provider.clone(),
            label: self.label.clone(),
            agent: self.agent.clone(),
            alias: self.alias.clone(),
            params: self.params.clone(),
            model: self.model.clone().or(route),
            persona: self.persona.clone(),
            tool_filter: self.tool_filter.clone(),
            notice: self.notice && mode == Mode::OneShot,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_plain_delegations_do_not_move() {
        let plain = Delegate::new("a", "l", "p").alias("x").params(1.into());
        assert_eq!(String::from_utf8(plain.content(Mode::Continuable)).unwrap(), r#"["l","p","x",1,"spawn"]"#);
        // A condition of the start, and a name of the effect, are no part of what the child is.
        assert_eq!(plain.clone().max_depth(3).key("k").content(Mode::OneShot), plain.content(Mode::Continuable));
    }

    #[test]
    fn whatever_a_delegation_says_of_a_child_tells_it_from_others() {
        let plain = || Delegate::new("a", "l", "p");
        let filter = |allow: &[&str], deny: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            plain().tool_filter(ToolFilter { allow: Some(owned(allow)), deny: Some(owned(deny)) })
        };
        let reserved = |name: &str| plain().child(SessionId::new(name).unwrap());
        let all = [
            plain(),
            Delegate::new("a", "other", "p"),
            Delegate::new("a", "l", "other"),
            Delegate::unlabelled("a", "p"),
            plain().alias("x"),
            plain().params(1.into()),
            plain().provider("fork"),
            plain().model("x"),
            plain().model(ModelRoute { provider: Some("y".into()), name: "x".into() }),
            plain().persona("x"),
            plain().notice(),
            reserved("x").notice(),
            filter(&["x"], &[]),
            filter(&[], &["x"]),
            reserved("x"),
            reserved("y"),
        ];
        for (one, a) in all.iter().enumerate() {
            for (other, b) in all.iter().enumerate() {
                assert_eq!(a.content(Mode::Continuable) == b.content(Mode::Continuable), one == other, "{a:?} {b:?}");
            }
        }
        assert_ne!(reserved("x").content(Mode::Continuable), reserved("x").content(Mode::OneShot));
    }
}
