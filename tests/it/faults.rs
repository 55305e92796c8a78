//! What happens when the disk fails, and when the process is killed, at any one operation on the disk: through the real program, by a shim between it and the system.
//!
//! Every verb that writes is played once for each operation that it does, undisturbed up to there. `GREENROOM_STRIDE=1` takes every operation; without it a
//! part of them is taken, so that each kind of job and disaster is met in each run of the tests.

mod full;
mod mending;
mod moving;
mod running;
mod sending;
mod shim;
mod syncing;
