//! Limits that the process of a job sets on itself.

use rustix::process::{Resource, Rlimit, Signal, nice, setrlimit};
use thiserror::Error;

/// Most private writable memory (`RLIMIT_DATA`), in bytes. The address space of policies' instances is reserved, and
/// does not count.
const MEMORY: u64 = 2 << 30;
/// Least memory in bytes with which a simulation begins.
const LEAST: u64 = 128 << 20;
/// CPU time in seconds.
const CPU: u64 = 600;
/// Niceness: threads that serve requests go first.
const NICE: i32 = 15;

/// The process could not limit itself, and simulates nothing then.
#[derive(Debug, Error)]
pub(in crate::simulate) enum JobLimitError {
    /// The system sets no limit.
    #[error("limit the process of a simulation")]
    System(#[source] rustix::io::Errno),
    /// The memory limit of the control group leaves too little.
    #[error(
        "start a simulation: the memory limit of the container leaves {room} bytes for it, and it needs {LEAST}: raise \
         the limit, or repeat it when the router uses less"
    )]
    Room {
        /// Bytes below the limit that are left for the process.
        room: u64,
    },
}

/// Limits this process, which ends with its parent.
pub(in crate::simulate) fn limit_process() -> Result<(), JobLimitError> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(JobLimitError::System)?;
    let memory = memory(process_resources::room_for_child())?;
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Data, memory),
        (Resource::Cpu, CPU),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(JobLimitError::System)?;
    }
    // If the container still runs out of memory, the kernel ends this process first. With `memory.oom.group`, which
    // Kubernetes sets, it ends the router too: hence the limit on data.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Best effort: without a lower priority it runs all the same.
    let _ = nice(NICE);
    Ok(())
}

/// Returns the limit of the memory, for the room below the limit of the control group.
fn memory(room: Option<u64>) -> Result<u64, JobLimitError> {
    match room {
        Some(room) if room < LEAST => Err(JobLimitError::Room { room }),
        Some(room) => Ok(room.min(MEMORY)),
        None => Ok(MEMORY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulation_stays_within_the_room_below_the_memory_limit_and_does_not_begin_with_too_little() {
        assert_eq!(memory(None).unwrap(), MEMORY);
        assert_eq!(memory(Some(MEMORY + 1)).unwrap(), MEMORY);
        assert_eq!(memory(Some(512 << 20)).unwrap(), 512 << 20);
        let refused = memory(Some(LEAST - 1)).unwrap_err().to_string();
        assert!(
            refused.contains("134217727") && refused.contains("134217728"),
            "{refused}"
        );
    }
}
