//! Evidence of other routers, added to the own one.

use super::{ArmSamples, Evidence, LookSchedule, MEASURES, OtherSamples, WorseArm};
use crate::rule::Measure;
use crate::statistics::Samples;
use crate::totals::{ArmTotals, EvidenceTotals, LookTotals};

impl Evidence {
    /// Returns the totals of the own evidence.
    #[must_use]
    pub fn totals(&self) -> EvidenceTotals {
        let arm = |samples: &ArmSamples| ArmTotals {
            ttft: samples.logs.totals(),
            errors: samples.errors.totals(),
        };
        let looks = self.canaries.iter().map(|series| {
            series.map(|schedule| LookTotals {
                looks: schedule.looks,
                next_at: schedule.next_at,
            })
        });
        EvidenceTotals {
            arms: self.arms.iter().map(arm).collect(),
            looks: looks.collect(),
        }
    }

    /// Replaces the evidence of the other routers, and returns the canaries now found to be worse. Totals of other arms
    /// than these are left out.
    pub fn set_others<'t>(&mut self, others: impl Iterator<Item = &'t EvidenceTotals>) -> Vec<WorseArm> {
        let mut sums: Vec<OtherSamples> = self.arms.iter().map(|_| OtherSamples::default()).collect();
        for totals in others {
            let Some(read) = self.read(totals) else {
                continue;
            };
            for (sum, more) in sums.iter_mut().zip(read) {
                sum.logs = sum.logs.with(&more.logs);
                sum.errors = sum.errors.with(&more.errors);
            }
            for (series, looks) in self.canaries.iter_mut().zip(&totals.looks) {
                for (schedule, look) in series.iter_mut().zip(looks) {
                    // A look at the sum that another router has had is not repeated.
                    if look.looks > schedule.looks {
                        schedule.looks = look.looks;
                        schedule.next_at = schedule.next_at.max(look.next_at);
                    }
                }
            }
        }
        self.others = sums.into_boxed_slice();
        let canaries = 1..self.arms.len();
        let looks = canaries.flat_map(|canary| MEASURES.map(|measure| (canary, measure)));
        looks
            .filter_map(|(canary, measure)| {
                self.take_over(canary, measure);
                self.look(canary, measure)
            })
            .collect()
    }

    /// Computes the result of the last look for reports, if another router had it. That router stops the canary.
    fn take_over(&mut self, canary: usize, measure: Measure) {
        let LookSchedule { looks, last, .. } = self.canaries[canary - 1][measure as usize];
        if last.map_or(0, |look| look.number) == looks {
            return;
        }
        if let Some(look) = self.compare(canary, measure, looks) {
            self.canaries[canary - 1][measure as usize].last = Some(look);
        }
    }

    /// Returns the samples of totals, if they are of the same arms.
    fn read(&self, totals: &EvidenceTotals) -> Option<Vec<OtherSamples>> {
        if totals.arms.len() != self.arms.len() || totals.looks.len() != self.canaries.len() {
            return None;
        }
        let arm = |arm: &ArmTotals| {
            Some(OtherSamples {
                logs: Samples::of_totals(&arm.ttft)?,
                errors: Samples::of_totals(&arm.errors)?,
            })
        };
        totals.arms.iter().map(arm).collect()
    }

    /// Returns the samples of all routers.
    pub(super) fn samples(&self, arm: usize, measure: Measure) -> Samples {
        self.arms[arm]
            .samples(measure)
            .with(self.others[arm].samples(measure))
    }

    /// Returns the number of samples of all routers.
    pub(super) fn count(&self, arm: usize, measure: Measure) -> u64 {
        let others = self.others[arm].samples(measure).count();
        self.arms[arm].samples(measure).count().saturating_add(others)
    }
}

impl OtherSamples {
    fn samples(&self, measure: Measure) -> &Samples {
        match measure {
            Measure::Ttft => &self.logs,
            Measure::Errors => &self.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::RequestResult;
    use crate::rule::{CanaryVerdict, StopCause, StopRule};

    /// Adds requests of all session groups, of which every second one of the canary fails.
    fn add(evidence: &mut Evidence, from: u32, to: u32) -> Vec<WorseArm> {
        let mut worse = Vec::new();
        for at in from..to {
            for arm in [0, 1] {
                let result = RequestResult {
                    ttft: Some(0.1),
                    failed: Some(arm == 1 && at % 2 == 0),
                    ..RequestResult::default()
                };
                worse.extend(evidence.add(arm, (at % 64) as u8, &result));
            }
        }
        worse
    }

    fn rule() -> StopRule {
        StopRule {
            consecutive_failures: 0,
            ..StopRule::default()
        }
    }

    #[test]
    fn requests_of_three_routers_decide_as_those_of_one() {
        let mut alone = Evidence::new(rule(), 2);
        assert_eq!(add(&mut alone, 0, 199), []);
        let found = add(&mut alone, 199, 210);
        let mut routers: Vec<Evidence> = (0..3).map(|_| Evidence::new(rule(), 2)).collect();
        for (at, evidence) in (0..).zip(&mut routers) {
            assert_eq!(add(evidence, at * 70, (at + 1) * 70), [], "none has enough alone");
        }
        let totals: Vec<EvidenceTotals> = routers.iter().map(Evidence::totals).collect();
        let worse = routers[0].set_others(totals[1..].iter());
        let (StopCause::Compared(measure, look), StopCause::Compared(_, of_one)) =
            (worse[0].cause, found[0].cause)
        else {
            panic!("the cause is a comparison")
        };
        assert_eq!((worse[0].arm, measure, look.number), (1, Measure::Errors, 1));
        assert_eq!((look.samples, of_one.samples), (210, 200));
        assert_eq!(
            routers[0].set_others(totals[1..].iter()),
            [],
            "the look is not repeated"
        );

        let looked = routers[0].totals();
        assert_eq!(
            routers[1].set_others([&looked, &totals[2]].into_iter()),
            [],
            "nor by another router"
        );
        assert_eq!(routers[1].totals().looks[0], looked.looks[0]);
        assert_eq!(
            routers[1].verdict(1),
            CanaryVerdict::Worse,
            "its report has the look"
        );
        assert_eq!(
            routers[1].last(1, Measure::Errors),
            routers[0].last(1, Measure::Errors),
            "with the same figures"
        );
    }

    #[test]
    fn totals_of_other_arms_or_without_numbers_are_left_out() {
        let mut evidence = Evidence::new(rule(), 2);
        add(&mut evidence, 0, 100);
        let three = Evidence::new(rule(), 3).totals();
        let mut broken = evidence.totals();
        broken.arms[1].errors[3].1 = f64::NAN;
        let mut short = evidence.totals();
        short.arms[0].ttft.pop();
        let mut counted_wrong = evidence.totals();
        for arm in &mut counted_wrong.arms {
            for (count, _) in arm.ttft.iter_mut().chain(&mut arm.errors) {
                *count = u64::MAX;
            }
        }
        let others = [&three, &broken, &short, &counted_wrong];
        assert_eq!(evidence.set_others(others.into_iter()), []);
        assert_eq!(evidence.count(1, Measure::Errors), 100);
    }
}
