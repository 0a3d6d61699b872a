//! WebAssembly engine: the only wasmtime engine of the process, with all its settings.

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
use crate::child::{ChildCompiler, ChildError, CompileVerdict};
use crate::code_cache::{CodeCache, CodeCacheStats};
use crate::compiler_config::compiler_config;
use crate::component;
use crate::guest::GuestState;
use crate::host_functions;
use crate::limits::{CORE_INSTANCES, MEMORIES, TABLE_ELEMENTS, TABLES};
use crate::load_error::LoadError;
use crate::machine_code::{self, Voucher};
use crate::ticker::EpochTicker;

/// Linear memory of a dropped instance that is zeroed and kept instead of returned to the system, in bytes. It is
/// enough for a compiled policy, so a new instance causes no page faults.
const KEEP_MEMORY: usize = 256 << 10;
/// Kept tables, in bytes.
const KEEP_TABLE: usize = 64 << 10;
/// Host-side bookkeeping of one instance, in bytes; componentised Python needs more than the default of 1 MiB.
const INSTANCE_BYTES: usize = 4 << 20;

/// Policies to reserve space for, each on every core: the 16 scorers of one pipeline and eight others, and all of them
/// again as shadows with a state of their own.
const POLICIES: u32 = 2 * (16 + 8);

/// Sizes of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineLimits {
    /// Instances of one policy, and so the threads it can decide on at once. A further thread gets
    /// [`routing::FaultKind::NoInstance`].
    pub instances_per_policy: u32,
    /// Instances of all policies, including policies under trial and replaced ones. Further ones get
    /// [`routing::FaultKind::NoInstance`]. Each reserves address space, and memory only while in use.
    pub instances: u32,
    /// Upper limit of [`crate::PolicySettings::memory_bytes`], in bytes.
    pub memory_bytes: usize,
}

impl Default for EngineLimits {
    fn default() -> Self {
        Self::of_cores(thread::available_parallelism().map_or(1, NonZeroUsize::get))
    }
}

impl EngineLimits {
    /// Returns limits of two instances per core and policy, one for events, and space for [`POLICIES`] policies. From
    /// 64 cores on that is 12,384 memories of 4 GiB of address space: 48 TiB of the 128 TiB of a process with 47 bits.
    fn of_cores(cores: usize) -> Self {
        let per_policy = u32::try_from(cores * 2).unwrap_or(u32::MAX).clamp(4, 128);
        Self {
            instances_per_policy: per_policy,
            instances: (per_policy + 1) * POLICIES,
            memory_bytes: 256 << 20,
        }
    }
}

