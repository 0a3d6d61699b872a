//! Many runs, on as many threads as there are processors. Which thread makes a run changes nothing in it.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use simulator::{Policies, RouterCounts, Summary, Trace};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::contestant::Contestant;
use super::html::Curves;
use super::progress::RunProgress;
use super::setting::Setting;
use super::watched::Watched;

/// Interval of the progress bar.
const LOOK: Duration = Duration::from_millis(100);
/// Divisor of the processors in a process of a router.
const JOB_SHARE: usize = 4;

/// Every policy at every speed with every seed.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) setting: Setting,
    pub(super) contestants: Vec<Contestant>,
    pub(super) speeds: Vec<f64>,
    pub(super) seeds: Vec<u64>,
    pub(super) keep: KeptData,
    /// True in a process of a router: it leaves the processors to the requests, and reports its progress.
    pub(super) is_job: bool,
}

/// Data kept of each run beside its figures.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KeptData {
    /// Each request's time to first token.
    pub(super) ttft: bool,
    /// Curves of the first seed, for the plots.
    pub(super) curves: bool,
}

/// One run that was made.
#[derive(Debug)]
pub(super) struct SimulationRun {
    pub(super) summary: Summary,
    /// Counters of the router, with the faults of its policy.
    pub(super) router: RouterCounts,
    /// Reason for aborting the run, if it was aborted.
    pub(super) given_up: Option<String>,
    /// Times to first token by request, in microseconds. Empty if they are not kept.
    pub(super) ttft_us: Vec<Option<u64>>,
    pub(super) curves: Option<Curves>,
}

/// The runs that were made, by cell ([`Grid::cells`]) and seed.
#[derive(Debug)]
pub(super) struct GridRuns {
    pub(super) runs: Vec<Vec<Option<SimulationRun>>>,
    /// The user ended it before all were made.
    pub(super) stopped: bool,
}

/// A seed, and the requests that it gives; they are made when the first of its runs begins and go with the last.
#[derive(Debug)]
struct Seed {
    number: usize,
    value: u64,
    trace: OnceLock<Arc<Trace>>,
}

#[derive(Debug)]
struct Job {
    cell: usize,
    seed: Arc<Seed>,
}

/// State shared by the threads.
#[derive(Debug)]
struct Work {
    grid: Arc<Grid>,
    jobs: Mutex<std::vec::IntoIter<Job>>,
    /// Policies of the run of each thread, one for each router.
    running: Mutex<Vec<Vec<Arc<Watched>>>>,
    made: AtomicUsize,
}

/// Result of a run, with its cell and the number of its seed.
type Sent = (usize, usize, anyhow::Result<SimulationRun>);

impl Grid {
    /// Returns a policy at a speed: all policies at the first speed come first.
    pub(super) fn cells(&self) -> Vec<(f64, &Contestant)> {
        let at = |speed: &f64| {
            let speed = *speed;
            self.contestants.iter().map(move |contestant| (speed, contestant))
        };
        self.speeds.iter().flat_map(at).collect()
    }

    /// Orders the runs by seed, so that an interrupted comparison has the same seeds for all policies.
    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (number, value) in self.seeds.iter().copied().enumerate() {
            let trace = OnceLock::new();
            if number == 0 {
                trace.get_or_init(|| Arc::clone(&self.setting.trace));
            }
            let seed = Arc::new(Seed { number, value, trace });
            let cells = self.contestants.len() * self.speeds.len();
            jobs.extend((0..cells).map(|cell| Job {
                cell,
                seed: Arc::clone(&seed),
            }));
        }
        jobs
    }
}

impl SimulationRun {
    /// Returns a problem of its policy.
    pub(super) fn fault(&self) -> Option<String> {
        let router = &self.router;
        let of_decisions = || {
            let first = router.first_fault.as_ref()?;
            let faults: u64 = router.faults.values().sum();
            Some(format!(
                "{faults} of {} decisions; the first: {first}",
                router.calls
            ))
        };
        let of_listeners = || {
            let faults = router.listener_faults;
            (faults > 0).then(|| format!("{faults} calls of its event handler or tick"))
        };
        self.given_up.clone().or_else(of_decisions).or_else(of_listeners)
    }
}

