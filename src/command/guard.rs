//! The guard: a process group that cannot outlive the runtime.
//!
//! Owns the guard process, the lifeline and the lock of one run. Dropping it kills the group;
//! so does the end of the runtime, through the guard process. It never decides when a run ends.

use std::ffi::OsStr;
use std::io::{self, PipeWriter, Write as _};
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
/// must not cost it its guard. The first line names the command, because a command that makes
/// itself the leader of a group of its own, as `timeout` does, is no longer in this one. The second
/// read ends when the runtime does.
const SCRIPT: &str = r#"trap '' HUP INT QUIT TERM USR1 USR2 ALRM TSTP TTIN TTOU
read -r leader
read -r end
[ -n "$leader" ] && kill -s KILL -- "-$leader"
kill -s KILL 0"#;

const SHELL: &str = "/bin/sh";

/// How long to wait for a killed process to go. One that the kernel cannot stop yet (a hung disk)
/// is left to the runtime's orphan queue rather than holding up the turn.
const REAP_WAIT: Duration = Duration::from_secs(5);

/// A process group under guard.
#[derive(Debug)]
pub(super) struct Guard {
    group: Pid,
    leader: Option<Pid>,
    process: Child,
    lifeline: PipeWriter,
    lock: RunLock,
    killed: bool,
}

impl Guard {
    /// Starts the guard of a new, empty group. Blocks for as long as a process takes to start.
    fn start(lock: RunLock) -> io::Result<Self> {
        let (watched, lifeline) = io::pipe()?;
        let mut shell = Command::new(SHELL);
        shell
            .args(["-c", SCRIPT])
            .env_clear()
            .current_dir("/")
            .stdin(watched)
            .stdout(lock.share()?)
            .stderr(Stdio::null())
            .process_group(0);
        let process = tokio::process::Command::from(shell).spawn()?;
        Ok(Self {
            group: pid(&process)?,
            leader: None,
            process,
            lifeline,
            lock,
            killed: false,
        })
    }

    /// Starts a command with `request` on its standard input, under a guard of its own.
    ///
    /// Blocks for as long as two processes take to start.
    pub(super) fn launch(
        spec: &CommandSpec,
        request: &[u8],
        mut lock: RunLock,
    ) -> Result<(Self, Child), CommandError> {
        let program = spec.argv.first().map_or("", String::as_str);
        let environment = spec.environment();
        let file = spec.resolve(program, environment.get(OsStr::new("PATH")))?;
        if !spec.dir.is_dir() {
            // Told apart here: the system says "not found" for the folder and the program alike.
            return Err(CommandError::io(format!(
                "use the folder {}",
                spec.dir.display()
            ))(io::ErrorKind::NotADirectory.into()));
        }
        lock.fill(request)
            .map_err(CommandError::io("write the request"))?;
        let stdin = lock.share().map_err(CommandError::io("share the lock"))?;
        let mut guard =
            Self::start(lock).map_err(CommandError::io(format!("start the guard {SHELL}")))?;

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
        let started = pid(&child).and_then(|leader| {
            guard.leader = Some(leader);
            writeln!(guard.lifeline, "{}", leader.as_raw_pid())
        });
        started.map_err(CommandError::io("tell the guard about the command"))?;
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

    /// Kills the group and whatever the command leads, without waiting for them to go.
    ///
    /// By `SIGKILL` at once: a command has to survive that anyway, for a crash of the runtime
    /// gives it no warning either, and a grace period would only be a second timeout.
    pub(super) fn kill(&mut self) {
        if std::mem::replace(&mut self.killed, true) {
            return;
        }
        // Neither number can have been given to strangers. The guard process is reaped only after
        // this, and a group that still has members keeps its number from being used again. The
        // rest fails with "no such process", which is what is wanted.
        kill_process_group(self.group, Signal::KILL).ok();
        if let Some(leader) = self.leader {
            kill_process_group(leader, Signal::KILL).ok();
        }
    }

    /// Kills the group and waits until the command and the guard are gone and the lock is given
    /// back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the reaping to the runtime.
    pub(super) async fn end(mut self, mut child: Child) {
        self.kill();
        child.start_kill().ok();
        timeout(REAP_WAIT, async {
            child.wait().await.ok();
            self.process.wait().await.ok();
        })
        .await
        .ok();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.kill();
        self.lock.clear();
    }
}

fn pid(child: &Child) -> io::Result<Pid> {
    child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
        .ok_or_else(|| io::Error::other("the process has no id"))
}

/// Tells a program that cannot be executed from a system that is out of something.
fn refused(program: &str, error: io::Error) -> CommandError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "the interpreter it asks for does not exist",
        io::ErrorKind::PermissionDenied => "it may not be executed",
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "it is neither a binary for this machine nor a script with a `#!` line"
        }
        _ => return CommandError::io(format!("start `{program}`"))(error),
    };
    CommandError::Missing {
        program: program.to_owned(),
        reason: reason.to_owned(),
    }
}
