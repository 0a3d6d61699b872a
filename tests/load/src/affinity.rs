//! Pinning threads, and the processes they start, to one core.

use std::process::{Child, Command};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to `core` (counted from 0); threads and processes that it starts later inherit this.
///
/// # Errors
/// Where the machine has no such core or this process may not use it.
pub fn pin_to(core: usize) -> Result<()> {
    anyhow::ensure!(
        core < CpuSet::MAX_CPU,
        "core {core} is beyond what Linux can name"
    );
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| {
        format!("failed to pin to core {core}: the bench needs two cores, see --load-core and --router-core")
    })
}

/// Starts `command` pinned to `core`; the calling thread stays where it is.
///
/// # Errors
/// Where the core may not be used or the command cannot be started.
pub fn spawn_on(core: usize, command: &mut Command) -> Result<Child> {
    let own = sched_getaffinity(None).context("failed to read the affinity of this thread")?;
    pin_to(core)?;
    let child = command.spawn();
    sched_setaffinity(None, &own).context("failed to restore the affinity of this thread")?;
    child.with_context(|| format!("failed to start `{}`", command.get_program().to_string_lossy()))
}
