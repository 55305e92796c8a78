//! Clocks and middle values.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// What a measurement returns; it stops at the first error.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a stretch of work took: time on the wall, and time of all threads of this process on a processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Spent {
    /// Returns nanoseconds on the wall for each of `count`.
    pub(crate) fn wall_ns(&self, count: usize) -> f64 {
        self.wall.as_secs_f64() * 1e9 / to_f64(count)
    }

    /// Returns nanoseconds on a processor for each of `count`.
    pub(crate) fn cpu_ns(&self, count: usize) -> f64 {
        self.cpu.as_secs_f64() * 1e9 / to_f64(count)
    }
}

impl Spent {
    /// Returns the middle of several runs of the same work, each time by itself.
    pub(crate) fn middle(runs: &[Self]) -> Self {
        let middle = |of: fn(&Self) -> Duration| {
            let mut times: Vec<Duration> = runs.iter().map(of).collect();
            times.sort();
            times.get(times.len() / 2).copied().unwrap_or_default()
        };
        Self { wall: middle(|spent| spent.wall), cpu: middle(|spent| spent.cpu) }
    }
}

/// Takes the time of what comes next.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    wall: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { cpu: cpu_time(), wall: Instant::now() }
    }

    pub(crate) fn stop(&self) -> Spent {
        Spent { wall: self.wall.elapsed(), cpu: cpu_time().saturating_sub(self.cpu) }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the bytes of this process that are in memory.
pub(crate) fn resident_bytes() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kilobytes * 1024.0)
}

/// Returns the middle value.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

/// Returns the value below which a share of the values lies.
pub(crate) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is an index")]
    let at = (to_f64(values.len().saturating_sub(1)) * share) as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn to_f64(count: usize) -> f64 {
    count as f64
}

/// Makes the async runtime that every measurement uses: two workers.
pub(crate) fn two_workers() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}
