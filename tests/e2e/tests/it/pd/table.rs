//! The matrix: each fault in each dialect, what a client sees of it, and whether engines keep something.

use super::fault::Fault::{self, *};

/// Client's view of a request to a pool of one prefill and one decode worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum See {
    /// The whole answer, of a pair of workers.
    Pair,
    /// The whole answer, of the decode worker by itself.
    Alone,
    /// The whole answer, of either: whether the worker is back in time for the same request is up to the moment.
    Served,
    /// A worker's error: its status.
    Worker(u16),
    /// The router's error: its status and code.
    Router(u16, &'static str),
    /// An answer that begins and breaks off: a stream with an error event, any other torn.
    CutOff,
}

/// A cell of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell {
    pub(super) see: See,
    /// An engine may keep blocks until its own timeout: those of a prompt that is not fetched (nixl, mooncake), of an
    /// answer whose prompt does not arrive (mooncake), or of a prompt whose fetch ended halfway (sglang). The router
    /// has no way to free them.
    pub(super) keeps: bool,
}

const fn frees(see: See) -> Option<Cell> {
    Some(Cell { see, keeps: false })
}

const fn keeps(see: See) -> Option<Cell> {
    Some(Cell { see, keeps: true })
}

/// Impossible, or dependent on timing.
const NEVER: Option<Cell> = None;

const PAIR: See = See::Pair;
const ALONE: See = See::Alone;
const DONE: See = See::Served;
const BUSY: See = See::Worker(503);
const LONG: See = See::Worker(400);
const LOST: See = See::Worker(500);
const GONE: See = See::Router(503, "no_worker_reachable");
pub(super) const TORN: See = See::Router(502, "worker_broke_off");
pub(super) const LATE: See = See::Router(504, "worker_timeout");
const CUT: See = See::CutOff;

/// In the order of [`super::DIALECTS`]. SGLang's decode workers never do a whole request, so that there a prefill
/// worker that fails fails the request; the others' take over.
#[rustfmt::skip]
pub(super) const TABLE: [(Fault, [Option<Cell>; 4]); 17] = [
    //                   nixl          mooncake      store         sglang
    (Nothing,           [frees(PAIR),  frees(PAIR),  frees(PAIR),  keeps(PAIR)]),
    (PrefillBusy,       [frees(ALONE), keeps(ALONE), frees(ALONE), frees(BUSY)]),
    (PromptTooLong,     [frees(LONG),  frees(LONG),  frees(LONG),  frees(LONG)]),
    (PrefillRefuses,    [frees(ALONE), keeps(ALONE), frees(ALONE), frees(GONE)]),
    (PrefillTorn,       [keeps(ALONE), keeps(ALONE), frees(ALONE), keeps(TORN)]),
    (PrefillRestarted,  [frees(PAIR),  keeps(PAIR),  frees(PAIR),  keeps(PAIR)]),
    (PrefillDies,       [frees(ALONE), keeps(ALONE), frees(ALONE), frees(GONE)]),
    (PrefillBounces,    [frees(DONE),  keeps(DONE),  frees(DONE),  NEVER]),
    (ParamsLost,        [keeps(ALONE), NEVER,        NEVER,        NEVER]),
    (StopsAtFirstToken, [frees(PAIR),  frees(PAIR),  frees(PAIR),  keeps(PAIR)]),
    (BootstrapDown,     [NEVER,        keeps(ALONE), NEVER,        frees(LOST)]),
    (PrefillSlow,       [frees(LATE),  keeps(LATE),  frees(LATE),  frees(LATE)]),
    (PrefillHangs,      [frees(LATE),  keeps(LATE),  frees(LATE),  frees(LATE)]),
    (DecodeBusy,        [keeps(BUSY),  keeps(BUSY),  frees(BUSY),  frees(BUSY)]),
    (DecodeRefuses,     [keeps(GONE),  keeps(GONE),  frees(GONE),  frees(GONE)]),
    (DecodeCut,         [frees(CUT),   frees(CUT),   frees(CUT),   keeps(CUT)]),
    (DecodeHangs,       [keeps(LATE),  keeps(LATE),  frees(LATE),  frees(LATE)]),
];
