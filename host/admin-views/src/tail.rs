//! Tail of the recorded requests: those that are new or changed since the last look.

use std::collections::HashMap;
use std::sync::Arc;

use decision_log::{RequestSummary, Trace, TraceMark};

/// Most requests of one look. Older ones are left out.
pub const TAIL_ROWS: usize = 50;
/// Most requests that a look compares.
pub const TAIL_REACH: usize = 2_000;

/// Marks of the requests at the last look.
#[derive(Debug, Default)]
pub struct RequestTail(HashMap<u64, TraceMark>);

impl RequestTail {
    /// Returns the requests that are new or changed, oldest first. `traces` are sorted from new to old.
    ///
    /// A change that has no room is returned by a later look. Viewers show the requests of earlier looks as open, so
    /// that these come before new ones.
    pub fn look(&mut self, traces: &[Arc<Trace>]) -> Vec<RequestSummary> {
        let looked = traces.iter().take(TAIL_REACH);
        let looked = looked.map(|trace| (trace, trace.mark()));
        let (earlier, new): (Vec<_>, Vec<_>) =
            looked.partition(|(trace, _)| self.0.contains_key(&trace.seq()));
        let is_first = self.0.is_empty();
        let mut next = HashMap::with_capacity(earlier.len() + new.len());
        let mut changed = Vec::new();
        for (trace, mark) in earlier.into_iter().rev().chain(new) {
            let seq = trace.seq();
            let before = self.0.get(&seq).copied();
            let has_room = changed.len() < TAIL_ROWS;
            if before != Some(mark) && has_room {
                changed.push(trace);
            }
            let seen = match before {
                Some(before) if !has_room => Some(before),
                // What came before the first look is history.
                None if !has_room && !is_first => None,
                _ => Some(mark),
            };
            next.extend(seen.map(|mark| (seq, mark)));
        }
        self.0 = next;
        changed.sort_unstable_by_key(|trace| trace.seq());
        changed.into_iter().map(|trace| trace.summary()).collect()
    }

    /// Returns the latest requests, oldest first.
    #[must_use]
    pub fn latest(traces: &[Arc<Trace>]) -> Vec<RequestSummary> {
        let latest = traces.iter().take(TAIL_ROWS).rev();
        latest.map(|trace| trace.summary()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use decision_log::{RecordSpec, Recorder, Sampling, TraceStart};
    use prometheus_client::registry::Registry;

    use super::*;

    fn begin(spec: &RecordSpec, seq: u64) -> Arc<Trace> {
        let start = TraceStart {
            seq,
            id: b"id",
            is_explained: false,
            model: "m",
            path: "/v1/completions",
            pool: "a",
            route: 0,
            prompt_tokens: None,
            arrived: Instant::now(),
            tokens_took: None,
        };
        Trace::begin(spec, start, |_| None).expect("recorded")
    }

    fn spec() -> RecordSpec {
        let recorder = Recorder::new(&mut Registry::default());
        RecordSpec {
            explain: Sampling::share(1.0),
            explained: 1_000,
            ..RecordSpec::nothing(recorder)
        }
    }

    fn seqs(rows: &[RequestSummary]) -> Vec<u64> {
        rows.iter().map(|row| row.request.seq).collect()
    }

    #[test]
    fn every_end_is_returned_although_more_than_a_look_has_room_for_end_at_once() {
        let (spec, mut tail) = (spec(), RequestTail::default());
        let open = TAIL_ROWS as u64 + 10;
        for seq in 1..=open {
            begin(&spec, seq);
        }
        let traces = || spec.recorder.latest_traces(TAIL_REACH);
        assert_eq!(tail.look(&traces()).len(), TAIL_ROWS);
        for trace in traces() {
            trace.ended("complete", Duration::from_secs(1));
        }
        // New requests do not take the room of the ends.
        for seq in open + 1..=open + 30 {
            begin(&spec, seq);
        }
        let first = seqs(&tail.look(&traces()));
        let second = seqs(&tail.look(&traces()));
        assert_eq!(first, (1..=TAIL_ROWS as u64).collect::<Vec<_>>());
        assert_eq!(second.len(), 40);
        assert_eq!(second[..10], (TAIL_ROWS as u64 + 1..=open).collect::<Vec<_>>());
        assert!(tail.look(&traces()).is_empty());
    }

    #[test]
    fn requests_before_the_first_look_are_not_returned_later() {
        let (spec, mut tail) = (spec(), RequestTail::default());
        for seq in 1..=100 {
            begin(&spec, seq);
        }
        let traces = spec.recorder.latest_traces(TAIL_REACH);
        assert_eq!(seqs(&tail.look(&traces)), (51..=100).collect::<Vec<_>>());
        assert!(tail.look(&traces).is_empty());
    }
}
