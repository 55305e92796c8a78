//! Providers: who prepares what a child begins with.
//!
//! A provider gives data and nothing else: the events that a child inherits. It is asked once, before anything of the child exists, and never again: what brings a
//! child back is its descriptor. So a provider may be removed, or be absent in the process that resumes a child, and no child is the worse for it.

mod builtin;
mod registry;

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use greenroom_session::{
    descriptor::{Descriptor, Mode},
    event::Event,
    header::Header,
    id::SessionId,
    store::LoadError,
};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::readers::Readers;

pub use builtin::{FORK, SPAWN};
pub(crate) use registry::{Providers, Registered, invalid_prefix};

/// What a provider can do for a child. A delegation that asks for more is refused with `UNSUPPORTED_CAPABILITY` before the provider is asked.
///
/// ```
/// use greenroom_actors::provider::Capabilities;
/// let scribe = Capabilities { tool_filter: false, ..Capabilities::all() };
/// assert!(scribe.continuable && scribe.one_shot && !scribe.tool_filter);
/// assert_eq!(Capabilities::default(), Capabilities::none());
/// ```
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, and none follows from another")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// Whether its children may be continuable.
    pub continuable: bool,
    /// Whether its children may be one-shot.
    pub one_shot: bool,
    /// Whether a delegation may lower the depth that is allowed.
    pub depth_limit: bool,
    /// Whether a delegation may say which tools are to be used.
    pub tool_filter: bool,
    /// Whether a delegation may give a persona.
    pub persona: bool,
    /// Whether a delegation may choose a model route. Children of a provider that cannot have none, not even their parent's.
    pub model: bool,
    /// Whether its children inherit events. One that does not must hand none over.
    pub inherits: bool,
}

impl Capabilities {
    /// Returns everything.
    pub const fn all() -> Self {
        Self { continuable: true, one_shot: true, depth_limit: true, tool_filter: true, persona: true, model: true, inherits: true }
    }

    /// Returns nothing.
    pub const fn none() -> Self {
        Self { continuable: false, one_shot: false, depth_limit: false, tool_filter: false, persona: false, model: false, inherits: false }
    }
}

/// A child that is to be prepared. Nothing of it exists, and nothing will unless the provider succeeds.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use futures::future::BoxFuture;
/// use greenroom_actors::{Delegate, host::NewRoot, provider::{Capabilities, Prepare, PrepareError, Prepared, Provider}};
/// /// Notes who was asked for.
/// struct Notary(Arc<Mutex<Vec<String>>>);
/// impl Provider for Notary {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities { inherits: false, ..Capabilities::all() }
///     }
///     fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
///         Box::pin(async move {
///             let label = prepare.descriptor.label.clone().unwrap_or_default();
///             self.0.lock().unwrap().push(format!("{label}, {} below {}", prepare.mode().as_str(), prepare.parent.id));
///             Ok(Prepared::default())
///         })
///     }
/// }
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("idler", || |_turn: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let noted = Arc::default();
/// let notary = host.register_provider("notary", Notary(Arc::clone(&noted)))?;
/// let mut new = NewRoot::new("idler", "a desk");
/// new.id = Some("desk".parse()?);
/// let root = host.root(new).await?;
/// root.agent().start_continuable(Delegate::new("idler", "a witness", "one").provider("notary")).await?;
/// assert_eq!(*noted.lock().unwrap(), ["a witness, continuable below desk"]);
/// # root.quiescent().await?;
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Prepare {
    /// The id that the child gets.
    pub child: SessionId,
    /// Its parent.
    pub parent: Arc<Header>,
    /// What the child is to be, exactly as it will be recorded.
    pub descriptor: Arc<Descriptor>,
    /// Cancelled when nobody waits for it any more: the caller has given up, the provider was removed, the runtime shuts down, it took too long, or it is done. What was
    /// prepared is not used then, unless it is done.
    pub cancel: CancellationToken,
    pub(crate) readers: Readers,
}

impl Prepare {
    /// Returns how the child is to live.
    pub fn mode(&self) -> Mode {
        self.descriptor.mode
    }

    /// Returns the parent's log as far as it is durable, from event 0. Costs its length.
    ///
    /// # Errors
    /// [`PrepareError`] with the code of whatever is damaged in the log or the store.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn parent_log(&self) -> Result<Vec<Event>, PrepareError> {
        let id = self.parent.id.clone();
        let events = self.readers.read(move |reader| reader.events(&id, 0, usize::MAX)).await;
        events.map_err(|error: LoadError| PrepareError::new(error.code(), format!("the parent's log cannot be read: {error}")))
    }
}

