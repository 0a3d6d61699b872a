//! Event queue of a run, in the order of time; at one time, in the order of insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Event of a run, other than at an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AgendaItem {
    /// A request comes.
    Arrives(usize),
    /// A held request is decided again; the number is that of the hold.
    HoldExpires(usize, u32),
    /// A router's deferred capacity event is due.
    Deferred(usize),
    /// A worker fails, and is away.
    Fails(usize),
    /// A router dies.
    RouterDies(usize),
    /// A worker returns.
    Returns(usize),
    /// Policies that work by the clock are called.
    Tick,
    /// Engines report their load.
    Scrape,
    /// The cluster is looked at.
    Sample,
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, AgendaItem)>>,
    written: u64,
    /// Number of events in it, without those of [`AgendaItem::is_chore`].
    events: usize,
}

impl AgendaItem {
    /// Returns whether it comes again and again by itself, and ends no request.
    fn is_chore(self) -> bool {
        matches!(self, Self::Tick | Self::Scrape | Self::Sample)
    }
}

impl Agenda {
    pub(super) fn add(&mut self, at_us: u64, due: AgendaItem) {
        self.heap.push(Reverse((at_us, self.written, due)));
        self.written += 1;
        self.events += usize::from(!due.is_chore());
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, _, _))| *at_us)
    }

    pub(super) fn pop(&mut self) -> Option<(u64, AgendaItem)> {
        let Reverse((at_us, _, due)) = self.heap.pop()?;
        self.events -= usize::from(!due.is_chore());
        Some((at_us, due))
    }

    /// Returns whether nothing in it can change what becomes of a request.
    pub(super) fn has_only_chores(&self) -> bool {
        self.events == 0
    }
}
