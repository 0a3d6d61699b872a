//! Built-in scenarios of a rehearsal: typical, extreme and invalid inputs.

use routing::{FeaturePlan, Phase, Role};

use crate::synthetic::{FleetRoles, InputRecipe, NumberSource, SyntheticCall};

/// Every role in alternation.
const ALL_ROLES: &[Role] = &[Role::Mixed, Role::Prefill, Role::Decode];

/// A built-in scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Name in reports.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    recipe: InputRecipe,
}

impl Scenario {
    /// Returns the scenarios that apply to this plan, in report order.
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

    /// Returns the number of candidates.
    #[must_use]
    pub fn candidates(&self) -> usize {
        self.recipe.candidates
    }

    /// Returns the placed part of a request.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.recipe.phase
    }

    /// Returns the number of earlier decisions about the request.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.recipe.attempt
    }

    /// Returns `true` if every candidate could take the request at once: no load, nothing held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.recipe.numbers == NumberSource::Idle
    }

    /// Returns the input in the layout of a plan.
    #[must_use]
    pub fn call(&self, plan: &FeaturePlan) -> SyntheticCall {
        SyntheticCall::new(plan, self.recipe, 7)
    }
}

fn everyday() -> Vec<Scenario> {
    let sized = |candidates| InputRecipe {
        candidates,
        ..InputRecipe::USUAL
    };
    vec![
        scenario("one", "the only candidate", sized(1)),
        scenario("sixteen", "a busy fleet", InputRecipe::USUAL),
        scenario("thousand", "1,024 candidates", sized(1024)),
        scenario(
            "no-session",
            "the client names no session",
            InputRecipe {
                session: false,
                ..InputRecipe::USUAL
            },
        ),
        scenario(
            "retried",
            "two workers failed it, two are left",
            InputRecipe {
                attempt: 2,
                ..sized(2)
            },
        ),
        filled("idle", "no load, nothing cached", NumberSource::Idle),
        scenario(
            "idle-one",
            "no load, nothing cached, the only candidate",
            InputRecipe {
                numbers: NumberSource::Idle,
                ..sized(1)
            },
        ),
        scenario(
            "some-unknown",
            "an eighth of the numbers is NaN",
            InputRecipe {
                candidates: 64,
                numbers: NumberSource::SomeUnknown,
                ..InputRecipe::USUAL
            },
        ),
        filled("all-unknown", "every number is NaN", NumberSource::All(f64::NAN)),
        filled(
            "unknown-prompt",
            "no token of the prompt is known",
            NumberSource::UnknownPrompt,
        ),
        filled(
            "overloaded",
            "a thousand times the load",
            NumberSource::Overloaded,
        ),
        filled(
            "shared-prefix",
            "all hold the same system prompt",
            NumberSource::SharedPrefix,
        ),
    ]
}

fn hostile() -> Vec<Scenario> {
    vec![
        filled("zero", "every number is 0", NumberSource::All(0.0)),
        filled("negative", "every number is -1", NumberSource::All(-1.0)),
        filled(
            "infinite",
            "every number is infinite",
            NumberSource::All(f64::INFINITY),
        ),
        filled("huge", "every number is 1.8e308", NumberSource::All(f64::MAX)),
        scenario(
            "garbage",
            "NaN, infinities, 0, -1, 1.8e308 mixed",
            InputRecipe {
                candidates: 64,
                numbers: NumberSource::Garbage,
                ..InputRecipe::USUAL
            },
        ),
    ]
}

/// Returns scenarios of one leg of a split request: they apply to every policy.
fn legs() -> Vec<Scenario> {
    vec![
        scenario(
            "prefill-leg",
            "prefill and mixed workers, phase prefill",
            InputRecipe {
                phase: Phase::Prefill,
                roles: FleetRoles::Of(&[Role::Prefill, Role::Mixed]),
                ..InputRecipe::USUAL
            },
        ),
        scenario(
            "decode-leg",
            "decode workers, phase decode",
            InputRecipe {
                phase: Phase::Decode,
                roles: FleetRoles::Of(&[Role::Decode]),
                ..InputRecipe::USUAL
            },
        ),
    ]
}

/// Returns scenarios of both legs: they apply only to policies that request roles.
fn pairs() -> Vec<Scenario> {
    let of = |turn, alone| InputRecipe {
        roles: FleetRoles::Pairs(turn, alone),
        ..InputRecipe::USUAL
    };
    let unknown = InputRecipe {
        numbers: NumberSource::All(f64::NAN),
        ..of(ALL_ROLES, true)
    };
    vec![
        scenario(
            "undivided",
            "a pool of mixed workers",
            InputRecipe {
                roles: FleetRoles::Of(&[Role::Mixed]),
                ..InputRecipe::USUAL
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

fn scenario(name: &'static str, about: &'static str, recipe: InputRecipe) -> Scenario {
    Scenario { name, about, recipe }
}

/// Returns a scenario of sixteen candidates with these numbers.
fn filled(name: &'static str, about: &'static str, numbers: NumberSource) -> Scenario {
    let recipe = InputRecipe {
        numbers,
        ..InputRecipe::USUAL
    };
    scenario(name, about, recipe)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use routing::{
        CANDIDATE_CATALOGUE, LeastLoaded, Policy, PolicyDescription, REQUEST_CATALOGUE, Tier, check,
    };

    use super::*;

    /// Returns a plan of all features.
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
    fn an_unknown_prompt_has_an_empty_list_of_matches_beside_known_loads() {
        let plan = FeaturePlan::resolve(
            &["request.prompt-tokens", "prefix.best-tokens"],
            &["prefix.any-tokens", "worker.weight"],
        )
        .unwrap();
        for scenario in Scenario::all(&plan) {
            let call = scenario.call(&plan);
            let request = call.request(1);
            let input = call.input(&request);
            let is_unknown = ["unknown-prompt", "all-unknown"].contains(&scenario.name);
            let rows = if is_unknown { 0 } else { scenario.candidates() };
            assert_eq!(input.queries.matched(Tier::Disk).len(), rows, "{}", scenario.name);
            if is_unknown {
                assert_eq!(input.queries.holders(0), 0, "{}", scenario.name);
                assert!(input.numbers[..3].iter().all(|number| number.is_nan()));
                assert_eq!(input.numbers[3].is_nan(), scenario.name == "all-unknown");
            }
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
