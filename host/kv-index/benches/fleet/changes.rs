//! Cost of events by kind.

use crate::corpus::{PIECE, STEP, removal_inside, removals, stores};
use crate::figures::{Samples, Unit};
use crate::fleet::{DROPPED, Storing};
use crate::machine::resident;
use crate::session::{Applying, BLOCK_AIM, Session};
use crate::subject::Subject;

impl<S: Subject> Session<'_, S> {
    /// Measures every kind of event, one after the other.
    pub(crate) fn changes(&mut self) {
        let copies = self.scale.copies;
        self.known();
        self.removed();
        self.removed_singly("");
        self.mix(copies);
        self.isolated("");
        self.further_holders();
    }

    fn known(&mut self) {
        let mut applying = Applying::default();
        while applying.blocks < self.scale.changes {
            let (worker, chain) = self.any_placed();
            self.apply_all(&mut applying, worker, stores(&chain, 0));
        }
        self.report(
            "ingest, blocks stored again",
            Unit::NanosPerBlock,
            applying.per_block(),
            BLOCK_AIM,
        );
    }

    fn removed(&mut self) {
        let mut applying = Applying::default();
        while applying.blocks < self.scale.changes {
            let (worker, chain) = self.any_placed();
            let pieces = self.fleet.evict(worker, &chain).to_vec();
            self.apply_all(&mut applying, worker, removals(&pieces, STEP));
        }
        self.report(
            "removal, tail first, 512 a event",
            Unit::NanosPerBlock,
            applying.per_block(),
            BLOCK_AIM,
        );
    }

    /// Measures removals of single chains here and there, as by an engine that needs room.
    pub(crate) fn removed_singly(&mut self, at: &str) {
        let mut took = Samples::default();
        while took.len() < self.scale.changes / 4 {
            let (worker, chain) = self.any_placed();
            let pieces = self.fleet.evict(worker, &chain).to_vec();
            self.apply_each(&mut took, worker, removals(&pieces, 1));
        }
        self.report_removals(&format!("removal, tail first, one block an event{at}"), &took);
    }

    fn report_removals(&mut self, name: &str, took: &Samples) {
        self.report(&format!("{name}, p50"), Unit::Nanos, took.quantile(0.5), "<= 300");
        self.report(&format!("{name}, mean"), Unit::Nanos, took.mean(), "<= 300");
        self.report(&format!("{name}, p99"), Unit::Nanos, took.quantile(0.99), "");
    }

    /// Measures a mix: one part new, one part known, one part removed, from here and there.
    fn mix(&mut self, first_copy: u32) {
        let mut parts = [0; 3];
        let mut applying = Applying::default();
        let mut new = 0;
        while applying.blocks < 3 * self.scale.changes {
            let before = applying.blocks;
            let least = (0..3).min_by_key(|&part| parts[part]).unwrap_or(0);
            match least {
                0 => {
                    let requests = self.corpus.requests.len();
                    let chain = self
                        .corpus
                        .request(new % requests, first_copy + (new / requests) as u32);
                    new += 1;
                    let Storing { worker, chain, known } = self.fleet.place(chain);
                    self.apply_all(&mut applying, worker, stores(&chain, known));
                }
                1 => {
                    let (worker, chain) = self.any_placed();
                    let held = chain
                        .iter()
                        .take_while(|piece| self.fleet.holds(worker, **piece))
                        .count();
                    self.apply_all(&mut applying, worker, stores(&chain[..held], 0));
                }
                _ => {
                    let (worker, chain) = self.any_placed();
                    let pieces = self.fleet.evict(worker, &chain).to_vec();
                    self.apply_all(&mut applying, worker, removals(&pieces, STEP));
                }
            }
            parts[least] += applying.blocks - before + usize::from(applying.blocks == before);
        }
        self.report(
            "ingest, a third each new, known, removed",
            Unit::NanosPerBlock,
            applying.per_block(),
            BLOCK_AIM,
        );
    }

    /// Measures removals of single blocks out of the middle of chains: the worst case, which no engine is known to do.
    pub(crate) fn isolated(&mut self, at: &str) {
        let mut took = Samples::default();
        for _ in 0..self.scale.changes / 40 {
            let (worker, chain) = self.any_placed();
            let piece = chain[self.random.below(chain.len() as u64) as usize];
            let event = removal_inside(piece, self.random.below(PIECE as u64) as usize);
            if self.fleet.holds(worker, piece) {
                took.time(self.machine, || self.subject.apply(worker, &event));
            }
        }
        self.report_removals(
            &format!("removal of one block anywhere, leaving a hole{at}"),
            &took,
        );
    }

    /// Measures stores of the same content at one more worker each.
    fn further_holders(&mut self) {
        let wanted = self.scale.changes * 4;
        let mut storings = Vec::new();
        let mut planned = 0;
        while planned < wanted {
            let (worker, chain) = self.any_placed();
            let storing = self.fleet.store((worker + 1) % DROPPED, chain);
            planned += (storing.chain.len() - storing.known) * PIECE;
            storings.push(storing);
        }
        let (mut applying, before) = (Applying::default(), resident());
        for storing in &storings {
            self.apply_all(
                &mut applying,
                storing.worker,
                stores(&storing.chain, storing.known),
            );
        }
        let bytes = (resident() - before) / applying.blocks as f64;
        self.report(
            "ingest, known content at a further worker",
            Unit::NanosPerBlock,
            applying.per_block(),
            BLOCK_AIM,
        );
        self.report(
            "memory a further holder of a block (RSS)",
            Unit::Bytes,
            bytes,
            "<= 1",
        );
    }
}
