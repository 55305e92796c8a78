//! What an observer of a run is told.

use greenroom_actors::Occurrence;
use greenroom_session::id::SessionId;

/// Something worth showing while a run goes on. Information only: under load, what happens in sessions may be left out.
///
/// ```
/// use std::{path::Path, sync::Mutex};
/// use greenroom::{program::Program, run::{News, RunOptions, run}};
/// # tokio_test::block_on(async {
/// # let text = r#"
/// # run = { root = "editor", prompt = "Begin." }
/// # agents.editor = { behavior = "script", turns = [[{ say = "hello" }]] }
/// # "#;
/// # let program = Program::parse(text, "story.toml", Path::new("/stories"))?;
/// let opened = Mutex::new(None);
/// let watch = |news: News<'_>| {
///     if let News::Opened { root, .. } = news {
///         *opened.lock().unwrap() = Some(root.clone());
///     }
/// };
/// let report = run(&program, &RunOptions::new("memory:".parse()?, "/"), &watch).await?;
/// assert_eq!(*opened.lock().unwrap(), Some(report.root));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
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
    /// A signal asks the run to end: what is under way is cut off in good order. A second one ends it at once.
    Ending {
        /// Its number.
        signal: u8,
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
///
/// ```
/// use greenroom::run::Progress;
/// let progress = Progress { children: 3, turns: 8, failed: 1, ..Progress::default() };
/// assert_eq!(format!("{} of {} turns failed", progress.failed, progress.turns), "1 of 8 turns failed");
/// ```
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
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use greenroom::run::{News, Observer};
///
/// /// Counts what it is told.
/// #[derive(Default)]
/// struct Counter(AtomicU64);
/// impl Observer for Counter {
///     fn observe(&self, _news: News<'_>) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
/// let counter = Counter::default();
/// counter.observe(News::ProgramChanged { opened_with: "ab12" });
/// assert_eq!(counter.0.into_inner(), 1);
/// ```
pub trait Observer: Sync {
    /// Takes one piece of news.
    fn observe(&self, news: News<'_>);
}

impl<F: Fn(News<'_>) + Sync> Observer for F {
    fn observe(&self, news: News<'_>) {
        self(news);
    }
}
