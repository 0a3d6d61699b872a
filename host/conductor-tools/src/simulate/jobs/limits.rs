//! Limits that the process of a job sets on itself.

use rustix::process::{Resource, Rlimit, Signal, nice, setrlimit};
use thiserror::Error;

/// Memory in bytes. The address space of policies' instances is reserved, and does not count.
const MEMORY: u64 = 2 << 30;
/// CPU time in seconds.
const CPU: u64 = 600;
/// Niceness: threads that serve requests go first.
const NICE: i32 = 15;

/// The process could not limit itself, and simulates nothing then.
#[derive(Debug, Error)]
#[error("limit the process of a simulation")]
pub(in crate::simulate) struct JobLimitError(#[source] rustix::io::Errno);

/// Limits this process, which ends with its parent.
pub(in crate::simulate) fn limit_process() -> Result<(), JobLimitError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(JobLimitError)?;
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Data, MEMORY),
        (Resource::Cpu, CPU),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(JobLimitError)?;
    }
    // If a container's memory ends before the limit, the kernel kills this process and not the router.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Best effort: without a lower priority it runs all the same.
    let _ = nice(NICE);
    Ok(())
}