/// What a child begins with.
///
/// ```
/// use greenroom_actors::provider::Prepared;
/// assert!(Prepared::default().inherited.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prepared {
    /// What it inherits: events that follow from one another, from 0, with no turn open after the last. Only what a model sees of them and the count of turns mean
    /// anything to the child.
    pub inherited: Vec<Event>,
}

/// Who prepares what a child begins with. See [`Host::register_provider`](crate::Host::register_provider).
///
/// ```
/// use futures::future::BoxFuture;
/// use greenroom_actors::{Delegate, host::NewRoot, provider::{Capabilities, Prepare, PrepareError, Prepared, Provider}};
/// use greenroom_session::{event::Body, message::{Message, Source}};
///
/// /// Children of it know the house rules.
/// struct Steward;
/// impl Provider for Steward {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::all()
///     }
///     fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>> {
///         Box::pin(async move {
///             let rules = Message::turn("rules", "Be brief.", Source::Plugin { name: "steward".into() }, prepare.parent.created_at)
///                 .map_err(|error| PrepareError::new("NO_RULES", error.to_string()))?;
///             Ok(Prepared { inherited: vec![Body::user_message(&rules).at(0, prepare.parent.created_at)] })
///         })
///     }
/// }
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// config.behavior("clerk", || |turn: greenroom_actors::Turn| async move {
///     turn.say(format!("{} messages", turn.history().len()))?;
///     Ok(greenroom_actors::TurnEnd::Completed)
/// });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let steward = host.register_provider("steward", Steward)?;
/// let root = host.root(NewRoot::new("clerk", "a desk")).await?;
/// let child = root.agent().start_continuable(Delegate::new("clerk", "a clerk", "How many?").provider("steward")).await?.child;
/// root.quiescent().await?;
/// let log = host.load(&child).await?;
/// assert_eq!(log.fold.last_said().map(|said| greenroom_session::message::text_of(&said.content)).as_deref(), Some("2 messages"));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Provider: Send + Sync + 'static {
    /// Returns what it can do. Asked once, when it is registered.
    fn capabilities(&self) -> Capabilities;

    /// Prepares what a child begins with. It must not block, and is dropped at an await when nobody waits for it any more: see [`Prepare::cancel`]. A panic counts as an error.
    ///
    /// # Errors
    /// [`PrepareError`] fails the start; nothing of the child exists then.
    fn prepare(&self, prepare: Prepare) -> BoxFuture<'_, Result<Prepared, PrepareError>>;
}

/// Why a provider could not prepare a child.
///
/// ```
/// use greenroom_actors::provider::PrepareError;
/// let error = PrepareError::new("NO_PAPER", "the copier is out of paper");
/// assert_eq!((error.code(), error.to_string().as_str()), ("NO_PAPER", "the copier is out of paper"));
/// ```
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct PrepareError {
    code: &'static str,
    message: String,
}

impl PrepareError {
    /// Makes an error; the code is stable and `UPPER_SNAKE`.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Makes the error of a provider that panicked.
    fn of_panic(panic: &(dyn Any + Send)) -> Self {
        Self { code: "PANIC", message: format!("it panicked: {}", crate::activation::panic_text(panic)) }
    }
}
