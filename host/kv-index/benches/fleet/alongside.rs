//! Ours while other things go on: questions under full ingest, and while a worker's blocks are swept out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kv_index::{Prompt, SharedPrefixIndex};
use routing::{BlockEvent, WorkerId};

use crate::corpus::{PIECE, Piece, STEP, prompt, removals, stores};
use crate::figures::{Samples, Unit};
use crate::fleet::DROPPED;
use crate::machine::Machine;
use crate::session::{Session, workers};
use crate::subject::{Depths, Ours, Subject, holder};

/// Blocks of the worker that leaves.
const LEAVING: usize = 1 << 20;
const ROUNDS: u32 = 12;
const BUSY: Duration = Duration::from_secs(3);

impl Session<'_, Ours> {
    pub(crate) fn alongside(&mut self) {
        let chains = self.chains(64);
        let mut queried: Vec<Prompt<'static>> =
            chains.iter().map(|chain| Ours::queried(prompt(chain))).collect();
        for queried in &mut queried {
            Ours::touch(queried);
        }
        let index = self.subject.0.clone();
        let mut idle = Samples::default();
        let until = Instant::now() + BUSY;
        keep_querying(&index, &mut queried, &mut idle, self.machine, || {
            Instant::now() < until
        });
        self.report(
            "query as above, nothing else going on, p50",
            Unit::Micros,
            idle.micros(0.5),
            "",
        );
        self.report(
            "query as above, nothing else going on, p99",
            Unit::Micros,
            idle.micros(0.99),
            "",
        );
        self.under_ingest(&index, &mut queried, &idle);
        self.leaving(&index, &mut queried, &idle);
    }

    fn under_ingest(&mut self, index: &SharedPrefixIndex, queried: &mut [Prompt<'static>], idle: &Samples) {
        let events = self.endless_events();
        let (stop, applied) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut busy = Samples::default();
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                for (worker, event, blocks) in events.iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    index.apply(holder(*worker), event);
                    applied.fetch_add(*blocks, Ordering::Relaxed);
                }
            });
            keep_querying(index, queried, &mut busy, self.machine, || start.elapsed() < BUSY);
            stop.store(true, Ordering::Relaxed);
        });
        let took = start.elapsed().as_nanos() as f64;
        let per_block = took / applied.load(Ordering::Relaxed) as f64;
        self.report(
            "query under full ingest on the other core, p50",
            Unit::Micros,
            busy.micros(0.5),
            "",
        );
        self.report(
            "query under full ingest on the other core, p99",
            Unit::Micros,
            busy.micros(0.99),
            "",
        );
        let times = busy.quantile(0.99) / idle.quantile(0.99);
        self.report(
            "query under full ingest, p99 over the idle one",
            Unit::Times,
            times,
            "<= 3",
        );
        self.report(
            "  ingest meanwhile (a half stored, a half removed)",
            Unit::NanosPerBlock,
            per_block,
            "",
        );
    }

    /// Stores and then removals of the same, so that they can be applied again and again.
    fn endless_events(&self) -> Vec<(u32, BlockEvent, u64)> {
        let copy = self.scale.copies + 7;
        let chains = (0..200).map(|request| (request as u32 % DROPPED, self.corpus.request(request, copy)));
        let chains: Vec<(u32, Vec<Piece>)> = chains.collect();
        let mut events = Vec::new();
        for (worker, chain) in &chains {
            events.extend(stores(chain, 0).map(|event| (*worker, event)));
        }
        for (worker, chain) in chains.iter().rev() {
            events.extend(removals(&chain[1..], STEP).map(|event| (*worker, event)));
        }
        let count = |event: &BlockEvent| match event {
            BlockEvent::Stored(stored) => stored.hashes.len() as u64,
            BlockEvent::Removed(removed) => removed.hashes.len() as u64,
            BlockEvent::Cleared => 0,
        };
        events
            .into_iter()
            .map(|(worker, event)| {
                let blocks = count(&event);
                (worker, event, blocks)
            })
            .collect()
    }

    /// Measures removals of a worker with a million blocks, while others are queried and its blocks are swept out.
    fn leaving(&mut self, index: &SharedPrefixIndex, queried: &mut [Prompt<'static>], idle: &Samples) {
        let copy = self.scale.copies + 8;
        let mut chains: Vec<Vec<Piece>> = Vec::new();
        let mut blocks = 0;
        for request in 0..self.corpus.requests.len() {
            chains.push(self.corpus.request(request, copy));
            blocks += self.corpus.requests[request].len() * PIECE;
            if blocks > LEAVING + LEAVING / 4 {
                break;
            }
        }
        let (mut dropping, mut swept, mut sweeping) =
            (Samples::default(), Samples::default(), Samples::default());
        let mut held = 0;
        for _ in 0..ROUNDS {
            for event in chains.iter().flat_map(|chain| stores(chain, 0)) {
                index.apply(holder(DROPPED), &event);
            }
            held = index.held_blocks(WorkerId(DROPPED));
            let mut own = Ours::queried(prompt(&chains[0]));
            let mut out = Depths::default();
            dropping.time(self.machine, || {
                index.remove_worker(WorkerId(DROPPED));
                self.subject.depths(&mut own, &[WorkerId(DROPPED)], &mut out);
            });
            assert_eq!(out.blocks, [0], "the worker is gone");
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    swept.time(self.machine, || while index.gc_step() {});
                    done.store(true, Ordering::Relaxed);
                });
                keep_querying(index, queried, &mut sweeping, self.machine, || {
                    !done.load(Ordering::Relaxed)
                });
            });
        }
        let name = |what: &str| format!("a worker of {:.1}M blocks leaves: {what}", held as f64 / 1e6);
        self.report(
            &name("gone from answers, worst"),
            Unit::Micros,
            dropping.micros(1.0),
            "<= 1000",
        );
        self.report(&name("swept out after"), Unit::Micros, swept.micros(0.5), "");
        self.report(
            &name("query p99 meanwhile"),
            Unit::Micros,
            sweeping.micros(0.99),
            "",
        );
        let times = sweeping.quantile(0.99) / idle.quantile(0.99);
        self.report(&name("query p99 over the idle one"), Unit::Times, times, "<= 1.5");
    }
}

fn keep_querying(
    index: &SharedPrefixIndex,
    queried: &mut [Prompt<'static>],
    samples: &mut Samples,
    machine: &Machine,
    go_on: impl Fn() -> bool,
) {
    let (workers, mut out) = (workers(), Vec::new());
    let mut at = samples.len();
    while go_on() {
        let queried = &mut queried[at % queried.len()];
        Ours::touch(queried);
        samples.time(machine, || index.matches(queried, &workers, &mut out));
        at += 1;
    }
}
