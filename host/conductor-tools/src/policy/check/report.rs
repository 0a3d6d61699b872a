//! Report of a check, for people and for tools.

use std::fmt;

use policy_runtime::{ListenerCheck, ProbeError, Rehearsal, RehearsedScenario};
use routing::{Phase, Verdict};
use serde::Serialize;

use super::super::component::ComponentFile;
use super::super::diagnostic::{Diagnostic, Severity};
use crate::Exit;
use operator_tools::table::{Side, Table};
use operator_tools::units::{micros, size, time};

/// The whole of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct CheckReport {
    file: String,
    bytes: usize,
    sha256: String,
    /// Set if the router would load the component and no scenario failed.
    ok: bool,
    pub(super) findings: Vec<Diagnostic>,
    #[serde(flatten)]
    rehearsed: Option<Rehearsed>,
}

/// Observations of a policy that could be called.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Rehearsed {
    name: String,
    version: String,
    request_features: Vec<String>,
    candidate_features: Vec<String>,
    /// True if a pipeline may have it as a scorer.
    scores: bool,
    compiled_us: f64,
    instantiated_us: f64,
    scenarios: Vec<ScenarioReport>,
    endurance: EnduranceReport,
    /// Events and ticks that were delivered. Empty if the policy subscribes to no events and does not tick.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    listener_checks: Vec<ListenerReport>,
}

/// Delivered events, or ticks.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ListenerReport {
    about: &'static str,
    fault: Option<String>,
    took_us: f64,
}

/// One scenario.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ScenarioReport {
    scenario: &'static str,
    about: &'static str,
    candidates: usize,
    phase: &'static str,
    attempt: u32,
    #[serde(flatten)]
    outcome: Outcome,
    first_us: f64,
    warm_us: Option<f64>,
    repeats: bool,
    forgets: bool,
}

/// Outcome of a verdict in the router.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
enum Outcome {
    /// The request is placed. A score that is no finite number is null.
    Route {
        row: u32,
        prefill: Option<u32>,
        score: f64,
    },
    /// Holds it.
    Queue {
        order: f64,
        ask_again_ms: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        waits_for_row: Option<u32>,
    },
    /// Refuses it.
    Reject {
        status: u16,
        retry_after_ms: u32,
        reason: String,
    },
    /// Leaves it to the fallback.
    Pass,
    /// Leaves it to the fallback too, and counts a fault.
    Fault { fault: &'static str, detail: String },
}

/// Many requests in a row, halfway and at the end.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct EnduranceReport {
    calls: u64,
    failed_call: Option<u64>,
    state_keys: [usize; 2],
    memory_bytes: [usize; 2],
}

impl CheckReport {
    /// Returns an empty report of a component.
    pub(super) fn of(subject: &ComponentFile) -> Self {
        Self {
            file: subject.label.clone(),
            bytes: subject.bytes.len(),
            sha256: subject.sha256(),
            ok: false,
            findings: vec![],
            rehearsed: None,
        }
    }

    /// Adds the observations. The caller has added the findings before.
    pub(super) fn add(&mut self, rehearsal: Rehearsal) {
        let is_error = |finding: &Diagnostic| finding.severity == Severity::Error;
        self.ok = !self.findings.iter().any(is_error);
        self.rehearsed = Some(rehearsal.into());
    }

    /// Returns whether the router would load it and no scenario failed.
    pub(crate) fn is_ok(&self) -> bool {
        self.ok
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        if self.is_ok() {
            Exit::Success
        } else {
            Exit::Failure
        }
    }
}

impl From<Rehearsal> for Rehearsed {
    fn from(rehearsal: Rehearsal) -> Self {
        let description = rehearsal.description;
        let endurance = rehearsal.endurance;
        Self {
            scores: description.scores_singly(),
            name: description.manifest.name,
            version: description.manifest.version,
            request_features: description.request_features,
            candidate_features: description.candidate_features,
            compiled_us: micros(rehearsal.compiled_in),
            instantiated_us: micros(rehearsal.instantiated_in),
            scenarios: rehearsal.scenes.into_iter().map(ScenarioReport::from).collect(),
            listener_checks: rehearsal
                .listener_checks
                .into_iter()
                .map(ListenerReport::from)
                .collect(),
            endurance: EnduranceReport {
                calls: endurance.calls,
                failed_call: endurance.fault.map(|(call, _)| call),
                state_keys: endurance.state_keys,
                memory_bytes: endurance.memory_bytes,
            },
        }
    }
}

impl From<ListenerCheck> for ListenerReport {
    fn from(check: ListenerCheck) -> Self {
        Self {
            about: check.about,
            fault: check.outcome.err().map(|failure| failure.to_string()),
            took_us: micros(check.took),
        }
    }
}

