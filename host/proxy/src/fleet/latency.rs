//! Latency of a pool's tokenizers: a moving mean and deviation of the answers. The time until a second try follows from
//! them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shortest time that the first try has to itself.
const FLOOR: Duration = Duration::from_millis(10);
/// Share of the deadline that the first try has to itself before anything was measured.
const UNMEASURED_SHARE: u32 = 4;
/// Weights of a new answer, and how many deviations above the mean count as late: those of TCP (RFC 6298).
const MEAN_WEIGHT: f64 = 0.125;
const DEVIATION_WEIGHT: f64 = 0.25;
const DEVIATIONS: f64 = 4.0;

/// Moving estimate of the answer times of one pool's tokenizers.
#[derive(Debug, Default)]
pub(crate) struct TokenizerLatency(Mutex<Option<Estimate>>);

#[derive(Debug, Clone, Copy)]
struct Estimate {
    mean_s: f64,
    deviation_s: f64,
}

impl TokenizerLatency {
    /// Records an answer.
    pub(crate) fn answered(&self, took: Duration) {
        let took_s = took.as_secs_f64();
        let mut estimate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *estimate = Some(match *estimate {
            None => Estimate {
                mean_s: took_s,
                deviation_s: took_s / 2.0,
            },
            Some(Estimate { mean_s, deviation_s }) => Estimate {
                mean_s: mean_s + MEAN_WEIGHT * (took_s - mean_s),
                deviation_s: deviation_s + DEVIATION_WEIGHT * ((took_s - mean_s).abs() - deviation_s),
            },
        });
    }

    /// Returns how long one try has before another worker is tried beside it, at most the deadline.
    pub(crate) fn patience(&self, deadline: Duration) -> Duration {
        let estimate = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = match estimate {
            None => deadline / UNMEASURED_SHARE,
            Some(Estimate { mean_s, deviation_s }) => {
                Duration::try_from_secs_f64(mean_s + DEVIATIONS * deviation_s).unwrap_or(deadline)
            }
        };
        usual.max(FLOOR).min(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(400);

    fn after(answers: &[u64]) -> Duration {
        let latency = TokenizerLatency::default();
        for millis in answers {
            latency.answered(Duration::from_millis(*millis));
        }
        latency.patience(DEADLINE)
    }

    #[test]
    fn before_the_first_answer_a_try_has_a_share_of_the_deadline() {
        assert_eq!(after(&[]), Duration::from_millis(100));
    }

    #[test]
    fn steady_answers_lead_to_a_short_wait_and_never_below_the_floor() {
        let steady = after(&[20; 60]);
        assert!(
            steady >= Duration::from_millis(20) && steady < Duration::from_millis(22),
            "{steady:?}"
        );
        assert_eq!(after(&[1; 60]), FLOOR);
    }

    #[test]
    fn one_slow_answer_lengthens_the_wait_at_once_up_to_the_deadline() {
        let mut answers = vec![5; 60];
        answers.push(150);
        let once = after(&answers);
        assert!(once > Duration::from_millis(150) && once < DEADLINE, "{once:?}");
        assert_eq!(after(&[5_000]), DEADLINE);
    }
}
