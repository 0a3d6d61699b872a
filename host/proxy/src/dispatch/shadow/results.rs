//! Results of a shadow's decision, compared with the placement that was made.

use std::time::{Duration, SystemTime};

use tracing::debug;

use super::captured::CapturedPlacement;
use super::metrics::ResultKind;
use super::record::{Disagreement, ShadowRecord, ShadowSums, ShadowVerdict};
use crate::base::request_id::RequestId;

/// Disagreements that are kept.
const KEPT: usize = 32;

impl ShadowRecord {
    pub(super) fn add(
        &self,
        captured: &CapturedPlacement,
        answer: &ShadowVerdict,
        took: Duration,
    ) -> ResultKind {
        let (policy, request) = (&*self.label.policy, RequestId(&captured.request.head.id));
        debug!(policy, %request, ?answer, "shadow decision");
        let mut sums = self.sums();
        let result = match answer {
            ShadowVerdict::Placed { answers, prefills } => {
                self.placed(&mut sums, captured, *answers, *prefills)
            }
            ShadowVerdict::Held => ResultKind::Held,
            ShadowVerdict::Rejected => ResultKind::Rejected,
            ShadowVerdict::Passed => ResultKind::Passed,
            ShadowVerdict::Fault(_) => ResultKind::Fault,
            ShadowVerdict::CircuitOpen => ResultKind::CircuitOpen,
        };
        self.metrics.decisions(result).inc();
        sums.decisions[result as usize] += 1;
        if !took.is_zero() {
            self.metrics.time.observe(took.as_secs_f64());
            sums.time = sums.time.saturating_add(took);
            sums.timed += 1;
        }
        result
    }

    fn placed(
        &self,
        sums: &mut ShadowSums,
        captured: &CapturedPlacement,
        answers: usize,
        prefills: Option<usize>,
    ) -> ResultKind {
        let Some((active_answers, active_prefills)) = captured.placed() else {
            return ResultKind::Differed;
        };
        // Where two workers share a request, the one that computes the prompt has the cache and the wait.
        let computes = [
            prefills.unwrap_or(answers),
            active_prefills.unwrap_or(active_answers),
        ];
        let picks = computes.map(|row| captured.pick(row));
        for (at, pick) in picks.iter().enumerate() {
            let matched = u64::from(pick.matched.unwrap_or(0));
            self.metrics.matched[at].inc_by(matched);
            self.metrics.ahead[at].inc_by(pick.ahead);
            sums.matched[at] = sums.matched[at].saturating_add(matched);
            sums.ahead[at] = sums.ahead[at].saturating_add(pick.ahead);
        }
        if let [Some(shadow), Some(active)] = [0, 1].map(|at: usize| picks[at].ttft_ms) {
            self.metrics.predictions.inc();
            self.metrics.predicted[0].inc_by(shadow / 1e3);
            self.metrics.predicted[1].inc_by(active / 1e3);
            sums.predictions += 1;
            sums.predicted[0] += shadow;
            sums.predicted[1] += active;
        }
        if (answers, prefills) == (active_answers, active_prefills) {
            return ResultKind::Agreed;
        }
        let [shadow, active] = if computes[0] == computes[1] {
            [answers, active_answers].map(|row| captured.pick(row))
        } else {
            picks
        };
        let kept = &mut sums.disagreements;
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Disagreement {
            request: String::from_utf8_lossy(captured.request.head.id.as_bytes()).into_owned(),
            at: SystemTime::now(),
            active,
            shadow,
        });
        ResultKind::Differed
    }
}
