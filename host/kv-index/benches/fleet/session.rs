//! One subject with a loaded fleet, and everything that is measured of all subjects alike.

use std::hint::black_box;

use routing::{BlockEvent, WorkerId};

use crate::corpus::{Corpus, PIECE, Piece, prompt, stores};
use crate::figures::{Figure, Samples, Unit};
use crate::fleet::{Fleet, Storing, WORKERS, traffic};
use crate::machine::{Machine, forget_caches, processor_time, resident};
use crate::random::Random;
use crate::subject::{Depths, Subject};

/// 10 million blocks a second, then 20.
pub(crate) const BLOCK_AIM: &str = "<= 100, 50 ns";

/// Size of the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Copies of the corpus.
    pub(crate) copies: u32,
    /// Maximum number of prompts queried in one figure.
    pub(crate) prompts: usize,
    /// Blocks changed in one figure, about.
    pub(crate) changes: usize,
}

pub(crate) struct Session<'a, S> {
    pub(crate) subject: S,
    pub(crate) fleet: Fleet,
    pub(crate) machine: &'a Machine,
    pub(crate) corpus: &'a Corpus,
    pub(crate) scale: Scale,
    pub(crate) random: Random,
    pub(crate) figures: Vec<Figure>,
    /// Destination of each request.
    pub(crate) placed: Vec<Storing>,
}

pub(crate) fn workers() -> Vec<WorkerId> {
    (0..WORKERS).map(WorkerId).collect()
}

fn blocks(event: &BlockEvent) -> usize {
    match event {
        BlockEvent::Stored(stored) => stored.hashes.len(),
        BlockEvent::Removed(removed) => removed.hashes.len(),
        BlockEvent::Cleared => 0,
    }
}

impl<'a, S: Subject> Session<'a, S> {
    /// Loads the fleet's blocks, which is the first figure.
    pub(crate) fn load(machine: &'a Machine, corpus: &'a Corpus, scale: Scale) -> Self {
        let mut fleet = Fleet::default();
        let placed: Vec<Storing> = traffic(corpus, scale.copies)
            .map(|chain| fleet.place(chain))
            .collect();
        let distinct = corpus.pieces as usize * scale.copies as usize * PIECE;
        let before = resident();
        let mut session = Self {
            subject: S::empty(distinct + distinct / 10),
            fleet,
            machine,
            corpus,
            scale,
            random: Random::new(11),
            figures: Vec::new(),
            placed: Vec::new(),
        };
        let mut applying = Applying::default();
        for storing in &placed {
            session.apply_all(
                &mut applying,
                storing.worker,
                stores(&storing.chain, storing.known),
            );
        }
        session.placed = placed;
        session.report(
            "ingest, new blocks, from empty",
            Unit::NanosPerBlock,
            applying.per_block(),
            BLOCK_AIM,
        );
        let bytes = (resident() - before) / distinct as f64;
        session.report("memory a distinct block (RSS)", Unit::Bytes, bytes, "<= 24");
        session
    }

    pub(crate) fn report(&mut self, name: &str, unit: Unit, value: f64, aim: &'static str) {
        self.figures.push(Figure {
            name: name.to_owned(),
            unit,
            value,
            aim,
        });
    }

    pub(crate) fn apply_all(
        &mut self,
        applying: &mut Applying,
        worker: u32,
        events: impl Iterator<Item = BlockEvent>,
    ) {
        for event in events {
            applying.blocks += blocks(&event);
            let before = processor_time();
            self.subject.apply(worker, &event);
            applying.processor += processor_time() - before - self.machine.processor_clock;
        }
    }

    /// Measures as [`Session::apply_all`], by wall-clock time and event by event.
    pub(crate) fn apply_each(
        &mut self,
        took: &mut Samples,
        worker: u32,
        events: impl Iterator<Item = BlockEvent>,
    ) {
        for event in events {
            took.time(self.machine, || self.subject.apply(worker, &event));
        }
    }

    pub(crate) fn any_placed(&mut self) -> (u32, Vec<Piece>) {
        let at = self.random.below(self.placed.len() as u64) as usize;
        (self.placed[at].worker, self.placed[at].chain.clone())
    }

    /// Returns the queried prompts: chains of that many pieces, each queried once, and first found to be answered
    /// rightly.
    pub(crate) fn chains(&mut self, pieces: usize) -> Vec<Vec<Piece>> {
        let mut chains: Vec<Vec<Piece>> = self
            .placed
            .iter()
            .filter(|storing| storing.chain.len() >= pieces)
            .map(|storing| storing.chain[..pieces].to_vec())
            .collect();
        self.random.shuffle(&mut chains);
        chains.truncate(self.scale.prompts);
        chains
    }

    /// Queries each of the prompts once from its tokens, and once with its hashes just computed. Index data is not in
    /// the processor's caches, except where prompts share it.
    pub(crate) fn query(&mut self, chains: &[Vec<Piece>]) -> QueryTimes {
        let (workers, mut out) = (workers(), Depths::default());
        let mut times = QueryTimes::default();
        let mut queried: Vec<S::Query> = Vec::with_capacity(chains.len());
        forget_caches();
        for chain in chains {
            let mut new = S::queried(prompt(chain));
            times
                .from_tokens
                .time(self.machine, || self.subject.depths(&mut new, &workers, &mut out));
            queried.push(new);
        }
        forget_caches();
        for (queried, chain) in queried.iter_mut().zip(chains) {
            black_box(S::touch(queried));
            times
                .hashed
                .time(self.machine, || self.subject.depths(queried, &workers, &mut out));
            let truth: Vec<u32> = self
                .fleet
                .depths(chain)
                .iter()
                .map(|pieces| pieces * PIECE as u32)
                .collect();
            assert_eq!(out.blocks, truth, "{} answers wrongly", S::NAME);
        }
        times
    }
}

/// Times of the same queries, made in two ways.
#[derive(Debug, Default)]
pub(crate) struct QueryTimes {
    pub(crate) from_tokens: Samples,
    pub(crate) hashed: Samples,
}

/// Events applied so far.
#[derive(Debug, Default)]
pub(crate) struct Applying {
    pub(crate) blocks: usize,
    /// Nanoseconds on the processor.
    pub(crate) processor: f64,
}

impl Applying {
    /// Returns nanoseconds per block.
    pub(crate) fn per_block(&self) -> f64 {
        self.processor / self.blocks as f64
    }
}
