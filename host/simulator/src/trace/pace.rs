//! Pace of a trace: faster, fewer, or spread arrivals where a recording rounded their times.

use routing::SplitMix64;

use crate::request::Trace;

/// Sequence of a seed from which the arrivals are drawn.
const STREAM: u32 = 0x5bad;

impl Trace {
    /// Arrivals `factor` times as fast. The lengths stay, so this also shortens the pauses within a conversation, as
    /// the replays that the literature reports do. `factor` is above 0: who calls has checked it.
    #[must_use]
    pub fn at_speed(mut self, factor: f64) -> Self {
        debug_assert!(
            factor.is_finite() && factor > 0.0,
            "a speed is above 0, not {factor}"
        );
        for request in &mut self.requests {
            let faster = |us: u64| (us as f64 / factor).round() as u64;
            request.at_us = faster(request.at_us);
            if let Some(after) = &mut request.after {
                after.pause_us = faster(after.pause_us);
            }
        }
        self
    }

    /// Returns its first `requests`, or all where it has no more.
    #[must_use]
    pub fn first(mut self, requests: usize) -> Self {
        self.requests.truncate(requests);
        self
    }

    /// Undoes the rounding of arrivals to a recording's step (3 s in Mooncake's conversation trace): requests that have
    /// the same arrival get one each, drawn evenly between it and one step later, and keep their order. The step is the
    /// median distance between different arrivals; nothing passes the next arrival that was recorded. A trace all of
    /// whose requests arrive at once has no step and stays.
    ///
    /// For traces whose arrivals are rounded only: [`crate::TraceFacts::distinct_arrivals`] shows them.
    pub fn spread(&mut self, seed: u64) {
        let Some(step_us) = self.step_us() else { return };
        let mut random = SplitMix64::of_decision(seed, STREAM);
        let mut rest = self.requests.as_mut_slice();
        while let Some(first) = rest.first() {
            let at_us = first.at_us;
            let same = rest.partition_point(|request| request.at_us == at_us);
            let (bucket, later) = rest.split_at_mut(same);
            let width_us = later
                .first()
                .map_or(step_us, |next| step_us.min(next.at_us - at_us));
            let mut drawn: Vec<u64> = bucket.iter().map(|_| at_us + random.next() % width_us).collect();
            drawn.sort_unstable();
            for (request, at_us) in bucket.iter_mut().zip(drawn) {
                request.at_us = at_us;
            }
            rest = later;
        }
    }

    /// Returns the median distance between different arrivals, in microseconds.
    fn step_us(&self) -> Option<u64> {
        let mut steps: Vec<u64> = self
            .requests
            .windows(2)
            .map(|pair| pair[1].at_us - pair[0].at_us)
            .filter(|&step| step > 0)
            .collect();
        steps.sort_unstable();
        steps.get(steps.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    fn arriving(at_us: &[u64]) -> Trace {
        let request = |&at_us| Request {
            at_us,
            prompt_tokens: 1,
            output_tokens: 1,
            blocks: Box::new([0]),
            session: None,
            grown_blocks: Box::default(),
            model: "".into(),
            after: None,
            tenant: None,
        };
        Trace {
            name: "arrivals".to_owned(),
            block_tokens: 512,
            requests: at_us.iter().map(request).collect(),
        }
    }

    fn arrivals(trace: &Trace) -> Vec<u64> {
        trace.requests.iter().map(|request| request.at_us).collect()
    }

    #[test]
    fn twice_the_speed_halves_the_arrivals() {
        assert_eq!(arrivals(&arriving(&[0, 10, 25]).at_speed(2.0)), [0, 5, 13]);
    }

    #[test]
    fn takes_the_first_requests_or_all() {
        assert_eq!(arrivals(&arriving(&[0, 1, 2]).first(2)), [0, 1]);
        assert_eq!(arrivals(&arriving(&[0, 1, 2]).first(9)), [0, 1, 2]);
    }

    #[test]
    fn spreads_equal_arrivals_over_a_step_in_order_and_past_no_later_one() {
        // A pause of two steps is no reason to spread over both; the last bucket has a step too.
        let recorded = [0, 0, 0, 3000, 3000, 6000, 12_000, 12_000];
        let mut trace = arriving(&recorded);
        trace.spread(1);
        let spread = arrivals(&trace);
        assert!(spread.is_sorted());
        assert_ne!(spread, recorded);
        for (spread, recorded) in spread.iter().zip(recorded) {
            assert!(
                (recorded..recorded + 3000).contains(spread),
                "{spread} of {recorded}"
            );
        }
    }

    #[test]
    fn arrivals_are_spread_evenly_over_a_step() {
        let recorded: Vec<u64> = (0..4000).map(|index| index / 1000 * 3000).collect();
        let mut trace = arriving(&recorded);
        trace.spread(1);
        let early = arrivals(&trace)
            .iter()
            .filter(|&at_us| at_us % 3000 < 1000)
            .count();
        assert!(
            (1200..1467).contains(&early),
            "{early} of 4000 in the first third of a step"
        );
    }

    #[test]
    fn spreads_the_same_way_for_the_same_seed() {
        let spread = |seed| {
            let mut trace = arriving(&[0, 0, 9000]);
            trace.spread(seed);
            arrivals(&trace)
        };
        assert_eq!(spread(1), spread(1));
        assert_ne!(spread(1), spread(2));
    }

    #[test]
    fn leaves_a_trace_without_a_step_as_it_is() {
        for recorded in [&[][..], &[0], &[7, 7]] {
            let mut trace = arriving(recorded);
            trace.spread(1);
            assert_eq!(arrivals(&trace), recorded);
        }
    }
}
