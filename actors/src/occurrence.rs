//! Occurrences: what subscribers are told. Information only; a slow subscriber loses the oldest.

use std::sync::Arc;

use greenroom_session::{
    event::{EpochEnd, TurnEnd},
    id::{Epoch, MessageId, SessionId},
};

/// Something that happened to a live session. Told after it became durable.
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
    /// An epoch began.
    Activated {
        /// The session.
        session: SessionId,
        /// The epoch.
        epoch: Epoch,
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
    /// A turn ended.
    TurnEnded {
        /// The session.
        session: SessionId,
        /// The turn.
        turn: u64,
        /// How.
        reason: TurnEnd,
    },
    /// An epoch ended.
    Ended {
        /// The session.
        session: SessionId,
        /// The epoch.
        epoch: Epoch,
        /// Why.
        reason: EpochEnd,
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
