//! The built-in scenarios of a rehearsal: what a router asks every day, what it asks on its worst, and what it never should.

use routing::{FeaturePlan, Phase, Role};

use crate::made_up::{MadeUpCall, Numbers, Recipe, Roles};

/// Every role by turns.
const ALL_ROLES: &[Role] = &[Role::Mixed, Role::Prefill, Role::Decode];

/// One built-in scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    recipe: Recipe,
}

impl Scenario {
    /// Those that a policy with this plan can meet, in the order of a report.
    #[must_use]
    pub fn all(plan: &FeaturePlan) -> Vec<Self> {
        let mut scenarios = everyday();
        scenarios.extend(hostile());
        scenarios.extend(legs());
        if plan.pairs() {
            scenarios.extend(pairs());
        }
        scenarios
    }

    /// How many candidates there are.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.recipe.candidates
    }

    /// Which part of a request is placed.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.recipe.phase
    }

    /// How often the request was decided before.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.recipe.attempt
    }

    /// Returns whether every candidate could take the request at once: no load, nothing held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.recipe.numbers == Numbers::Idle
    }

    /// Laid out for a plan.
    #[must_use]
    pub fn call(&self, plan: &FeaturePlan) -> MadeUpCall {
        MadeUpCall::new(plan, self.recipe, 7)
    }
}

fn everyday() -> Vec<Scenario> {
    let sized = |candidates| Recipe {
        candidates,
        ..Recipe::USUAL
    };
    vec![
        scenario("one", "the only candidate", sized(1)),
        scenario("sixteen", "a busy fleet", Recipe::USUAL),
        scenario("thousand", "1,024 candidates", sized(1024)),
        scenario(
            "no-session",
            "the client names no session",
            Recipe {
                session: false,
                ..Recipe::USUAL
            },
        ),
        scenario(
            "retried",
            "two workers failed it, two are left",
            Recipe {
                attempt: 2,
                ..sized(2)
            },
        ),
        filled("idle", "no load, nothing cached", Numbers::Idle),
        scenario(
            "idle-one",
            "no load, nothing cached, the only candidate",
            Recipe {
                numbers: Numbers::Idle,
                ..sized(1)
            },
        ),
        scenario(
            "some-unknown",
            "an eighth of the numbers is NaN",
            Recipe {
                candidates: 64,
                numbers: Numbers::SomeUnknown,
                ..Recipe::USUAL
            },
        ),
        filled("all-unknown", "every number is NaN", Numbers::All(f64::NAN)),
        filled("overloaded", "a thousand times the load", Numbers::Overloaded),
        filled(
            "shared-prefix",
            "all hold the same system prompt",
            Numbers::SharedPrefix,
        ),
    ]
}

fn hostile() -> Vec<Scenario> {
    vec![
        filled("zero", "every number is 0", Numbers::All(0.0)),
        filled("negative", "every number is -1", Numbers::All(-1.0)),
        filled(
            "infinite",
            "every number is infinite",
            Numbers::All(f64::INFINITY),
        ),
        filled("huge", "every number is 1.8e308", Numbers::All(f64::MAX)),
        scenario(
            "garbage",
            "NaN, infinities, 0, -1, 1.8e308 mixed",
            Recipe {
                candidates: 64,
                numbers: Numbers::Garbage,
                ..Recipe::USUAL
            },
        ),
    ]
}

/// One leg of a split request alone: every policy can be asked for one.
fn legs() -> Vec<Scenario> {
    vec![
        scenario(
            "prefill-leg",
            "prefill and mixed workers, phase prefill",
            Recipe {
                phase: Phase::Prefill,
                roles: Roles::Of(&[Role::Prefill, Role::Mixed]),
                ..Recipe::USUAL
            },
        ),
        scenario(
            "decode-leg",
            "decode workers, phase decode",
            Recipe {
                phase: Phase::Decode,
                roles: Roles::Of(&[Role::Decode]),
                ..Recipe::USUAL
            },
        ),
    ]
}

