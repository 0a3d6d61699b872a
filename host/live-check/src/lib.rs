//! Live check: queries every worker of a configuration and compares the answers with the configuration.
//!
//! `target` is the configuration of a worker, `probe` queries the worker (the only part with I/O), `judge` and
//! `connector` make a list of checks of both, `pool` compares the workers of a pool, and `text` prints.
//! `sketch` queries workers that no configuration has yet. The check changes nothing: the router
//! sends each of its queries too.

mod clock;
mod connector;
mod judge;
mod observed;
mod pool;
mod probe;
mod report;
mod sketch;
mod target;
mod text;

use std::collections::HashMap;

use futures_util::{StreamExt, stream};

use self::observed::Observed;
pub use self::report::{CheckResult, LiveCheck, LiveReport, PoolReport, WorkerReport};
pub use self::sketch::{WorkerSketch, sketch_all};
pub use self::target::{
    EventsTarget, ModelTokens, PoolDialect, PoolTarget, ProbeAccess, ServedModels, TokenMethod, Tokenizing,
    WorkerTarget,
};
pub use self::text::{Glyphs, render};

/// Workers queried at the same time.
const CONCURRENT_WORKERS: usize = 16;

/// Queries all workers, a bounded number at a time, and checks the answers. Calls `progress` after each worker.
pub async fn check_all(pools: &[PoolTarget], progress: impl Fn()) -> LiveReport {
    let workers: Vec<&WorkerTarget> = pools.iter().flat_map(|pool| &pool.workers).collect();
    let progress = &progress;
    let queries = workers.into_iter().map(|worker| async move {
        let observed = Box::pin(probe::observe(worker)).await;
        progress();
        (&*worker.name, observed)
    });
    let observed = stream::iter(queries).buffer_unordered(CONCURRENT_WORKERS);
    let observed: HashMap<&str, Observed> = observed.collect().await;
    let nothing = Observed::default();
    let of = |worker: &WorkerTarget| observed.get(&*worker.name).unwrap_or(&nothing);
    LiveReport::new(pools.iter().map(|pool| report_pool(pool, of)).collect())
}

fn report_pool<'o>(target: &PoolTarget, observed: impl Fn(&WorkerTarget) -> &'o Observed) -> PoolReport {
    let workers = target.workers.iter();
    PoolReport {
        pool: target.name.clone(),
        dialect: target.dialect.named().map(|dialect| dialect.as_str()),
        workers: workers
            .map(|worker| report_worker(worker, observed(worker)))
            .collect(),
        checks: pool::checks(target, observed),
    }
}

fn report_worker(worker: &WorkerTarget, observed: &Observed) -> WorkerReport {
    WorkerReport {
        worker: worker.name.clone(),
        url: worker.url.clone(),
        role: worker.role.as_str(),
        checks: judge::checks(worker, observed),
    }
}
