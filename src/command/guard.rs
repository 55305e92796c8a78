//! The guard: a process group that cannot outlive the runtime.
//!
//! Owns the guard process, the lifeline and the lock of one run. Dropping it kills the group;
//! so does the end of the runtime, through the guard process. It never decides when a run ends.

use std::ffi::OsStr;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::time::timeout;

use super::lock::RunLock;
use super::{CommandError, CommandSpec};

/// What the guard process does. Built-ins of a POSIX shell only, so that it never forks.
///
/// The ignored signals are those a command may send to its whole group (`kill 0` in a trap), which
/// must not cost it its guard. The `read` ends with the lifeline. Then everything that has the lock
/// file as its standard input goes, with the group it may lead: `timeout`, for one, makes a group
/// of its own. A round that finds nobody new is the last. Where there is no `/proc` it finds nobody
/// at all, and only the group goes.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM USR1 USR2 ALRM TSTP TTIN TTOU
read -r end
seen= more=y
while [ -n "$more" ]; do
    more=
    for entry in /proc/[0-9]*; do
        [ "$entry/fd/0" -ef /proc/self/fd/1 ] || continue
        kill -KILL "-${entry#/proc/}"
        kill -KILL "${entry#/proc/}"
        case "$seen " in *" $entry "*) ;; *) seen="$seen $entry" more=y ;; esac
    done
done
kill -KILL 0"#;

const SHELL: &str = "/bin/sh";

/// How long to wait for a killed process to go. One that the kernel cannot stop yet (a hung disk)
/// is left to the runtime's orphan queue rather than holding up the turn.
const REAP_WAIT: Duration = Duration::from_secs(5);

/// How long the guard may take to clear up before its group is killed without it. It takes
/// milliseconds, unless the command has stopped it.
const SWEEP_WAIT: Duration = Duration::from_secs(1);

/// A process group under guard.
#[derive(Debug)]
pub(super) struct Guard {
    group: Pid,
    leader: Option<Pid>,
    process: Child,
    lifeline: Option<PipeWriter>,
    /// Absent once it is given back.
    lock: Option<RunLock>,
    killed: bool,
}

impl Guard {
    /// Starts the guard of a new, empty group. Blocks for as long as a process takes to start.
    fn start(lock: RunLock) -> io::Result<Self> {
        let (watched, lifeline) = io::pipe()?;
        let mut shell = Command::new(SHELL);
        shell.args(["-c", SCRIPT]).env_clear().current_dir("/").stdin(watched).stdout(lock.share()?).stderr(Stdio::null()).process_group(0);
        let process = tokio::process::Command::from(shell).spawn()?;
        Ok(Self { group: pid(&process)?, leader: None, process, lifeline: Some(lifeline), lock: Some(lock), killed: false })
    }

    /// Starts a command with `request` on its standard input, under a guard of its own.
    ///
    /// Blocks for as long as two processes take to start.
    pub(super) fn launch(spec: &CommandSpec, request: &[u8], mut lock: RunLock) -> Result<(Self, Child), CommandError> {
        let program = spec.argv.first().map_or("", String::as_str);
        let environment = spec.environment();
        let file = spec.resolve(program, environment.get(OsStr::new("PATH")))?;
        if !spec.dir.is_dir() {
            // Told apart here: the system says "not found" for the folder and the program alike.
            return Err(CommandError::io(format!("use the folder {}", spec.dir.display()))(io::ErrorKind::NotADirectory.into()));
        }
        lock.fill(request).map_err(CommandError::io("write the request"))?;
        let stdin = lock.share().map_err(CommandError::io("share the lock"))?;
        let mut guard = Self::start(lock).map_err(CommandError::io(format!("start the guard {SHELL}")))?;

        let mut command = Command::new(&file);
        command
            .arg0(program)
            .args(spec.argv.iter().skip(1))
            .env_clear()
            .envs(environment)
            .current_dir(&spec.dir)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(guard.group.as_raw_pid());
        let mut command = tokio::process::Command::from(command);
        // The group is killed anyway; this reaches a command that left it.
        command.kill_on_drop(true);
        let child = command.spawn().map_err(|error| refused(program, error))?;
        guard.leader = Some(pid(&child).map_err(CommandError::io("find the command"))?);
        Ok((guard, child))
    }

    /// Resolves if the guard process ends, which it does not do by itself.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn lost(&mut self) {
        // An error would mean that the process cannot be watched; then nothing can be said.
        if self.process.wait().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Kills what a command that has ended left in its group, without waiting for it to go.
    pub(super) fn kill(&mut self) {
        if std::mem::replace(&mut self.killed, true) {
            return;
        }
        // The number cannot have been given to strangers: the guard process is reaped only after
        // this unless it was lost, and a group that has members keeps its number.
        kill_process_group(self.group, Signal::KILL).ok();
        self.kill_led();
    }

    /// Kills a command that still runs, and all that goes with it.
    ///
    /// By `SIGKILL` at once: a command has to survive that anyway, for a crash of the runtime
    /// gives it no warning either, and a grace period would only be a second timeout. It is left to
    /// the guard, which also finds those that left the group; so every run that is broken off ends
    /// as it would in a crash.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the guard.
    pub(super) async fn sweep(&mut self) {
        self.let_go();
        if timeout(SWEEP_WAIT, self.process.wait()).await.is_ok() {
            self.killed = true;
        }
        self.kill();
    }

    /// Waits until the command and the guard are gone, gives the lock back and removes its file.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the reaping to the runtime, and may leave the file.
    pub(super) async fn end(mut self, mut child: Child) {
        self.kill();
        child.start_kill().ok();
        timeout(REAP_WAIT, async {
            child.wait().await.ok();
            self.process.wait().await.ok();
        })
        .await
        .ok();
        if let Some(lock) = self.lock.take() {
            lock.remove().await;
        }
    }

    /// Sets the guard off.
    fn let_go(&mut self) {
        self.kill_led();
        // A command may have stopped its whole group.
        kill_process_group(self.group, Signal::CONT).ok();
        self.lifeline = None;
    }

    /// Kills the group that the command leads, should it have made itself one.
    fn kill_led(&self) {
        if let Some(leader) = self.leader {
            // Where there is no such group this fails, as it should.
            kill_process_group(leader, Signal::KILL).ok();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.killed {
            self.let_go();
        }
        if let Some(lock) = &self.lock {
            lock.clear();
        }
    }
}

fn pid(child: &Child) -> io::Result<Pid> {
    child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or_else(|| io::Error::other("the process has no id"))
}

/// Tells a program that cannot be executed from a system that is out of something.
fn refused(program: &str, error: io::Error) -> CommandError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "the interpreter it asks for does not exist",
        io::ErrorKind::PermissionDenied => "it may not be executed",
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => "it is neither a binary for this machine nor a script with a `#!` line",
        _ => return CommandError::io(format!("start `{program}`"))(error),
    };
    CommandError::Missing { program: program.to_owned(), reason: reason.to_owned() }
}
