//! Pinning threads, and the processes they start, to cores.

use std::process::{Child, Command};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Pins the calling thread to `core` (counted from 0); threads and processes that it starts later inherit this.
///
/// # Errors
/// Where the machine has no such core or this process may not use it.
pub fn pin_to(core: usize) -> Result<()> {
    pin_to_all(&[core])
}

fn pin_to_all(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &core in cores {
        anyhow::ensure!(
            core < CpuSet::MAX_CPU,
            "core {core} is beyond what Linux can name"
        );
        set.set(core);
    }
    sched_setaffinity(None, &set).with_context(|| {
        format!(
            "failed to pin to the cores {cores:?}: the bench needs two, see --load-core and --router-core"
        )
    })
}

/// Starts `command` pinned to `cores`; the calling thread stays where it is.
///
/// # Errors
/// Where a core may not be used or the command cannot be started.
pub fn spawn_on(cores: &[usize], command: &mut Command) -> Result<Child> {
    let own = sched_getaffinity(None).context("failed to read the affinity of this thread")?;
    pin_to_all(cores)?;
    let child = command.spawn();
    sched_setaffinity(None, &own).context("failed to restore the affinity of this thread")?;
    child.with_context(|| format!("failed to start `{}`", command.get_program().to_string_lossy()))
}
