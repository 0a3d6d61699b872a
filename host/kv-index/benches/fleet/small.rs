//! Figures of ours alone: the memory that the index reports, and removals from a small one.

use crate::corpus::{Corpus, PIECE};
use crate::figures::{Figure, Unit};
use crate::machine::Machine;
use crate::session::{Scale, Session};
use crate::subject::Ours;

const BLOCKS: usize = 1_000_000;

impl Session<'_, Ours> {
    pub(crate) fn own_memory(&mut self) {
        let stats = self.subject.0.stats();
        let per_block = stats.bytes as f64 / stats.distinct_blocks as f64;
        self.report(
            "memory a distinct block (by the index's own count)",
            Unit::Bytes,
            per_block,
            "<= 24",
        );
        println!(
            "{} runs, mean {} blocks",
            stats.runs,
            stats.distinct_blocks / stats.runs.max(1)
        );
    }
}

/// Removals of one block an event where a million blocks are held.
pub(crate) fn removals(machine: &Machine, corpus: &Corpus) -> Vec<Figure> {
    let mut few = Corpus {
        source: corpus.source,
        requests: Vec::new(),
        pieces: 0,
    };
    for request in &corpus.requests {
        if few.pieces as usize * PIECE >= BLOCKS {
            break;
        }
        few.pieces = few.pieces.max(request.iter().max().map_or(0, |last| last + 1));
        few.requests.push(request.clone());
    }
    let scale = Scale {
        copies: 1,
        prompts: 10,
        changes: BLOCKS / 4,
    };
    let mut session = Session::<Ours>::load(machine, &few, scale);
    session.figures.clear();
    session.removed_singly(", at 1M blocks");
    session.isolated(", at 1M blocks");
    session.figures
}
