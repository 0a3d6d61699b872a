//! Child side: sets limits on itself, reads a component, writes its code.

use std::error::Error as StdError;
use std::io::{self, Read, Write};

use rustix::process::{Resource, Rlimit, Signal, nice, setrlimit};
use thiserror::Error;
use wasmtime::Engine;

use super::REFUSED;
use crate::compiler_config::compiler_config;
use crate::component::MAX_BYTES;

/// Open files of a child: its pipes, and those of the allocator and the standard library.
const FILES: u64 = 64;
/// Niceness of a child: threads that serve requests go first.
const NICE: i32 = 10;

/// Error that ends a child early.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The process could not set its limits, and compiles nothing then.
    #[error("limit the compiler's process")]
    Limits(#[source] rustix::io::Errno),
    /// A pipe broke.
    #[error("take a component and give its code")]
    Pipe(#[source] io::Error),
    /// The engine did not start.
    #[error("start the compiler")]
    Engine(#[source] Box<dyn StdError + Send + Sync>),
    /// The component is refused.
    #[error(transparent)]
    Refused(Box<dyn StdError + Send + Sync>),
}

impl ServeError {
    /// Returns the exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => REFUSED,
            _ => 1,
        }
    }
}

/// Limits that a child sets on itself.
#[derive(Debug, Clone, Copy)]
pub struct CompileProcessLimits {
    /// Address space, in bytes.
    pub memory_bytes: u64,
    /// Private writable memory (`RLIMIT_DATA`), in bytes.
    pub data_bytes: u64,
    /// CPU time, in seconds.
    pub cpu_seconds: u64,
}

/// Runs the child: limits the process, compiles standard input, and writes the code to standard output.
///
/// # Errors
/// [`ServeError`]; the process should write it to standard error and exit with [`ServeError::exit_code`].
pub fn serve(limits: CompileProcessLimits) -> Result<(), ServeError> {
    limit(limits).map_err(ServeError::Limits)?;
    let mut bytes = Vec::new();
    let mut stdin = io::stdin().lock().take(MAX_BYTES as u64 + 1);
    stdin.read_to_end(&mut bytes).map_err(ServeError::Pipe)?;
    let engine = Engine::new(&compiler_config()).map_err(|error| ServeError::Engine(error.into()))?;
    let code = engine
        .precompile_component(&bytes)
        .map_err(|error| ServeError::Refused(error.into()))?;
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(&code)
        .and_then(|()| stdout.flush())
        .map_err(ServeError::Pipe)
}

/// Sets soft and hard limits, so that nothing can raise them again.
fn limit(limits: CompileProcessLimits) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let most = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Core, most(0))?;
    setrlimit(Resource::Fsize, most(0))?;
    setrlimit(Resource::Nofile, most(FILES))?;
    setrlimit(Resource::As, most(limits.memory_bytes))?;
    setrlimit(Resource::Data, most(limits.data_bytes))?;
    // The soft limit is a signal that the parent recognises; the hard limit kills.
    let cpu = Rlimit {
        current: Some(limits.cpu_seconds),
        maximum: Some(limits.cpu_seconds + 2),
    };
    setrlimit(Resource::Cpu, cpu)?;
    // If the container still runs out of memory, the kernel ends the child first. With `memory.oom.group`, which
    // Kubernetes sets, it ends the router too: hence the limit on data.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Best effort: without a lower priority the child runs all the same.
    let _ = nice(NICE);
    Ok(())
}
