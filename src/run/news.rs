//! What an observer of a run is told.

use greenroom_actors::Occurrence;
use greenroom_session::id::SessionId;

/// Something worth showing while a run goes on. Information only: under load, what happens in sessions may be left out.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum News<'a> {
    /// The root is there; its id is what a later run needs to go on.
    Opened {
        /// The root.
        root: &'a SessionId,
        /// Whether it was there before.
        resumed: bool,
    },
    /// The program is not the one that the root was opened with. The new one is used.
    ProgramChanged {
        /// Digest of the program that the root was opened with.
        opened_with: &'a str,
    },
    /// Something happened in a session of the store.
    Happened {
        /// What.
        occurrence: &'a Occurrence,
        /// How far the run is.
        progress: Progress,
    },
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Sessions below the root that are known, those of earlier runs included.
    pub children: u64,
    /// Sessions that are live now.
    pub live: u64,
    /// Turns that have ended in this run.
    pub turns: u64,
    /// Turns that have failed in this run.
    pub failed: u64,
}

/// Whoever watches a run. It must not block.
///
/// A closure that takes [`News`] is one.
pub trait Observer: Sync {
    /// Takes one piece of news.
    fn observe(&self, news: News<'_>);
}

impl<F: Fn(News<'_>) + Sync> Observer for F {
    fn observe(&self, news: News<'_>) {
        self(news);
    }
}