/// Both legs at once: asked only of those that ask for roles.
fn pairs() -> Vec<Scenario> {
    let of = |turn, alone| Recipe {
        roles: Roles::Pairs(turn, alone),
        ..Recipe::USUAL
    };
    let unknown = Recipe {
        numbers: Numbers::All(f64::NAN),
        ..of(ALL_ROLES, true)
    };
    vec![
        scenario(
            "undivided",
            "a pool of mixed workers",
            Recipe {
                roles: Roles::Of(&[Role::Mixed]),
                ..Recipe::USUAL
            },
        ),
        scenario(
            "pair",
            "no mixed worker",
            of(&[Role::Prefill, Role::Decode], true),
        ),
        scenario(
            "pair-not-alone",
            "no decode worker alone",
            of(&[Role::Prefill, Role::Decode], false),
        ),
        scenario("no-prefill", "decode workers only", of(&[Role::Decode], true)),
        scenario("pair-unknown", "roles, and every number NaN", unknown),
    ]
}

fn scenario(name: &'static str, about: &'static str, recipe: Recipe) -> Scenario {
    Scenario { name, about, recipe }
}

/// Sixteen candidates with numbers from elsewhere.
fn filled(name: &'static str, about: &'static str, numbers: Numbers) -> Scenario {
    let recipe = Recipe {
        numbers,
        ..Recipe::USUAL
    };
    scenario(name, about, recipe)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use routing::{CANDIDATE_CATALOGUE, LeastLoaded, Policy, REQUEST_CATALOGUE, check};

    use super::*;

    /// Every feature there is.
    fn everything() -> FeaturePlan {
        let request: Vec<_> = REQUEST_CATALOGUE.iter().map(|(_, doc)| doc.name).collect();
        let candidate: Vec<_> = CANDIDATE_CATALOGUE.iter().map(|(_, doc)| doc.name).collect();
        FeaturePlan::resolve(&request, &candidate).unwrap()
    }

    #[test]
    fn names_are_unique_and_every_layout_has_its_size() {
        let plan = everything();
        let scenarios = Scenario::all(&plan);
        let names: BTreeSet<_> = scenarios.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), scenarios.len());
        for scenario in scenarios {
            let call = scenario.call(&plan);
            let request = call.request(1);
            let input = call.input(&request);
            let row = plan.candidate().len();
            assert_eq!(
                input.numbers.len(),
                plan.request().len() + scenario.candidates() * row
            );
            assert_eq!(input.ids.len(), scenario.candidates());
        }
    }

    #[test]
    fn the_native_fallback_answers_all_of_them() {
        let fallback = LeastLoaded::default();
        for scenario in Scenario::all(fallback.plan()) {
            let call = scenario.call(fallback.plan());
            let verdict = fallback.decide(&call.input(&call.request(1))).unwrap();
            assert!(check(verdict, call.offer()).is_ok(), "{}", scenario.name);
        }
    }

    #[test]
    fn unknown_leaves_only_what_decides_which_answer_is_right() {
        let plan = FeaturePlan::resolve(
            &["request.body-bytes", "request.decode-alone"],
            &[
                "worker.role",
                "load.requests",
                "worker.weight",
                "prefix.any-tokens",
            ],
        )
        .unwrap();
        let scenarios = Scenario::all(&plan);
        let unknown = scenarios.iter().find(|scenario| scenario.name == "pair-unknown");
        let call = unknown.unwrap().call(&plan);
        let request = call.request(1);
        let numbers = call.input(&request).numbers;
        assert!(numbers[0].is_nan() && numbers[1] == 1.0);
        for (row, numbers) in numbers[2..].chunks_exact(4).enumerate() {
            assert_eq!(numbers[0], (row % 3) as f64);
            assert!(numbers[1..].iter().all(|number| number.is_nan()));
        }
    }
}
