//! Commands: one program, run once, for one turn.
//!
//! A command gets its request on standard input and gives its answer on standard output.
//! [`run`] owns everything between: the environment, the process group, the lock that keeps
//! two attempts apart, the bounds on time and output. [`Answer`] reads what came back.
//!
//! It never retries and knows nothing of sessions: whoever calls it records the answer and
//! decides what a failure means. Every failure is a [`CommandError`] with a stable code.
//!
//! # How a command is kept from outliving the runtime
//!
//! Two children are started for each run, and both are direct children of the runtime:
//!
//! 1. the *guard*, a `/bin/sh` that leads a new process group and reads a pipe, the *lifeline*,
//!    whose only writing end is held by the runtime;
//! 2. the command itself, which joins that group.
//!
//! When the runtime ends in whatever way, also by `SIGKILL`, the kernel closes the lifeline, the
//! guard reads the end of file and kills the group, itself included. The lifeline is closed on
//! exec, so that no command can hold it open. A run that is cancelled, dropped, or out of its
//! bounds is ended in the same way.
//!
//! The request is written into the *lock file*, and that open file is the command's standard
//! input. So it can be as large as it likes, a command that never reads it is no error, and the
//! command holds the lock simply by living: an `flock` belongs to the open file, not to a process.
//! The guard holds it too, for the sake of children that were given another standard input.
//! No file, or one that can be locked, therefore means that the attempt before is dead. The file is
//! removed when the run ends; after a crash it keeps the last request until the next run.
//!
//! Neither child needs code between `fork` and `exec`, so that the standard library starts both
//! by `posix_spawn`. A plain `fork` copies the page tables and takes longer the larger the
//! runtime is: 2.6 ms at 50 MiB and 8 ms at 200 MiB where `posix_spawn` takes 0.5 ms.
//!
//! # Limits
//!
//! Unix only; tested on Linux. A process that leaves the group by `setsid` or `setpgid` and has
//! another standard input than the command is not killed with it. Those that kept the standard
//! input (a `timeout` within a script, say) are found, by the guard or at the end of the run, but
//! only where there is a `/proc`.

mod answer;
mod error;
mod guard;
mod lock;
mod ranked;
mod run;
mod spec;
mod tail;
#[cfg(test)]
mod tests;

pub use answer::{Answer, AnswerMode, Delegate, End, Outgoing};
pub use error::CommandError;
pub(crate) use ranked::take_turn;
pub(crate) use run::run_held;
pub use run::{CommandOutput, run};
pub use spec::{CommandSpec, DEFAULT_MAX_STDOUT_BYTES};
