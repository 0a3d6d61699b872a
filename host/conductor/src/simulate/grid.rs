//! Many runs, on as many threads as there are processors. Which thread makes a run changes nothing in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::anyhow;
use simulator::{Policies, RouterCounts, Summary};

use super::contestant::Contestant;
use super::setting::Setting;
use super::watched::Watched;

/// One run to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'g> {
    pub(super) contestant: &'g Contestant,
    pub(super) speed: f64,
}

/// One run that was made.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) policy: String,
    pub(super) speed: f64,
    pub(super) summary: Summary,
    /// What the router did, its policy's faults among it.
    pub(super) router: RouterCounts,
    /// Why the policy was given up, if it was.
    pub(super) given_up: Option<String>,
}

/// Makes all of them; the rows are in the cells' order.
pub(super) fn run(cells: &[Cell<'_>], setting: &Setting, threads: usize) -> anyhow::Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut rows = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(at) else {
                return Ok::<_, anyhow::Error>(rows);
            };
            rows.push((at, one(cell, setting)?));
        }
    };
    let mut rows = thread::scope(|scope| {
        let started: Vec<_> = (0..threads.min(cells.len())).map(|_| scope.spawn(work)).collect();
        let mut rows = Vec::new();
        for thread in started {
            rows.extend(thread.join().map_err(|_| anyhow!("a run panicked"))??);
        }
        Ok::<_, anyhow::Error>(rows)
    })?;
    rows.sort_unstable_by_key(|(at, _)| *at);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn one(cell: &Cell<'_>, setting: &Setting) -> anyhow::Result<Row> {
    let trace = setting.trace.clone().at_speed(cell.speed);
    let policy = Arc::new(Watched::new(cell.contestant.load()?, trace.requests.len()));
    let deciding = Policies::One(Arc::<Watched>::clone(&policy));
    let outcome = simulator::run(&trace, [deciding], &setting.spec);
    Ok(Row {
        policy: cell.contestant.label.clone(),
        speed: cell.speed,
        summary: Summary::of(&trace, &outcome, &setting.spec.limits),
        router: outcome.router,
        given_up: policy.given_up(),
    })
}
