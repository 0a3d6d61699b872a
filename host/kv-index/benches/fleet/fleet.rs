//! Contents of the fleet: 128 engines behind a router that keeps sessions together, in pieces.
//!
//! It plays the engines' part and is the truth that answers are checked against.

use std::collections::HashMap;

use crate::corpus::{Corpus, Piece};

/// Engines in the fleet: what the baselines' masks can hold.
pub(crate) const WORKERS: u32 = 128;
/// The last of them serves no request: it is there to be dropped.
pub(crate) const DROPPED: u32 = WORKERS - 1;

/// Chain that one worker now stores.
#[derive(Debug)]
pub(crate) struct Storing {
    pub(crate) worker: u32,
    pub(crate) chain: Vec<Piece>,
    /// Pieces of the chain that it has already.
    pub(crate) known: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// Holders of each piece: a bit for each worker.
    holders: HashMap<Piece, u128>,
    /// Number of pieces that depend on a piece at a worker.
    children: HashMap<(Piece, u32), u32>,
    /// Worker that each piece was sent to last.
    owner: HashMap<Piece, u32>,
    next: u32,
}

impl Fleet {
    /// Places a request at the worker of its session, else at the next in turn.
    pub(crate) fn place(&mut self, chain: Vec<Piece>) -> Storing {
        let own = chain
            .iter()
            .skip(1)
            .rev()
            .find_map(|piece| self.owner.get(piece))
            .copied();
        let worker = own.unwrap_or_else(|| {
            self.next = (self.next + 1) % DROPPED;
            self.next
        });
        for &piece in &chain {
            self.owner.insert(piece, worker);
        }
        self.store(worker, chain)
    }

    /// Stores the whole chain at that worker.
    pub(crate) fn store(&mut self, worker: u32, chain: Vec<Piece>) -> Storing {
        let known = chain
            .iter()
            .take_while(|piece| self.holds(worker, **piece))
            .count();
        for at in known..chain.len() {
            *self.holders.entry(chain[at]).or_insert(0) |= 1 << worker;
            if let Some(above) = at.checked_sub(1) {
                *self.children.entry((chain[above], worker)).or_insert(0) += 1;
            }
        }
        Storing { worker, chain, known }
    }

    /// Evicts the end of the chain at that worker, as far as no other chain there depends on it.
    pub(crate) fn evict<'a>(&mut self, worker: u32, chain: &'a [Piece]) -> &'a [Piece] {
        let mut from = chain.len();
        while from > 1
            && self.holds(worker, chain[from - 1])
            && self
                .children
                .get(&(chain[from - 1], worker))
                .is_none_or(|&count| count == 0)
        {
            from -= 1;
            if let Some(mask) = self.holders.get_mut(&chain[from]) {
                *mask &= !(1 << worker);
            }
            if let Some(count) = self.children.get_mut(&(chain[from - 1], worker)) {
                *count -= 1;
            }
        }
        &chain[from..]
    }

    pub(crate) fn holds(&self, worker: u32, piece: Piece) -> bool {
        self.holders
            .get(&piece)
            .is_some_and(|mask| mask >> worker & 1 == 1)
    }

    /// Pieces of the chain that each worker holds from its start.
    pub(crate) fn depths(&self, chain: &[Piece]) -> Vec<u32> {
        let depth = |worker| {
            chain
                .iter()
                .take_while(|piece| self.holds(worker, **piece))
                .count()
        };
        (0..WORKERS).map(|worker| depth(worker) as u32).collect()
    }
}

/// Returns all requests of all copies, side by side as they would come.
pub(crate) fn traffic(corpus: &Corpus, copies: u32) -> impl Iterator<Item = Vec<Piece>> {
    let requests = 0..corpus.requests.len();
    requests.flat_map(move |request| (0..copies).map(move |copy| corpus.request(request, copy)))
}
