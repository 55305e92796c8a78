//! Occurrences: what subscribers are told. Information only; a slow subscriber loses the oldest.

use std::sync::Arc;

use greenroom_session::{
    descriptor::Mode,
    event::{EpochEnd, TurnEnd},
    id::{Epoch, MessageId, SessionId},
};

/// A part of what a model says, as it comes.
///
/// ```
/// use greenroom_actors::occurrence::Chunk;
/// assert_ne!(Chunk::Text("hm".into()), Chunk::Reasoning("hm".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Of its answer.
    Text(Arc<str>),
    /// Of its reasoning.
    Reasoning(Arc<str>),
}

/// Something that happened to a live session, told after it became durable unless it says otherwise, or to the runtime.
///
/// ```
/// use greenroom_actors::{Occurrence, host::NewRoot};
/// # tokio_test::block_on(async {
/// # let mut config = greenroom_actors::Config::default();
/// # config.behavior("echo", || |turn: greenroom_actors::Turn| async move {
/// #     turn.say(turn.text())?;
/// #     Ok(greenroom_actors::TurnEnd::Completed)
/// # });
/// # let store = std::sync::Arc::new(greenroom_session::store::memory::MemoryStore::new());
/// # let system = greenroom_actors::System::start(config, store, true).await?;
/// # let host = system.host();
/// let mut occurrences = host.subscribe();
/// let root = host.root(NewRoot::new("echo", "a desk")).await?;
/// root.send("hello").await?;
/// root.quiescent().await?;
/// let ended = loop {
///     if let Occurrence::TurnEnded { reason, .. } = occurrences.recv().await? {
///         break reason;
///     }
/// };
/// assert_eq!(ended.as_str(), "completed");
/// # system.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Occurrence {
    /// A child was created.
    Created {
        /// The child.
        session: SessionId,
        /// Its parent.
        parent: SessionId,
        /// Its label.
        label: Option<Arc<str>>,
    },
    /// A session is live: it stands where others find it. Told once for an epoch that is played, by an agent or by a host; its
    /// [`Occurrence::Ended`] follows, whatever becomes of it while the process lives. An epoch in which nobody plays, since it only answers requests, is not told of.
    Activated {
        /// The session.
        session: SessionId,
        /// The epoch. No other pair has the same session and epoch.
        epoch: Epoch,
        /// Its parent; `None` for a root.
        parent: Option<SessionId>,
        /// The provider that made it; `None` for what is no subagent.
        provider: Option<Arc<str>>,
        /// What kind of subagent it is; `None` for what is none.
        mode: Option<Mode>,
        /// Whether it has lived before.
        resumed: bool,
    },
    /// A turn began.
    TurnStarted {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// The message that it serves.
        message: MessageId,
        /// Which attempt.
        attempt: u32,
    },
    /// A model has said a little more. Told as it comes, and not durable: what was said is in the log when the answer is whole, and an answer that is asked for again
    /// begins anew.
    Chunk {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// The step within it; the answer has its place there, too.
        step: u32,
        /// What was said.
        chunk: Chunk,
    },
    /// A tool's body is about to run; its call is durable.
    ToolStarted {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// The call's id.
        call_id: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// The raw text of the arguments.
        arguments: Arc<str>,
    },
    /// A tool call was answered. Durable with the next step.
    ToolEnded {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// The call's id.
        call_id: Arc<str>,
        /// What the model sees.
        text: Arc<str>,
        /// Whether it failed.
        is_error: bool,
    },
    /// A turn ended.
    TurnEnded {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// How.
        reason: TurnEnd,
    },
    /// An epoch that was told of has ended. What it says of the work is of this epoch alone.
    Ended {
        /// The session.
        session: SessionId,
        /// The epoch.
        epoch: Epoch,
        /// Its parent; `None` for a root.
        parent: Option<SessionId>,
        /// The provider that made it; `None` for what is no subagent.
        provider: Option<Arc<str>>,
        /// Why. [`EpochEnd::Failed`] and [`EpochEnd::Fenced`] are ends without order: the next epoch goes on from what is on disk.
        reason: EpochEnd,
        /// How the last turn of this epoch ended; completed if there was none. A turn that only took notes counts if it did not complete. An end without order is an
        /// error: the failed write's, or `ACTIVATION_FAILED`.
        outcome: TurnEnd,
        /// What the agent said last in this epoch; `None` if nothing, or if the end was without order.
        answer: Option<Arc<str>>,
    },
    /// What set-up contributions had installed for an epoch was not released well. It is gone all the same, and the epoch's end is none the worse for it.
    ReleaseFailed {
        /// The session.
        session: SessionId,
        /// The epoch.
        epoch: Epoch,
        /// Stable code: `ACTIVATION_SETUP_RELEASE_FAILED`.
        code: &'static str,
        /// What failed, one text for each installation.
        failures: Arc<[String]>,
    },
    /// A provider was registered.
    ProviderAdded {
        /// Its name.
        name: Arc<str>,
    },
    /// A provider was removed. What it has prepared stays.
    ProviderRemoved {
        /// Its name.
        name: Arc<str>,
    },
    /// A session with work could not be activated; the work stays pending.
    NotActivated {
        /// The session.
        session: SessionId,
        /// Stable code.
        code: &'static str,
        /// What is wrong.
        reason: String,
    },
}
