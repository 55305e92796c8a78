//! Set-up contributions: what a host installs for every Activation, and takes away again at its end.
//!
//! A contribution is *applied* to a session on its way to be live, before anything of the epoch is written; what it gives is *committed* when all are applied,
//! and *released* once: at the end of the epoch, when the contribution is removed, or when the start comes to nothing. A start that cannot be set up uses no
//! attempt: what the session was to serve stays pending.

mod installed;
mod registry;

use std::{any::Any, sync::Arc};

use futures::future::BoxFuture;
use greenroom_session::{
    descriptor::Descriptor,
    event::RootOpened,
    fold::Fold,
    header::Header,
    id::{Epoch, SessionId},
};
use thiserror::Error;

pub(crate) use installed::{Installed, RELEASE_FAILED};
pub(crate) use registry::Setups;

/// A session that is to be set up, as its log has it.
///
/// ```
/// use greenroom_actors::setup::{Installation, Setup, SetupError};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("idler", || |_turn: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// struct Nothing;
/// impl Installation for Nothing {}
/// let watch = host.register_setup(|setup: &Setup| {
///     assert_eq!((setup.agent.as_str(), setup.epoch, setup.resumed()), ("idler", 1, false));
///     assert!(setup.root.is_some() && setup.descriptor.is_none());
///     Ok::<Box<dyn Installation>, SetupError>(Box::new(Nothing))
/// });
/// host.root(greenroom_actors::host::NewRoot::new("idler", "a desk")).await?;
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Setup {
    /// The session.
    pub session: SessionId,
    /// Its header.
    pub header: Arc<Header>,
    /// What a root was opened with.
    pub root: Option<Arc<RootOpened>>,
    /// What makes a subagent one.
    pub descriptor: Option<Arc<Descriptor>>,
    /// The behaviour that plays it.
    pub agent: String,
    /// The epoch that is about to begin.
    pub epoch: Epoch,
}

impl Setup {
    pub(crate) fn of(fold: &Fold) -> Self {
        let header = fold.header().clone();
        let agent = fold.agent().unwrap_or_default().to_owned();
        Self { session: header.id.clone(), header, root: fold.root().cloned(), descriptor: fold.described().cloned(), agent, epoch: fold.head().epoch + 1 }
    }

    /// Tells whether the session has lived before.
    pub fn resumed(&self) -> bool {
        self.epoch > 1
    }
}

/// What a host adds to every Activation that starts while it is registered. See [`Host::register_setup`](crate::Host::register_setup).
///
/// A closure that gives its installation at once is one, too.
///
/// ```
/// use std::{any::Any, sync::Arc};
/// use futures::future::BoxFuture;
/// use greenroom_actors::{Turn, TurnEnd, host::NewRoot, setup::{Installation, Setup, SetupContribution, SetupError}};
///
/// /// What turns are to call the day.
/// struct Day(&'static str);
/// struct Calendar(Arc<Day>);
/// impl Installation for Calendar {
///     fn gives(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
///         vec![self.0.clone()]
///     }
/// }
/// struct Calendars;
/// impl SetupContribution for Calendars {
///     fn apply<'a>(&'a self, _: &'a Setup) -> BoxFuture<'a, Result<Box<dyn Installation>, SetupError>> {
///         Box::pin(async { Ok(Box::new(Calendar(Arc::new(Day("Monday")))) as Box<dyn Installation>) })
///     }
/// }
/// # tokio_test::block_on(async {
/// let mut config = greenroom_actors::Config::default();
/// config.behavior("clerk", || |turn: Turn| async move {
///     turn.say(turn.installed::<Day>().map_or("no day", |day| day.0))?;
///     Ok(TurnEnd::Completed)
/// });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let calendars = host.register_setup(Calendars);
/// let root = host.root(NewRoot::new("clerk", "a desk")).await?;
/// root.send("What day is it?").await?;
/// root.quiescent().await?;
/// let log = host.load(root.id()).await?;
/// assert_eq!(log.fold.last_said().map(|said| greenroom_session::message::text_of(&said.content)).as_deref(), Some("Monday"));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait SetupContribution: Send + Sync + 'static {
    /// Prepares what is to be there while a session lives. Dropped at an await if the start takes longer than the configuration allows, or if the runtime shuts down.
    ///
    /// # Errors
    /// [`SetupError`] refuses the start: what was applied before is released, and what the session was to serve stays pending.
    fn apply<'a>(&'a self, setup: &'a Setup) -> BoxFuture<'a, Result<Box<dyn Installation>, SetupError>>;
}

impl<F> SetupContribution for F
where
    F: Fn(&Setup) -> Result<Box<dyn Installation>, SetupError> + Send + Sync + 'static,
{
    fn apply<'a>(&'a self, setup: &'a Setup) -> BoxFuture<'a, Result<Box<dyn Installation>, SetupError>> {
        Box::pin(async move { self(setup) })
    }
}

/// What a contribution has installed for one Activation.
///
/// It must not block: a release may happen on the way of an actor to its end. A panic counts as an error.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use greenroom_actors::{host::NewRoot, setup::{Installation, Setup, SetupError}};
/// static LIGHT: AtomicBool = AtomicBool::new(false);
/// struct Lamp;
/// impl Installation for Lamp {
///     fn commit(&mut self) -> Result<(), SetupError> {
///         LIGHT.store(true, Ordering::SeqCst);
///         Ok(())
///     }
///     fn release(&mut self) -> Result<(), SetupError> {
///         LIGHT.store(false, Ordering::SeqCst);
///         Ok(())
///     }
/// }
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("idler", || |_turn: greenroom_actors::Turn| async { Ok(greenroom_actors::TurnEnd::Completed) });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let lamps = host.register_setup(|_: &Setup| Ok(Box::new(Lamp) as Box<dyn Installation>));
/// let root = host.root(NewRoot::new("idler", "a desk")).await?;
/// assert!(LIGHT.load(Ordering::SeqCst));
/// lamps.remove(); // from what lives as well
/// assert!(!LIGHT.load(Ordering::SeqCst));
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Installation: Send + 'static {
    /// Puts it in force, when all contributions have been applied and before the epoch is written. Called once.
    ///
    /// # Errors
    /// [`SetupError`] refuses the start: everything that was applied is released, this one included.
    fn commit(&mut self) -> Result<(), SetupError> {
        Ok(())
    }

    /// Returns what the session's turns find by its type: see [`Turn::installed`](crate::Turn::installed). Called once, after the commit.
    fn gives(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        Vec::new()
    }

    /// Takes it away. Called once, whether it was committed or not.
    ///
    /// # Errors
    /// [`SetupError`] is told to subscribers and stops nothing.
    fn release(&mut self) -> Result<(), SetupError> {
        Ok(())
    }
}

/// Why a contribution could not do what it was asked.
///
/// ```
/// use greenroom_actors::setup::SetupError;
/// let error = SetupError::new("NO_DESK", "all desks are taken");
/// assert_eq!((error.code(), error.to_string().as_str()), ("NO_DESK", "NO_DESK: all desks are taken"));
/// ```
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error("{code}: {message}")]
pub struct SetupError {
    code: &'static str,
    message: String,
}

impl SetupError {
    /// Makes an error; the code is stable and `UPPER_SNAKE`.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Makes the error of somebody who panicked.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        Self { code: "PANIC", message: crate::activation::panic_text(panic) }
    }
}
