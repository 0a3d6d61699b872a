//! Sources of a configuration: they run, and change with it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::runtime::Runtime;
use worker_discovery::SourceWorkers;

use crate::metrics;
use crate::report::SourceReport;
use crate::spec::SourceSpec;
use crate::state::{ChangeCallback, SourceState};
use crate::tasks::SourceTask;

/// All sources. Without one, no thread runs.
pub struct WorkerSources {
    running: Arc<RunningSources>,
    /// Runtime of the sources' tasks, from the first source on.
    runtime: Mutex<Option<Runtime>>,
    on_change: Mutex<ChangeCallback>,
}

/// Running sources by name.
#[derive(Default)]
pub(crate) struct RunningSources(Mutex<BTreeMap<String, RunningSource>>);

/// Source with its task.
struct RunningSource {
    spec: SourceSpec,
    state: Arc<SourceState>,
    _task: SourceTask,
}

/// Prepared change. Dropping it has no effect.
#[derive(Debug)]
pub struct SourcesPlan(Vec<SourceSpec>);

/// Error of a change.
#[derive(Debug, Error)]
pub enum SourcesError {
    /// The thread of the sources could not be started.
    #[error("start the thread of the sources of workers")]
    Thread(#[source] io::Error),
}

impl WorkerSources {
    /// Creates them without a source.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        let running = Arc::<RunningSources>::default();
        metrics::register(registry, &running);
        Arc::new(Self {
            running,
            runtime: Mutex::default(),
            on_change: Mutex::new(Arc::new(|| {})),
        })
    }

    /// Sets the function that is called when the workers of a source change. It must not block.
    pub fn on_change(&self, on_change: impl Fn() + Send + Sync + 'static) {
        let on_change: ChangeCallback = Arc::new(on_change);
        for running in self.running.lock().values() {
            running.state.set_on_change(Arc::clone(&on_change));
        }
        *self.on_change.lock().unwrap_or_else(PoisonError::into_inner) = on_change;
    }

    /// Prepares a change, and starts the thread with the first source. Nothing is queried.
    ///
    /// # Errors
    /// [`SourcesError`].
    pub fn plan(&self, specs: Vec<SourceSpec>) -> Result<SourcesPlan, SourcesError> {
        let mut runtime = self.runtime();
        if runtime.is_none() && !specs.is_empty() {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).thread_name("discovery").enable_all();
            *runtime = Some(builder.build().map_err(SourcesError::Thread)?);
        }
        Ok(SourcesPlan(specs))
    }

    /// Applies a plan: sources that stay keep their workers, new ones are queried, and the others end.
    pub fn apply(&self, SourcesPlan(specs): SourcesPlan) {
        let runtime = self.runtime();
        let Some(runtime) = &*runtime else { return };
        let on_change = Arc::clone(&self.on_change.lock().unwrap_or_else(PoisonError::into_inner));
        let mut running = self.running.lock();
        let mut before = std::mem::take(&mut *running);
        for spec in specs {
            let source = match before.remove(&spec.name) {
                Some(same) if same.spec == spec => same,
                changed => {
                    // The workers of another pool are not this source's.
                    let kept = changed.filter(|changed| changed.spec.pool == spec.pool);
                    let state = Arc::new(match kept {
                        Some(kept) => kept.state.respecified(spec.clone(), Arc::clone(&on_change)),
                        None => SourceState::new(spec.clone(), Arc::clone(&on_change)),
                    });
                    RunningSource {
                        _task: SourceTask::spawn(runtime.handle(), spec.clone(), Arc::clone(&state)),
                        state,
                        spec,
                    }
                }
            };
            running.insert(source.spec.name.clone(), source);
        }
    }

    /// Returns the accepted workers of the named sources, each with its pool, in the order of the names. A source that
    /// does not run yet has none.
    #[must_use]
    pub fn workers<'s>(&self, sources: impl IntoIterator<Item = (&'s str, &'s str)>) -> Vec<SourceWorkers> {
        let running = self.running.lock();
        let accepted = sources.into_iter().filter_map(|(source, pool)| {
            let known = running.get(source).filter(|known| known.spec.pool == pool)?;
            Some(SourceWorkers {
                source: source.to_owned(),
                pool: pool.to_owned(),
                workers: known.state.workers(),
            })
        });
        accepted.collect()
    }

    /// Returns a report on each source, in the order of their names.
    #[must_use]
    pub fn report(&self) -> Vec<SourceReport> {
        let states = self.running.states();
        states.iter().map(|state| state.report()).collect()
    }

    fn runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningSources {
    pub(crate) fn states(&self) -> Vec<Arc<SourceState>> {
        self.lock()
            .values()
            .map(|running| Arc::clone(&running.state))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, RunningSource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkerSources {
    fn drop(&mut self) {
        // A runtime that is dropped in a task would wait, which no task may.
        if let Some(runtime) = self.runtime().take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for WorkerSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerSources")
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RunningSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}
