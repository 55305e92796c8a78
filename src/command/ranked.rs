//! The locks of one session's runs, in the order of its epochs.
//!
//! Each epoch of a session has a lock file of its own, `NAME.EPOCH.lock`. A run takes the one of its epoch first and looks at the others then; so of two runs at least one
//! sees the other. What an earlier epoch still has is waited for, then ended: whoever has a later epoch has overtaken it. What a later one has is waited for and never
//! touched: a holder that was stopped in the middle of this, overtaken, and goes on, harms nobody, however late it finds out.
//!
//! No file is made anew by another epoch than its own. So those who take away the file of an earlier one need not hold its lock.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    CommandError,
    lock::{self, Attempt, Patience, RunLock},
    run::blocking,
};

/// How long an earlier run of a session may take to go before it is ended. That of a runtime that has ended goes in milliseconds.
const EVICT_WAIT: Duration = Duration::from_secs(2);

/// How long a run waits for those before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// After this it gives up.
    pub(super) wait: Duration,
    /// After this it ends what an earlier epoch has left, or its own.
    pub(super) evict: Duration,
}

/// Takes the lock of a session's run, whose file is named as this module says. What an earlier run has left is ended where it does not go by itself within 2 s.
///
/// `prove` asks whether the session has not been taken over, where that may have happened meanwhile: after any wait, and where a later epoch runs something. What it
/// answers then is the end of this.
///
/// # Errors
/// `StillRunning` if another run is under way for longer than `timeout` (10 s at least); `Cancelled` if `cancel` was; `Io`; and those of `prove`.
///
/// # Cancel safety
///
/// Dropping the future gives up the wait; it may leave an empty file, which is as good as none.
pub(crate) async fn take_turn<E, F>(path: &Path, timeout: Duration, cancel: &CancellationToken, prove: impl Fn() -> F) -> Result<RunLock, E>
where
    E: From<CommandError>,
    F: Future<Output = Result<(), E>>,
{
    acquire(path, Bounds { wait: timeout.max(lock::WAIT), evict: EVICT_WAIT }, cancel, prove).await
}

pub(super) async fn acquire<E, F>(path: &Path, bounds: Bounds, cancel: &CancellationToken, prove: impl Fn() -> F) -> Result<RunLock, E>
where
    E: From<CommandError>,
    F: Future<Output = Result<(), E>>,
{
    let family = Family::of(path)?;
    let mut patience = Patience::new(bounds.wait, cancel);
    let (mut opened, mut waited) = (None, false);
    loop {
        match RunLock::attempt(path, opened.take()).await? {
            Attempt::Held(file) if patience.waited() < bounds.evict => opened = Some(file),
            Attempt::Held(_) => evict(path).await?,
            Attempt::Taken(own) => {
                let ready = match alone(&family, &own, bounds.evict, &mut patience).await {
                    Ok(Alone::Yes { at_once: true }) if !waited => return Ok(own),
                    Ok(found) => prove().await.map(|()| found),
                    Err(error) => Err(error.into()),
                };
                let later = match ready {
                    Ok(Alone::Yes { .. }) => return Ok(own),
                    Ok(Alone::Overtaken(later)) => Ok(later),
                    Err(error) => Err(error),
                };
                // Whoever is overtaken makes way at once: the other waits for this, too.
                own.remove().await;
                patience.pause(&later?).await?;
                waited = true;
                continue;
            }
        }
        waited = true;
        patience.pause(path).await?;
    }
}

/// What a run finds once it has the lock of its epoch.
enum Alone {
    /// No other run of the session is under way.
    Yes {
        /// Nor was one.
        at_once: bool,
    },
    /// A later epoch has this lock, or has taken away one's own.
    Overtaken(PathBuf),
}

/// Waits until no earlier epoch runs anything, under the lock of one's own.
async fn alone(family: &Family, own: &RunLock, evict_after: Duration, patience: &mut Patience<'_>) -> Result<Alone, CommandError> {
    let mut at_once = true;
    loop {
        let looked = family.clone();
        let others = blocking(move || looked.others()).await?.map_err(CommandError::io("look for earlier runs"))?;
        if let Some(later) = others.later {
            return Ok(Alone::Overtaken(later));
        }
        let Some(earlier) = others.earlier else {
            let there = own.is_there().map_err(CommandError::io("look for a lock"))?;
            return Ok(if there { Alone::Yes { at_once } } else { Alone::Overtaken(own.path().to_owned()) });
        };
        at_once = false;
        if patience.waited() >= evict_after {
            evict(&earlier).await?;
        } else {
            patience.pause(&earlier).await?;
        }
    }
}

async fn evict(path: &Path) -> Result<(), CommandError> {
    tracing::warn!(lock = %path.display(), "what is left of an earlier run of this session is ended");
    let path = path.to_owned();
    blocking(move || lock::evict_from(&path)).await?.map_err(CommandError::io("end an earlier run"))
}

/// The lock files of one session, as one of its epochs sees them.
#[derive(Debug, Clone)]
struct Family {
    folder: PathBuf,
    name: String,
    epoch: u64,
}

impl Family {
    fn of(path: &Path) -> Result<Self, CommandError> {
        let parts = || {
            let (name, epoch) = parse(path.file_name()?.to_str()?)?;
            Some(Self { folder: path.parent()?.to_owned(), name: name.to_owned(), epoch })
        };
        parts().ok_or_else(|| CommandError::io(format!("use the lock {}", path.display()))(io::ErrorKind::InvalidFilename.into()))
    }