/// Error of starting the engine.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The machine or these limits do not allow an engine.
    #[error("start the WebAssembly engine with room for {instances} instances")]
    Start {
        /// Value of [`EngineLimits::instances`].
        instances: u32,
        /// wasmtime's error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The epoch thread cannot be started.
    #[error("start the thread that limits policies' time")]
    Ticker(#[source] io::Error),
}

/// Compiles components and owns the resources shared by their instances. Cheap to clone.
#[derive(Clone)]
pub struct PolicyEngine {
    pub(crate) engine: Engine,
    pub(crate) linker: Arc<Linker<GuestState>>,
    pub(crate) limits: EngineLimits,
    pub(crate) ticker: Arc<EpochTicker>,
    cache: Option<Arc<CodeCache>>,
    bounds: CompileBounds,
    /// Compiler process; `None` compiles in this process.
    child: Option<Arc<ChildCompiler>>,
}

impl PolicyEngine {
    /// Starts the engine and its epoch thread, which ends with the last clone and the last policy.
    ///
    /// # Errors
    /// [`EngineError`] if the system grants no address space or no thread.
    pub fn new(limits: EngineLimits) -> Result<Self, EngineError> {
        let (engine, linker) = start(limits).map_err(|error| EngineError::Start {
            instances: limits.instances,
            source: error.into(),
        })?;
        // Weak: the address space is freed with the last user, not a tick later.
        let epoch = engine.weak();
        let tick = move || {
            if let Some(engine) = epoch.upgrade() {
                engine.increment_epoch();
            }
        };
        let ticker = EpochTicker::start(tick).map_err(EngineError::Ticker)?;
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

    /// Sets a folder as cache of compiled code.
    #[must_use]
    pub fn with_cache(mut self, cache: CodeCache) -> Self {
        self.cache = Some(Arc::new(cache));
        self
    }

    /// Sets the compile bounds.
    #[must_use]
    pub fn with_bounds(mut self, bounds: CompileBounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Sets child processes as compiler.
    #[must_use]
    pub fn with_child(mut self, child: ChildCompiler) -> Self {
        self.child = Some(Arc::new(child));
        self
    }

    /// Returns the compiled component, from the cache if possible.
    pub(crate) fn compile(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        let Some(cache) = &self.cache else {
            return self.compile_uncached(bytes);
        };
        if let Some(component) = cache.get(&self.engine, bytes) {
            return Ok(component);
        }
        let (component, code) = self.compile_to_code(bytes)?;
        if let Err(error) = self.keep(cache, bytes, &component, code) {
            warn!(
                error = &*error as &dyn StdError,
                "a compiled policy is not kept on disk"
            );
        }
        Ok(component)
    }

    /// Compiles the component without looking at the cache.
    pub(crate) fn compile_uncached(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        Ok(self.compile_to_code(bytes)?.0)
    }

    /// Compiles the component; returns its code too, if available.
    fn compile_to_code(&self, bytes: &[u8]) -> Result<(Component, Option<Vec<u8>>), LoadError> {
        component::recognise(bytes)?;
        self.bounds.check(bytes)?;
        let Some(child) = &self.child else {
            return Ok((component::compile(&self.engine, bytes)?, None));
        };
        match child.compile(bytes).map_err(LoadError::Compiler)? {
            CompileVerdict::Code(code) => {
                let component = machine_code::restore(&self.engine, &code, Voucher::Child)
                    .map_err(|error| LoadError::Compiler(ChildError::OtherEngine(error.into())))?;
                Ok((component, Some(code)))
            }
            CompileVerdict::Refused(why) => Err(LoadError::Malformed {
                bytes: bytes.len(),
                source: why.into(),
            }),
        }
    }

    fn keep(
        &self,
        cache: &CodeCache,
        bytes: &[u8],
        component: &Component,
        code: Option<Vec<u8>>,
    ) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let code = match code {
            Some(code) => code,
            None => component.serialize()?,
        };
        Ok(cache.put(&self.engine, bytes, &code)?)
    }

    /// Returns the results of child processes by name; `None` if this process compiles.
    #[must_use]
    pub fn child_results(&self) -> Option<Vec<(&'static str, u64)>> {
        self.child.as_ref().map(|child| child.results())
    }

    /// Returns the counters of the code cache; `None` without a cache.
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

fn start(limits: EngineLimits) -> wasmtime::Result<(Engine, Linker<GuestState>)> {
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

/// Reserves a slot for every part of an instance at start. A new instance takes microseconds, and a leak of instances
/// ends in an error instead of exhausting memory. The reservation is address space, not memory.
fn pooling(limits: EngineLimits) -> PoolingAllocationConfig {
    let instances = limits.instances;
    let mut pooling = PoolingAllocationConfig::new();
    pooling
        .total_component_instances(instances)
        // Limits of one component (see limits.rs) ...
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_component_instance_size(INSTANCE_BYTES)
        .max_core_instance_size(INSTANCE_BYTES)
        .max_memory_size(limits.memory_bytes)
        .table_elements(TABLE_ELEMENTS)
        // ... and of all together: most have three core instances, one memory and two tables.
        .total_core_instances(instances.saturating_mul(8).max(CORE_INSTANCES))
        .total_memories(instances.saturating_mul(2).max(MEMORIES))
        .total_tables(instances.saturating_mul(4).max(TABLES))
        // A slot is best reused by the component that had it last, after a fault. A replaced component never returns,
        // and each load is a new one for the engine: slots kept for it are lost.
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
