//! Resident memory of the process.

/// Returns the resident memory in bytes; `None` if the system does not report it. Takes some microseconds.
#[cfg(target_os = "linux")]
pub(super) fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    pages(&text)?.checked_mul(page)
}

/// Not available on other systems.
#[cfg(not(target_os = "linux"))]
pub(super) fn resident() -> Option<u64> {
    None
}

/// Parses the second field of `statm` (proc_pid_statm(5)).
#[cfg(target_os = "linux")]
fn pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_some_memory() {
        assert_eq!(pages("1000 250 30 1 0 90 0\n"), Some(250));
        assert_eq!(pages(""), None);
        assert!(resident().unwrap() > 1 << 20);
    }
}