    /// Looks who holds a lock of another epoch, and removes the files of earlier ones that nobody holds.
    fn others(&self) -> io::Result<Others> {
        let mut others = Others::default();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((_, epoch)) = name.to_str().and_then(parse).filter(|(name, epoch)| *name == self.name && *epoch != self.epoch) else { continue };
            // A link, a pipe or a folder is nobody's lock.
            if !entry.file_type()?.is_file() {
                continue;
            }
            let path = entry.path();
            if epoch > self.epoch {
                if lock::is_held(&path)? {
                    others.later = Some(path);
                }
            } else if !lock::try_remove(&path)? {
                others.earlier = Some(path);
            }
        }
        Ok(others)
    }
}

/// Locks of other epochs that are held: one of each kind, if there are any.
#[derive(Debug, Default)]
struct Others {
    earlier: Option<PathBuf>,
    later: Option<PathBuf>,
}

/// Splits `NAME.EPOCH.lock`.
fn parse(name: &str) -> Option<(&str, u64)> {
    let (name, epoch) = name.strip_suffix(".lock")?.rsplit_once('.')?;
    Some((name, epoch.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{super::lock::is_held, *};

    const NONE: Bounds = Bounds { wait: Duration::ZERO, evict: Duration::MAX };
    const AT_ONCE: Bounds = Bounds { wait: Duration::from_secs(30), evict: Duration::ZERO };

    struct Session(tempfile::TempDir);

    impl Session {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn lock(&self, epoch: u64) -> PathBuf {
            self.0.path().join(format!("desk.{epoch}.lock"))
        }

        async fn take(&self, epoch: u64, bounds: Bounds) -> Result<RunLock, CommandError> {
            acquire(&self.lock(epoch), bounds, &CancellationToken::new(), || async { Ok(()) }).await
        }

        /// Holds the lock of an epoch as a runtime does that has been stopped.
        fn stopped(&self, epoch: u64) -> File {
            let file = File::create(self.lock(epoch)).unwrap();
            file.lock().unwrap();
            file
        }

        fn files(&self) -> Vec<String> {
            let mut names: Vec<_> = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[tokio::test]
    async fn a_later_epoch_ends_an_earlier_one_and_never_the_other_way_round() {
        let session = Session::new();
        let _stopped = session.stopped(3);
        assert!(matches!(session.take(4, NONE).await, Err(CommandError::StillRunning { lock, .. }) if lock == session.lock(3)));
        assert_eq!(session.files(), ["desk.3.lock"], "who gave up has left nothing");
        let fourth = session.take(4, AT_ONCE).await.unwrap();
        assert_eq!(session.files(), ["desk.4.lock"]);
        // The third goes on, and would end whatever holds its lock: it is another than that of the fourth.
        let late = Bounds { wait: Duration::from_millis(20), evict: Duration::ZERO };
        assert!(matches!(session.take(3, late).await, Err(CommandError::StillRunning { lock, .. }) if lock == session.lock(4)));
        assert!(is_held(&session.lock(4)).unwrap());
        assert_eq!(session.files(), ["desk.4.lock"]);
        // And once it asks, it gives up at once.
        let asked = acquire(&session.lock(3), AT_ONCE, &CancellationToken::new(), || async { Err(CommandError::Cancelled) }).await;
        assert!(matches!(asked, Err(CommandError::Cancelled)));
        fourth.remove().await;
        assert!(session.files().is_empty());
    }

    #[tokio::test]
    async fn who_had_to_wait_asks_first_whether_it_may_go_on_and_nobody_else_does() {
        let session = Session::new();
        let refuses = || async { Err(CommandError::Cancelled) };
        let none = CancellationToken::new();
        acquire::<CommandError, _>(&session.lock(2), AT_ONCE, &none, refuses).await.unwrap().remove().await;
        for held in [1, 2] {
            let _stopped = session.stopped(held);
            assert!(matches!(acquire(&session.lock(2), AT_ONCE, &none, refuses).await, Err(CommandError::Cancelled)));
            assert!(session.files().is_empty());
        }
    }

    #[tokio::test]
    async fn what_a_crash_has_left_is_cleared_away_and_what_is_nobodys_lock_is_let_be() {
        let session = Session::new();
        for name in ["desk.1.lock", "desk.2.lock", "desk.9.lock", "desk.x.lock", "desk.lock", "desks.1.lock"] {
            File::create(session.0.path().join(name)).unwrap();
        }
        std::os::unix::fs::symlink(session.0.path().join("desk.lock"), session.lock(0)).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, session.lock(5), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let taken = session.take(7, NONE).await.unwrap();
        taken.remove().await;
        assert_eq!(session.files(), ["desk.0.lock", "desk.5.lock", "desk.9.lock", "desk.lock", "desk.x.lock", "desks.1.lock"]);
    }

    #[tokio::test]
    async fn of_runs_of_many_epochs_at_once_no_two_hold_a_lock() {
        let session = Session::new();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        let runs = (1..=16).map(|n| {
            let (session, inside) = (&session, &inside);
            async move {
                let taken = session.take(n % 5, Bounds { wait: Duration::from_secs(60), evict: Duration::MAX }).await.unwrap();
                assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                taken.remove().await;
            }
        });
        futures::future::join_all(runs).await;
        assert!(session.files().is_empty());
    }
}