/// Makes all of them, or those that are ready when the user ends it.
pub(super) fn run(grid: &Arc<Grid>) -> anyhow::Result<GridRuns> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(gather(grid))
}

async fn gather(grid: &Arc<Grid>) -> anyhow::Result<GridRuns> {
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for Ctrl-C")?;
    let jobs = grid.jobs();
    let total = jobs.len();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = if grid.is_job {
        processors.div_ceil(JOB_SHARE)
    } else {
        processors
    };
    let threads = threads.min(total);
    let (sender, mut results) = mpsc::channel(threads);
    let work = Arc::new(Work {
        grid: Arc::clone(grid),
        jobs: Mutex::new(jobs.into_iter()),
        running: Mutex::new(vec![Vec::new(); threads]),
        made: AtomicUsize::new(0),
    });
    for number in 0..threads {
        let (work, sender) = (Arc::clone(&work), sender.clone());
        // After an interrupt, running threads are not joined.
        thread::Builder::new().spawn(move || work.make(number, &sender))?;
    }
    drop(sender);
    let cells = grid.contestants.len() * grid.speeds.len();
    let none = || grid.seeds.iter().map(|_| None).collect();
    let mut runs: Vec<Vec<Option<SimulationRun>>> = (0..cells).map(|_| none()).collect();
    let mut progress = RunProgress::of(total, grid.is_job);
    let mut look = tokio::time::interval(LOOK);
    let stopped = loop {
        tokio::select! {
            result = results.recv() => match result {
                Some((cell, seed, run)) => runs[cell][seed] = Some(run?),
                None => break false,
            },
            _ = interrupt.recv() => break true,
            _ = look.tick() => progress.show(work.made.load(Ordering::Relaxed), work.parts()),
        }
    };
    if !stopped && runs.iter().flatten().any(Option::is_none) {
        bail!("a run panicked");
    }
    Ok(GridRuns { runs, stopped })
}

impl Work {
    /// Makes run after run until none is left or the user interrupts.
    fn make(&self, thread: usize, results: &mpsc::Sender<Sent>) {
        loop {
            let job = locked(&self.jobs).next();
            let Some(job) = job else { return };
            let run = self.one(thread, &job);
            let seed = job.seed.number;
            self.made.fetch_add(1, Ordering::Relaxed);
            if results.blocking_send((job.cell, seed, run)).is_err() {
                return;
            }
        }
    }

    fn one(&self, thread: usize, job: &Job) -> anyhow::Result<SimulationRun> {
        let Grid { setting, keep, .. } = &*self.grid;
        let (speed, contestant) = self.grid.cells()[job.cell];
        let seed = &*job.seed;
        let trace = seed.trace.get_or_init(|| setting.source.trace(seed.value));
        let trace = Trace::clone(trace).at_speed(speed);
        let mut spec = setting.spec.clone();
        spec.router.seed = seed.value;
        let policy = |_| Ok(Arc::new(Watched::new(contestant.load()?, trace.requests.len())));
        let policies: Vec<Arc<Watched>> = (0..setting.replicas).map(policy).collect::<anyhow::Result<_>>()?;
        locked(&self.running)[thread].clone_from(&policies);
        let deciding = policies
            .iter()
            .map(|policy| Policies::One(Arc::<Watched>::clone(policy)));
        let outcome = simulator::run(&trace, deciding, &spec);
        locked(&self.running)[thread].clear();
        let ttft_us = || outcome.courses.iter().map(|course| course.ttft_us()).collect();
        Ok(SimulationRun {
            summary: Summary::of(&trace, &outcome, &spec.limits),
            given_up: policies.iter().find_map(|policy| policy.given_up()),
            ttft_us: if keep.ttft { ttft_us() } else { Vec::new() },
            curves: (keep.curves && seed.number == 0).then(|| Curves::of(&outcome)),
            router: outcome.router,
        })
    }

    /// Returns the finished part of the running runs, in runs.
    fn parts(&self) -> f64 {
        let running = locked(&self.running);
        running.iter().flatten().map(|policy| policy.done()).sum::<f64>()
    }
}

/// Locks the mutex. A panic leaves the state consistent: every change is one step.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