impl From<RehearsedScenario> for ScenarioReport {
    fn from(scene: RehearsedScenario) -> Self {
        Self {
            scenario: scene.scenario.name,
            about: scene.scenario.about,
            candidates: scene.scenario.candidates(),
            phase: match scene.scenario.phase() {
                Phase::Mixed => "mixed",
                Phase::Prefill => "prefill",
                Phase::Decode => "decode",
            },
            attempt: scene.scenario.attempt(),
            outcome: scene.outcome.into(),
            first_us: micros(scene.first_in),
            warm_us: scene.warm_in.map(micros),
            repeats: scene.repeats,
            forgets: scene.forgets,
        }
    }
}

/// Returns the outcome of a scene as a line of text.
pub(in crate::policy) fn explain_outcome(outcome: Result<Verdict, ProbeError>) -> String {
    Outcome::from(outcome).to_string()
}

impl From<Result<Verdict, ProbeError>> for Outcome {
    fn from(outcome: Result<Verdict, ProbeError>) -> Self {
        match outcome {
            Ok(Verdict::Route(choice)) => Self::Route {
                row: choice.row,
                prefill: choice.prefill,
                score: choice.score,
            },
            Ok(Verdict::Queue(hold)) => Self::Queue {
                order: hold.order,
                ask_again_ms: hold.ask_again_ms,
                waits_for_row: hold.waits_for.map(|waits| waits.row),
            },
            Ok(Verdict::Reject(rejection)) => Self::Reject {
                status: rejection.status,
                retry_after_ms: rejection.retry_after_ms,
                reason: rejection.reason,
            },
            Ok(Verdict::Pass) => Self::Pass,
            Err(error) => Self::Fault {
                fault: error.kind().as_str(),
                detail: error.what(),
            },
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route { row, prefill, score } => {
                write!(f, "row {row}")?;
                if let Some(prefill) = prefill {
                    write!(f, ", prefill row {prefill}")?;
                }
                let is_plain = score.is_nan() || score.abs() < 1e12;
                if is_plain {
                    write!(f, ", score {score:.4}")
                } else {
                    write!(f, ", score {score:e}")
                }
            }
            Self::Queue {
                order,
                ask_again_ms,
                waits_for_row,
            } => {
                write!(f, "queue, order {order}, again in {ask_again_ms} ms")?;
                waits_for_row.map_or(Ok(()), |row| write!(f, ", waits for row {row}"))
            }
            Self::Reject { status, reason, .. } => write!(f, "reject {status}: {}", first(reason)),
            Self::Pass => write!(f, "pass"),
            Self::Fault { fault, detail } => write!(f, "FAULT {fault}: {}", first(detail)),
        }
    }
}

/// Returns the part of a text that fits on a line.
fn first(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(60)
        .collect()
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if let Some(rehearsed) = &self.rehearsed {
            write!(f, "{} {}, ", rehearsed.name, rehearsed.version)?;
        }
        writeln!(f, "{}, sha256 {}", size(self.bytes), self.sha256)?;
        if let Some(rehearsed) = &self.rehearsed {
            write!(f, "{rehearsed}")?;
        }
        for finding in &self.findings {
            write!(f, "{finding}")?;
        }
        writeln!(f, "{}", if self.ok { "ok" } else { "not ok" })
    }
}

impl fmt::Display for Rehearsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "compiled in {}, a fresh instance takes {}",
            us(self.compiled_us),
            us(self.instantiated_us)
        )?;
        let requested: Vec<&str> = (self.request_features.iter())
            .chain(&self.candidate_features)
            .map(String::as_str)
            .collect();
        writeln!(
            f,
            "requests {}\n",
            if requested.is_empty() {
                "nothing".into()
            } else {
                requested.join(", ")
            }
        )?;
        if self.scores {
            writeln!(
                f,
                "a scorer: a pipeline weighs all its scores, and by itself it decides for the highest\n"
            )?;
        }
        writeln!(f, "{}", scenario_table(&self.scenarios))?;
        for check in &self.listener_checks {
            let outcome = check.fault.as_deref().map_or_else(|| "no fault".into(), first);
            writeln!(f, "{}: {outcome}, in {}", check.about, us(check.took_us))?;
        }
        write!(f, "{}", self.endurance)
    }
}

/// Returns a time that is reported in microseconds.
fn us(us: f64) -> String {
    time(std::time::Duration::from_secs_f64(us / 1e6))
}

fn scenario_table(scenarios: &[ScenarioReport]) -> Table {
    let mut table = Table::new(&[
        ("scenario", Side::Left),
        ("candidates", Side::Right),
        ("first", Side::Right),
        ("warm", Side::Right),
        ("decided", Side::Left),
    ]);
    for scene in scenarios {
        table.row([
            scene.scenario.to_owned(),
            scene.candidates.to_string(),
            us(scene.first_us),
            scene.warm_us.map_or_else(String::new, us),
            scene.outcome.to_string(),
        ]);
    }
    table
}

impl fmt::Display for EnduranceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            calls,
            failed_call,
            state_keys,
            memory_bytes,
        } = self;
        match failed_call {
            Some(call) => writeln!(f, "requests in a row: call {call} failed"),
            None => writeln!(
                f,
                "{calls} requests in a row: no fault, {} keys of `state`, {} of memory",
                state_keys[1],
                size(memory_bytes[1])
            ),
        }
    }
}
