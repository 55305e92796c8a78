//! Roots: what a new one is to be, why one could not be had, and the handle that keeps one live.

use std::{fmt, sync::Arc};

use greenroom_session::{
    descriptor::ModelRoute,
    event::RootOpened,
    id::{MessageId, SessionId},
    store::StoreError,
};

use super::Host;
use crate::{
    agent::Agent,
    error::{ActivateError, DeliverError, StartError},
    live::LiveView,
    registry::RegistryMessage,
};

/// What a new root is to be.
///
/// ```
/// use greenroom_actors::host::NewRoot;
/// use greenroom_session::id::SessionId;
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let mut new = NewRoot::new("echo", "a desk");
/// new.id = Some(SessionId::new("desk")?);
/// new.opened.params = Some(serde_json::json!({ "tone": "dry" }));
/// assert_eq!(host.root(new).await?.id().as_str(), "desk");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NewRoot {
    /// Its id; a new one if `None`.
    pub id: Option<SessionId>,
    /// Its opening event.
    pub opened: RootOpened,
    /// Absolute working folder.
    pub cwd: Option<String>,
}

impl NewRoot {
    /// Describes a root played by `agent`.
    pub fn new(agent: impl Into<String>, label: impl Into<String>) -> Self {
        let opened = RootOpened {
            label: label.into(),
            agent: agent.into(),
            program_sha256: None,
            vars: std::collections::BTreeMap::new(),
            seed: None,
            params: None,
            model: None,
        };
        Self { id: None, opened, cwd: None }
    }

    /// Chooses its model route, which is that of every child below it for which nothing else is said.
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelRoute>) -> Self {
        self.opened.model = Some(model.into());
        self
    }
}

/// Why a root could not be had.
///
/// ```
/// use greenroom_actors::host::{NewRoot, RootError};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let error = host.root(NewRoot::new("nobody", "a desk")).await.unwrap_err();
/// assert!(matches!(error, RootError::Start(_)));
/// assert_eq!(error.code(), "AGENT_UNKNOWN");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// It could not be created.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It could not be brought up.
    #[error(transparent)]
    Activate(#[from] ActivateError),
    /// The session has a parent: only the parent's turns have its capability.
    #[error("session {0} is no root: it has a parent")]
    NotARoot(SessionId),
    /// A session of this id exists and was opened differently.
    #[error("session {0} already exists")]
    Exists(SessionId),
}

impl RootError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Start(error) => error.code(),
            Self::Activate(error) => error.code(),
            Self::NotARoot(_) => "NOT_A_ROOT",
            Self::Exists(_) => "SESSION_EXISTS",
        }
    }
}

/// Keeps a root live. Dropped, it lets the root settle when it has nothing to do.
///
/// ```
/// use greenroom_actors::{RootHandle, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let root: RootHandle = host.root(NewRoot::new("echo", "a desk")).await?;
/// root.send("hello").await?;
/// root.quiescent().await?;
/// assert_eq!(host.live_count(), 1); // idle, and kept live by the handle
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct RootHandle {
    pub(super) pin: Pin,
    pub(super) view: std::sync::Mutex<Arc<LiveView>>,
}

impl fmt::Debug for RootHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootHandle").field("id", self.id()).finish_non_exhaustive()
    }
}

impl RootHandle {
    /// Returns the root's id.
    pub fn id(&self) -> &SessionId {
        &self.pin.id
    }

    /// Returns the root's capability. It ends with the root's epoch; ask again for the next one's.
    pub fn agent(&self) -> Agent {
        let services = self.pin.host.services();
        let mut view = self.view.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !view.is_open()
            && let Some(newer) = services.live.get(&self.pin.id)
        {
            *view = newer;
        }
        Agent::of_root(services, view.clone())
    }

    /// Sends the root the message of its next turn, as the user. See [`Host::send`].
    ///
    /// # Errors
    /// [`DeliverError`], as [`Host::send`].
    ///
    /// # Cancel safety
    /// The message may have been accepted.
    pub async fn send(&self, text: impl Into<String>) -> Result<MessageId, DeliverError> {
        self.pin.host.send(&self.pin.id, text, None).await
    }

    /// Waits until the root and everything below it has nothing to do. See [`Host::quiescent`].
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn quiescent(&self) -> Result<Vec<SessionId>, StoreError> {
        self.pin.host.quiescent(&self.pin.id).await
    }
}

/// What keeps a session live, also over the end of a generation.
#[derive(Debug)]
pub(super) struct Pin {
    host: Host,
    id: SessionId,
}

impl Pin {
    pub(super) fn new(host: &Host, id: &SessionId) -> Self {
        host.services().pins.add(id);
        Self { host: host.clone(), id: id.clone() }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let services = self.host.services();
        services.pins.remove(&self.id);
        // A Registry that has ended needs no telling: the next one looks at the pins.
        drop(services.registry.send_message(RegistryMessage::Release { session: self.id.clone() }));
    }
}
