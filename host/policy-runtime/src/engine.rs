//! The one wasmtime engine of the process, and every knob of it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use thiserror::Error;
use tracing::warn;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::bounds::CompileBounds;
use crate::child::{ChildCompiler, ChildError, Verdict};
use crate::code_cache::{CodeCache, CodeCacheStats};
use crate::component;
use crate::guest::Guest;
use crate::host_functions;
use crate::limits::{CORE_INSTANCES, MEMORIES, TABLE_ELEMENTS, TABLES};
use crate::load_error::LoadError;
use crate::machine_code::{self, Voucher};
use crate::ticker::Ticker;

/// Stack of a call, in bytes. It is taken from the calling thread, of whose stack (2 MiB) enough must be left.
const WASM_STACK: usize = 512 << 10;
/// Linear memory of a dropped instance that is zeroed and kept rather than given back to the system, in bytes:
/// enough for a compiled policy, so that a fresh instance faults no pages.
const KEEP_MEMORY: usize = 256 << 10;
/// The same for tables, in bytes.
const KEEP_TABLE: usize = 64 << 10;
/// Host-side bookkeeping of one instance, in bytes; componentised Python needs more than the default of 1 MiB.
const INSTANCE_BYTES: usize = 4 << 20;

/// Policies that there is room for, each on every core: the 16 scorers of one pipeline and eight others, all of them asked as
/// shadows too, with a state of their own.
const POLICIES: u32 = 2 * (16 + 8);

/// Sizes of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Instances of one policy, and so the threads it can decide on at once; the next one is told
    /// [`routing::FaultKind::NoInstance`].
    pub instances_per_policy: u32,
    /// Instances of all policies, of those on trial and of those on their way out. What more would need is
    /// [`routing::FaultKind::NoInstance`], too. Each takes address space, and memory only where it is in use.
    pub instances: u32,
    /// Most linear memory that [`crate::PolicySettings::memory_bytes`] can ask for, in bytes.
    pub memory_bytes: usize,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self::of_cores(thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }
}

impl EngineLimits {
    /// For every core two instances of a policy, and one that is told events, and room for [`POLICIES`] of them. From 64 cores on that is
    /// 12,384 memories of 4 GiB of address space: 48 TiB of the 128 that a process of 47 bits has.
    fn of_cores(cores: usize) -> Self {
        let per_policy = u32::try_from(cores * 2).unwrap_or(u32::MAX).clamp(4, 128);
        Self {
            instances_per_policy: per_policy,
            instances: (per_policy + 1) * POLICIES,
            memory_bytes: 256 << 20,
        }
    }
}

/// The engine could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// This machine or these limits do not allow it.
    #[error("start the WebAssembly engine with room for {instances} instances")]
    Start {
        /// From [`EngineLimits::instances`].
        instances: u32,
        /// As wasmtime has it.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// No thread for the epoch.
    #[error("start the thread that watches over policies' time")]
    Ticker(#[source] io::Error),
}

/// Compiles components and owns what all their instances share. Cheap to clone.
#[derive(Clone)]
pub struct PolicyEngine {
    pub(crate) engine: Engine,
    pub(crate) linker: Arc<Linker<Guest>>,
    pub(crate) limits: EngineLimits,
    pub(crate) ticker: Arc<Ticker>,
    cache: Option<Arc<CodeCache>>,
    bounds: CompileBounds,
    /// Who compiles; none: this process itself.
    child: Option<Arc<ChildCompiler>>,
}

impl PolicyEngine {
    /// Starts the engine and its ticking thread, which ends with the last clone and the last policy.
    ///
    /// # Errors
    /// [`EngineError`] where the system grants no address space or no thread.
    pub fn new(limits: EngineLimits) -> Result<Self, EngineError> {
        let (engine, linker) = start(limits).map_err(|error| EngineError::Start {
            instances: limits.instances,
            source: error.into(),
        })?;
        // Weak: an engine's address space is given back with the last who uses it, not a tick later.
        let epoch = engine.weak();
        let tick = move || {
            if let Some(engine) = epoch.upgrade() {
                engine.increment_epoch();
            }
        };
        let ticker = Ticker::start(tick).map_err(EngineError::Ticker)?;
        Ok(Self {
            engine,
            linker: Arc::new(linker),
            limits,
            ticker: Arc::new(ticker),
            cache: None,
            bounds: CompileBounds::default(),
            child: None,
        })
    }

    /// The same, which takes compiled code from a folder, and keeps there what it compiles.
    #[must_use]
    pub fn with_cache(mut self, cache: CodeCache) -> Self {
        self.cache = Some(Arc::new(cache));
        self
    }

    /// The same with other bounds on what is compiled.
    #[must_use]
    pub fn with_bounds(mut self, bounds: CompileBounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// The same, which has children of this process compile.
    #[must_use]
    pub fn with_child(mut self, child: ChildCompiler) -> Self {
        self.child = Some(Arc::new(child));
        self
    }

    /// Bytes as a compiled component.
    pub(crate) fn compile(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        let Some(cache) = &self.cache else {
            return self.compile_anew(bytes);
        };
        if let Some(component) = cache.get(&self.engine, bytes) {
            return Ok(component);
        }
        let (component, code) = self.compile_to_code(bytes)?;
        if let Err(error) = self.keep(cache, bytes, (&component, code)) {
            warn!(
                error = &*error as &dyn StdError,
                "a compiled policy is not kept on disk"
            );
        }
        Ok(component)
    }

    /// The same without a look at what was compiled before.
    pub(crate) fn compile_anew(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        Ok(self.compile_to_code(bytes)?.0)
    }

    /// The same with its code, where that is at hand.
    fn compile_to_code(&self, bytes: &[u8]) -> Result<(Component, Option<Vec<u8>>), LoadError> {
        component::recognise(bytes)?;
        self.bounds.check(bytes)?;
        let Some(child) = &self.child else {
            return Ok((component::compile(&self.engine, bytes)?, None));
        };
        match child.compile(bytes).map_err(LoadError::Compiler)? {
            Verdict::Code(code) => {
                let component = machine_code::restore(&self.engine, &code, Voucher::Child)
                    .map_err(|error| LoadError::Compiler(ChildError::OtherEngine(error.into())))?;
                Ok((component, Some(code)))
            }
            Verdict::Refused(why) => Err(LoadError::Malformed {
                bytes: bytes.len(),
                source: why.into(),
            }),
        }
    }

    fn keep(
        &self,
        cache: &CodeCache,
        bytes: &[u8],
        (component, code): (&Component, Option<Vec<u8>>),
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let code = match code {
            Some(code) => code,
            None => component.serialize()?,
        };
        Ok(cache.put(&self.engine, bytes, &code)?)
    }

    /// What came of the components that children were given, by name; none where this process compiles.
    #[must_use]
    pub fn child_results(&self) -> Option<Vec<(&'static str, u64)>> {
        self.child.as_ref().map(|child| child.results())
    }

    /// What became of the files of its cache; none where it has none.
    #[must_use]
    pub fn cache_stats(&self) -> Option<CodeCacheStats> {
        self.cache.as_ref().map(|cache| cache.stats())
    }
}

impl fmt::Debug for PolicyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyEngine")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn start(limits: EngineLimits) -> wasmtime::Result<(Engine, Linker<Guest>)> {
    let engine = Engine::new(&config(limits))?;
    let mut linker = Linker::new(&engine);
    host_functions::link(&mut linker)?;
    Ok((engine, linker))
}

fn config(limits: EngineLimits) -> Config {
    let mut config = compiler_config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling(limits)));
    config
}

