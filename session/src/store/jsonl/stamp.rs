//! What tells that a file has not changed since it was read.

use std::{fs::Metadata, os::unix::fs::MetadataExt};

use rustix::time::{ClockId, clock_gettime};

/// A file's identity, size and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Two changes that lie closer together than this may bear the same time, in nanoseconds: a few ticks of a slow kernel's clock.
const GRAIN_NS: i128 = 50_000_000;
/// The same on file systems that keep whole seconds, or every second one.
const COARSE_GRAIN_NS: i128 = 2_000_000_000;

impl Stamp {
    pub(super) fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Tells whether any later change will show: the last one is older than the clock's grain. A time in the future is no proof either.
    pub(super) fn is_settled(&self) -> bool {
        let now = clock_gettime(ClockId::Realtime);
        self.is_settled_at((now.tv_sec, now.tv_nsec))
    }

    fn is_settled_at(&self, now: (i64, i64)) -> bool {
        let ns = |time: (i64, i64)| i128::from(time.0) * 1_000_000_000 + i128::from(time.1);
        let grain = if self.modified.1 == 0 && self.changed.1 == 0 { COARSE_GRAIN_NS } else { GRAIN_NS };
        ns(now) - ns(self.modified).max(ns(self.changed)) > grain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_trusted_only_when_it_is_older_than_the_grain_of_its_clock() {
        let stamp = |modified, changed| Stamp { device: 1, inode: 1, size: 1, modified, changed };
        let (old, fine) = ((99, 7), (100, 5_000_000));
        assert!(!stamp(old, fine).is_settled_at((100, 5_000_000)));
        assert!(!stamp(old, fine).is_settled_at((100, 55_000_000)));
        assert!(stamp(old, fine).is_settled_at((100, 55_000_001)));
        assert!(!stamp(fine, old).is_settled_at((100, 55_000_000)), "the younger of the two counts");
        assert!(!stamp((100, 0), (100, 0)).is_settled_at((102, 0)), "whole seconds");
        assert!(stamp((100, 0), (100, 0)).is_settled_at((102, 1)));
        assert!(!stamp(old, fine).is_settled_at((50, 0)), "the clock was put back");
    }
}
