//! The peak of a process's memory.

/// Returns the most memory in bytes that a process has had resident since it was started: this one if `None`. `None` where the system does not tell.
///
/// The kernel counts it per program, so what a parent had before it started this one does not count.
pub(super) fn peak_rss(process: Option<u32>) -> Option<u64> {
    let path = process.map_or_else(|| "/proc/self/status".to_owned(), |id| format!("/proc/{id}/status"));
    let status = std::fs::read_to_string(path).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_a_peak_and_no_process_has_none() {
        assert!(peak_rss(None).unwrap() > 1 << 20);
        assert_eq!(peak_rss(Some(std::process::id())).map(|peak| peak > 1 << 20), Some(true));
        assert_eq!(peak_rss(Some(u32::MAX)), None);
    }
}
