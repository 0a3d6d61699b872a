//! `[policy-compile]`: limits of compiling a component.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::document::section::Section;

/// `[policy-compile]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyCompileConfig {
    /// Functions of one component.
    pub functions: u64,
    /// Bytes of one function.
    pub function_size: u64,
    /// Locals of one function.
    pub function_locals: u64,
    /// Address space of the compiler process, in bytes.
    pub memory: u64,
    /// CPU time.
    pub cpu: Duration,
    /// Real time.
    pub time: Duration,
}

impl Default for PolicyCompileConfig {
    fn default() -> Self {
        Self {
            functions: 100_000,
            function_size: 1 << 20,
            function_locals: 10_000,
            memory: 2 << 30,
            cpu: Duration::from_secs(120),
            time: Duration::from_secs(300),
        }
    }
}

const FUNCTIONS: RangeInclusive<u64> = 100..=1_000_000;
const FUNCTION_SIZES: RangeInclusive<u64> = (4 << 10)..=(7 << 20);
/// The format allows no more.
const FUNCTION_LOCALS: RangeInclusive<u64> = 100..=50_000;

const MEMORY: RangeInclusive<u64> = (256 << 20)..=(64 << 30);
const TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);

pub(crate) fn read(section: Option<Section<'_>>) -> PolicyCompileConfig {
    let default = PolicyCompileConfig::default();
    let Some(mut section) = section else {
        return default;
    };
    let config = PolicyCompileConfig {
        functions: section.count("functions", default.functions, FUNCTIONS),
        function_size: section.size("function-size", default.function_size, FUNCTION_SIZES),
        function_locals: section.count("function-locals", default.function_locals, FUNCTION_LOCALS),
        memory: section.size("memory", default.memory, MEMORY),
        cpu: section.duration("cpu", default.cpu, TIMES),
        time: section.duration("time", default.time, TIMES),
    };
    section.finish();
    config
}
