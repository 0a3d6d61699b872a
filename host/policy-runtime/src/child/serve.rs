//! The child's part: limits on itself, a component in, its code out.

use std::error::Error as StdError;
use std::io::{self, Read, Write};

use rustix::process::{Resource, Rlimit, Signal, nice, setrlimit};
use thiserror::Error;
use wasmtime::Engine;

use super::REFUSED;
use crate::component::MAX_BYTES;
use crate::engine::compiler_config;

/// Files that a child may have open: its pipes, and what the allocator and the standard library look up.
const FILES: u64 = 64;
/// How much a child stands back behind threads that serve.
const NICE: i32 = 10;

/// What ends a child early.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It could not limit itself, and compiles nothing then.
    #[error("limit the compiler's process")]
    Limits(#[source] rustix::io::Errno),
    /// A pipe broke.
    #[error("take a component and give its code")]
    Pipe(#[source] io::Error),
    /// No engine.
    #[error("start the compiler")]
    Engine(#[source] Box<dyn StdError + Send + Sync>),
    /// The component is no good.
    #[error(transparent)]
    Refused(Box<dyn StdError + Send + Sync>),
}

impl ServeError {
    /// What the process should end with.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => REFUSED,
            _ => 1,
        }
    }
}

/// An error with what caused it, on one line.
#[must_use]
pub fn words(error: &dyn StdError) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

/// The child's part: limits the process, compiles standard input, and gives the code on standard output.
///
/// # Errors
/// [`ServeError`]; the process should say it on standard error and end with [`ServeError::exit_code`].
pub fn serve(memory_bytes: u64, cpu_seconds: u64) -> Result<(), ServeError> {
    limit(memory_bytes, cpu_seconds).map_err(ServeError::Limits)?;
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

/// Nothing takes these back: the hard limits are set as well.
fn limit(memory_bytes: u64, cpu_seconds: u64) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let most = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::Core, most(0))?;
    setrlimit(Resource::Fsize, most(0))?;
    setrlimit(Resource::Nofile, most(FILES))?;
    setrlimit(Resource::As, most(memory_bytes))?;
    // The first is a signal by which the parent knows it, the second kills.
    let cpu = Rlimit {
        current: Some(cpu_seconds),
        maximum: Some(cpu_seconds + 2),
    };
    setrlimit(Resource::Cpu, cpu)?;
    // Where a container's memory ends before the limit, the kernel takes the child and not the router.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Standing back is a courtesy: where it is refused, the child runs all the same.
    let _ = nice(NICE);
    Ok(())
}