/// Everything that machine code depends on. How instances are allocated is not among it.
pub(crate) fn compiler_config() -> Config {
    let mut config = Config::new();
    config
        // Loops and function entries look at a counter, which costs a policy of this size nothing that could be
        // measured; fuel costs the same and counts instructions, not time. See budget.rs for what follows a tick.
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK)
        // The same answer on every machine, for replay: one bit pattern for NaN (a sort by `total_cmp` sees its
        // sign, which x86 and ARM set differently), one result for relaxed SIMD.
        // (Threads, the other source of chance, are not compiled in.)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    config
}

/// A slot for everything an instance consists of, reserved at start: a fresh instance takes microseconds, and a
/// leak of instances ends in an error instead of in the system's memory. Reserved is address space, not memory.
fn pooling(limits: EngineLimits) -> PoolingAllocationConfig {
    let instances = limits.instances;
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_component_instances(instances)
        // What one component may consist of (see limits.rs) ...
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_component_instance_size(INSTANCE_BYTES)
        .max_core_instance_size(INSTANCE_BYTES)
        .max_memory_size(limits.memory_bytes)
        .table_elements(TABLE_ELEMENTS)
        // ... and all of them together: most have three core instances, one memory and two tables.
        .total_core_instances(instances.saturating_mul(8).max(CORE_INSTANCES))
        .total_memories(instances.saturating_mul(2).max(MEMORIES))
        .total_tables(instances.saturating_mul(4).max(TABLES))
        // A slot is best reused by the component that had it last: by one that faulted. A component that was swapped out never
        // comes back, and each one loaded is another to the engine: what is kept for those is lost.
        .max_unused_warm_slots(limits.instances_per_policy)
        .linear_memory_keep_resident(KEEP_MEMORY)
        .table_keep_resident(KEEP_TABLE);
    pooling
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::path::Path;

    use super::*;
    use crate::PolicySettings;

    #[test]
    fn starts_with_room_for_every_policy_on_every_core_and_keeps_to_the_address_space() {
        for cores in [1, 2, 16, 64, 512] {
            let limits = EngineLimits::of_cores(cores);
            let instances = limits.instances_per_policy + 1;
            assert!(instances as usize > cores.min(128), "{cores} cores");
            assert_eq!(limits.instances / instances, POLICIES, "{cores} cores");
            // Memories of 4 GiB in half of 47 bits.
            assert!(u64::from(limits.instances) * 2 < 1 << (46 - 32), "{cores} cores");
            PolicyEngine::new(limits).unwrap();
        }
    }

    #[test]
    fn code_is_the_same_whether_the_engine_that_compiles_has_room_for_instances_or_not() {
        let hash = |config: &Config| {
            let engine = Engine::new(config).unwrap();
            let mut hasher = DefaultHasher::new();
            engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(&compiler_config()), hash(&config(EngineLimits::default())));
    }

    #[test]
    fn keeps_no_memory_for_components_that_were_swapped_out() {
        let limits = EngineLimits {
            instances_per_policy: 4,
            instances: 64,
            memory_bytes: 64 << 20,
        };
        let engine = PolicyEngine::new(limits).unwrap();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/prebuilt/round-robin.wasm");
        let bytes = std::fs::read(file).unwrap();
        for _ in 0..12 {
            let settings = PolicySettings::default();
            engine.load("swapped", &bytes, &settings, Arc::default()).unwrap();
        }
        let metrics = engine.engine.pooling_allocator_metrics().unwrap();
        let kept = metrics.unused_warm_memories();
        assert!((1..=4).contains(&kept), "{kept} memories are kept");
    }
}
