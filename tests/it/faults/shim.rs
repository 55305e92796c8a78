//! The shim of `tests/shim/disk.c`: built once, and given its orders.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::LazyLock,
};

/// Where the shim is; it is built with the C compiler that SQLite needs, too.
static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, built) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim/disk.c"), folder.join("disk.so"));
    // Another run of the tests may build it at the same time.
    let own = folder.join(format!("disk-{}.so", std::process::id()));
    let done = Command::new("cc").args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&own).arg(source).arg("-ldl").status();
    assert!(done.expect("a C compiler").success(), "the shim is not built");
    fs::rename(own, &built).unwrap();
    built
});

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It fails once.
    Eio,
    /// The disk is full for once.
    Enospc,
    /// Half of it is written; what writes nothing fails.
    Short,
    /// It fails, and all that follow fail.
    EioForGood,
    /// The disk is full, and stays so.
    EnospcForGood,
    /// It takes its time.
    Delay,
    /// The process is killed before it.
    Kill,
    /// The process is killed after it.
    KilledAfter,
}

impl How {
    pub(crate) const ALL: [Self; 8] = [Self::Eio, Self::Kill, Self::Enospc, Self::KilledAfter, Self::Short, Self::EioForGood, Self::Delay, Self::EnospcForGood];

    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::Kill | Self::KilledAfter)
    }

    fn order(self) -> (&'static str, u32) {
        match self {
            Self::Eio => ("eio", 1),
            Self::Enospc => ("enospc", 1),
            Self::Short => ("short", 1),
            Self::EioForGood => ("eio", 0),
            Self::EnospcForGood => ("enospc", 0),
            Self::Delay => ("delay", 1),
            Self::Kill => ("kill", 1),
            Self::KilledAfter => ("killed-after", 1),
        }
    }
}

/// One disaster: which operation, and what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disaster {
    pub(crate) at: usize,
    pub(crate) how: How,
}

impl fmt::Display for Disaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at operation {}", self.how, self.at)
    }
}

/// Puts the shim between a program and what it does below a folder.
pub(crate) fn under(mut command: Command, folder: &Path, disaster: Disaster) -> Command {
    let (how, times) = disaster.how.order();
    command.env("LD_PRELOAD", &*SHIM).env("SHIM_UNDER", folder.canonicalize().unwrap());
    command.env("SHIM_AT", disaster.at.to_string()).env("SHIM_HOW", how).env("SHIM_TIMES", times.to_string());
    command
}

/// Counts what a program does to its disk below a folder.
pub(crate) fn operations(mut command: Command, folder: &Path) -> usize {
    let log = tempfile::NamedTempFile::new().unwrap();
    command.env("LD_PRELOAD", &*SHIM).env("SHIM_UNDER", folder.canonicalize().unwrap()).env("SHIM_LOG", log.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::read(log.path()).unwrap().len()
}

/// What a program has done to its disk, or said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    /// It has made a file or a folder, or given one another name.
    Named(PathBuf),
    /// It has taken a name away.
    Gone(PathBuf),
    /// It has written to a file.
    Written(PathBuf),
    /// It has cut a file.
    Cut(PathBuf),
    /// It has waited until the disk had a file, or the names of a folder.
    Synced(PathBuf),
    /// It has said something on stdout.
    Said,
}

/// Runs a program, and tells what it has done to its disk below a folder, and when it has said something.
pub(crate) fn done(mut command: Command, folder: &Path) -> (Output, Vec<Deed>) {
    let trace = tempfile::NamedTempFile::new().unwrap();
    command.env("LD_PRELOAD", &*SHIM).env("SHIM_UNDER", folder.canonicalize().unwrap()).env("SHIM_TRACE", trace.path());
    let output = command.output().unwrap();
    let deed = |line: &str| {
        let (kind, path) = line.split_once(' ').unwrap();
        let path = PathBuf::from(path);
        match kind {
            "w" => Deed::Written(path),
            "t" => Deed::Cut(path),
            "s" => Deed::Synced(path),
            "a" => Deed::Said,
            "u" => Deed::Gone(path),
            _ => Deed::Named(path),
        }
    };
    let deeds = fs::read_to_string(trace.path()).unwrap().lines().map(deed).collect();
    (output, deeds)
}

/// The same of a program that succeeds.
pub(crate) fn deeds(command: Command, folder: &Path) -> Vec<Deed> {
    let (output, deeds) = done(command, folder);
    assert!(output.status.success(), "{output:?}");
    deeds
}

/// The disasters that one run of the tests takes: all of them under `GREENROOM_STRIDE=1`, else each so-manieth, so that all kinds come in turn.
pub(crate) fn disasters(operations: usize, stride: usize) -> Vec<Disaster> {
    let stride = std::env::var("GREENROOM_STRIDE").map_or(stride, |text| text.parse().unwrap());
    assert!(stride % 2 == 1, "an even stride meets the same kinds only");
    let all = (0..operations).flat_map(|at| How::ALL.map(|how| Disaster { at, how }));
    all.step_by(stride).collect()
}

/// Plays every disaster, and tells of all of which the judgement fails.
pub(crate) fn judged(disasters: &[Disaster], judge: impl Fn(Disaster)) {
    let is_bad = |disaster: &&Disaster| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| judge(**disaster))).is_err();
    let bad: Vec<String> = disasters.iter().filter(is_bad).map(Disaster::to_string).collect();
    eprintln!("{} cases", disasters.len());
    assert!(bad.is_empty(), "{} of {} cases, each told of above: {}", bad.len(), disasters.len(), bad.join(", "));
}
