//! Headroom: the limit of a latency less its prediction, and the scores of candidates by it.

use conductor_policy_sdk::Params;

/// Steps of a score: llm-d's are whole numbers from 1 to 101, rounded down.
const STEPS: f64 = 100.0;
/// Differences below this are none.
const NEGLIGIBLE: f64 = 1e-9;

/// Headroom of a candidate, in milliseconds. Below 0 it is a deficit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headroom {
    pub(crate) ttft_ms: f64,
    pub(crate) tpot_ms: f64,
}

/// Configured score.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadroomScore {
    ttft_weight: f64,
    tpot_weight: f64,
    /// True if the most headroom is preferred; else the least, which packs workers.
    prefers_most: bool,
}

impl Headroom {
    /// Returns true if one of the limits is exceeded.
    pub(crate) fn is_negative(&self) -> bool {
        self.ttft_ms < 0.0 || self.tpot_ms < 0.0
    }

    /// Returns the severity of the deficit: none, tokens only, first token only, both.
    fn severity(&self) -> u8 {
        2 * u8::from(self.ttft_ms < 0.0) + u8::from(self.tpot_ms < 0.0)
    }
}

impl HeadroomScore {
    pub(crate) fn configure(params: &mut Params) -> Self {
        let ttft_weight = params.about("Weight of the headroom of the first token.").number(
            "ttft-weight",
            0.8,
            0.0..=1_000_000.0,
        );
        let tpot_weight = params
            .about("Weight of the headroom of the time between tokens.")
            .number("tpot-weight", 0.2, 0.0..=1_000_000.0);
        let sum = ttft_weight + tpot_weight;
        let weights = if sum > 0.0 {
            [ttft_weight / sum, tpot_weight / sum]
        } else {
            [1.0, 0.0]
        };
        Self {
            ttft_weight: weights[0],
            tpot_weight: weights[1],
            prefers_most: params
                .about("Preferred headroom of workers that meet the limits: the least packs them, the most is safer.")
                .choice("headroom", ("least", false), &[("most", true)]),
        }
    }

    /// Returns the scores, from 0.01 to 1.01; 0 for candidates with a more severe deficit than another.
    pub(crate) fn of(&self, all: &[Headroom]) -> Vec<f64> {
        let least_severe = all.iter().map(Headroom::severity).min().unwrap_or(0);
        let scored = || all.iter().filter(|headroom| headroom.severity() == least_severe);
        let ttft = Span::of(scored().map(|headroom| headroom.ttft_ms));
        let tpot = Span::of(scored().map(|headroom| headroom.tpot_ms));
        let (ttft_weight, tpot_weight) = match (ttft.is_wide(), tpot.is_wide()) {
            (true, false) => (1.0, 0.0),
            (false, true) => (0.0, 1.0),
            _ => (self.ttft_weight, self.tpot_weight),
        };
        // The least deficit is nearest to the limits.
        let prefers_most = self.prefers_most && least_severe == 0;
        let score = |headroom: &Headroom| {
            if headroom.severity() > least_severe {
                return 0.0;
            }
            let blended =
                ttft_weight * ttft.place(headroom.ttft_ms) + tpot_weight * tpot.place(headroom.tpot_ms);
            let preferred = if prefers_most { blended } else { 1.0 - blended };
            ((preferred * STEPS).floor() + 1.0) / STEPS
        };
        all.iter().map(score).collect()
    }
}

/// Least and greatest size of some headrooms.
#[derive(Debug, Clone, Copy)]
struct Span {
    least: f64,
    greatest: f64,
}

impl Span {
    fn of(headrooms: impl Iterator<Item = f64>) -> Self {
        let none = Self {
            least: f64::INFINITY,
            greatest: 0.0,
        };
        headrooms.fold(none, |span, headroom| Self {
            least: span.least.min(headroom.abs()),
            greatest: span.greatest.max(headroom.abs()),
        })
    }

    fn is_wide(&self) -> bool {
        self.greatest - self.least > NEGLIGIBLE
    }

    /// Returns the place of a headroom between the least and the greatest: 0 to 1.
    fn place(&self, headroom: f64) -> f64 {
        match self.is_wide() {
            true => (headroom.abs() - self.least) / (self.greatest - self.least),
            false => 0.5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: HeadroomScore = HeadroomScore {
        ttft_weight: 0.75,
        tpot_weight: 0.25,
        prefers_most: false,
    };

    fn headroom(ttft_ms: f64, tpot_ms: f64) -> Headroom {
        Headroom { ttft_ms, tpot_ms }
    }

    #[test]
    fn the_least_headroom_has_the_highest_score_and_the_weights_count() {
        let scores = USUAL.of(&[
            headroom(100.0, 10.0),
            headroom(200.0, 10.0),
            headroom(100.0, 30.0),
        ]);
        assert_eq!(scores, [1.01, 0.26, 0.76]);
        let most = HeadroomScore {
            prefers_most: true,
            ..USUAL
        };
        assert_eq!(
            most.of(&[headroom(100.0, 10.0), headroom(200.0, 10.0)]),
            [0.01, 1.01]
        );
    }

    #[test]
    fn a_limit_that_all_meet_alike_does_not_compress_the_scores() {
        assert_eq!(
            USUAL.of(&[headroom(100.0, 5.0), headroom(200.0, 5.0)]),
            [1.01, 0.01]
        );
        assert_eq!(
            USUAL.of(&[headroom(7.0, 10.0), headroom(7.0, 20.0)]),
            [1.01, 0.01]
        );
        assert_eq!(USUAL.of(&[headroom(7.0, 7.0); 2]), [0.51, 0.51]);
    }

    #[test]
    fn a_late_first_token_is_worse_than_slow_tokens_and_both_are_worst() {
        let (both, first, tokens) = (headroom(-1.0, -1.0), headroom(-9.0, 5.0), headroom(5.0, -50.0));
        assert_eq!(USUAL.of(&[both, first, tokens]), [0.0, 0.0, 0.51]);
        assert_eq!(USUAL.of(&[both, first]), [0.0, 0.51]);
        let most = HeadroomScore {
            prefers_most: true,
            ..USUAL
        };
        let deficits = most.of(&[headroom(-100.0, -1.0), headroom(-200.0, -1.0)]);
        assert_eq!(deficits, [1.01, 0.01], "the least deficit, whatever is preferred");
    }

    #[test]
    fn of_nothing_there_are_no_scores() {
        assert!(USUAL.of(&[]).is_empty());
    }
}
