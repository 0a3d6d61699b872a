//! `conductor policy replay`: a policy decides again what a router recorded (`config/RECORD.md`).
//!
//! Decisions of the very same component and parameters are repeated from the recorded inputs. They must come out bit
//! for bit, as must those of pipelines that it was a scorer of. For decisions of other policies, the component is
//! called instead, with the recorded numbers and answers. Its verdict is compared with the recorded choice. Its state
//! begins empty and lives over the log.

mod columns;
mod log;
mod one_call;
mod plan_part;
mod replay_same;
mod replay_with;
mod report;
mod time_outs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use policy_runtime::{PolicySettings, PolicyState, WasmPolicy};
use routing::{DecisionInput, DecisionQueries, RequestFacts, WorkerId};

pub(crate) use self::log::{Lines, LogError};
use self::log::{Log, RecordedDecision};
pub use self::one_call::{ReplayError, ReplayedCall, replay_call};
use self::plan_part::part_of;
use self::replay_with::ComparedPolicy;
use self::report::ReplayReport;
use self::time_outs::TimeOuts;
use super::component::ComponentFile;
use super::{engine, print, settings};
use crate::args::ReplayArgs;
use crate::{Exit, UsageError};

/// Time limit of one decision.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `conductor policy replay`.
///
/// # Errors
/// If the component, its settings or the log cannot be read, or the runtime cannot start.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let subject = ComponentFile::find(&args.policy).map_err(UsageError::new)?;
    let settings = patient(chosen_settings(args, &subject)?, PATIENCE);
    let engine = engine()?;
    let state = Arc::<PolicyState>::default();
    let policy = engine.load(&subject.name, &subject.bytes, &settings, state)?;
    let report = replay(&policy, &subject, &settings, Log::open(&args.log)).map_err(UsageError::new)?;
    print(&report, args.json)?;
    Ok(report.exit())
}

/// Returns the given settings, else those of this component in the log.
fn chosen_settings(args: &ReplayArgs, subject: &ComponentFile) -> anyhow::Result<PolicySettings> {
    let mut settings = match settings::read(&args.settings, &subject.name).map_err(UsageError::new)? {
        Ok(given) => given.settings,
        Err(mistakes) => {
            let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            bail!("failed to use the configuration:\n{}", mistakes.join("\n"));
        }
    };
    if args.settings.params.is_none() && args.settings.config.is_none() {
        let mut recorded = log::params_of(&args.log, &subject.sha256()).map_err(UsageError::new)?;
        match (recorded.pop(), recorded.is_empty()) {
            (Some(params), true) => settings.params_json = params,
            (None, _) => {}
            (Some(params), false) => {
                recorded.push(params);
                let recorded = recorded.join(", ");
                bail!(
                    "the log has this component with several parameters: choose one with --params, of {recorded}"
                );
            }
        }
    }
    Ok(settings)
}

/// Raises the time limits: no request waits, and a recorded decision must not time out here.
fn patient(settings: PolicySettings, patience: Duration) -> PolicySettings {
    PolicySettings {
        cpu_budget: settings.cpu_budget.max(patience),
        wall_limit: settings.wall_limit.max(patience),
        ..settings
    }
}

fn replay(
    policy: &WasmPolicy,
    subject: &ComponentFile,
    settings: &PolicySettings,
    mut log: Log<'_>,
) -> Result<ReplayReport, LogError> {
    let mut report = ReplayReport::new(subject, settings);
    let mut compared = ComparedPolicy::new(policy);
    let mut time_outs = TimeOuts::default();
    while let Some(recorded) = log.next()? {
        if time_outs.are_too_many() {
            report.ended_early = true;
            break;
        }
        let made_by = &recorded.policy;
        let is_own = made_by.sha256.as_deref() == Some(policy.sha256())
            && made_by.params.as_deref() == Some(&*settings.params_json);
        if is_own {
            report.again.add(policy, &recorded, &mut time_outs);
        } else if let Some(part) = part_of(policy, &settings.params_json, &recorded) {
            report.as_scorer.add_part(policy, &recorded, part, &mut time_outs);
        } else if !recorded.line.fallback {
            compared.compare(&recorded, &mut report.other, &mut time_outs);
        }
    }
    report.read(&log);
    Ok(report)
}

impl RecordedDecision {
    fn facts(&self) -> RequestFacts {
        let line = &self.line;
        let session = line.session.as_deref();
        RequestFacts {
            seq: line.seq,
            run: self.run,
            session: session.and_then(|session| u64::from_str_radix(session, 16).ok()),
            phase: line.phase.into(),
            attempt: line.attempt,
            now_us: line.now_us,
        }
    }

    fn ids(&self) -> Vec<WorkerId> {
        self.line.ids.iter().copied().map(WorkerId).collect()
    }

    /// Calls `call` with the recorded decision, other numbers and other answers. Returns its time in nanoseconds.
    fn timed_call<T>(
        &self,
        numbers: &[f64],
        queries: &Arc<dyn DecisionQueries>,
        call: impl FnOnce(&DecisionInput<'_>) -> T,
    ) -> (T, u64) {
        let (facts, ids) = (self.facts(), self.ids());
        let input = DecisionInput {
            request: &facts,
            ids: &ids,
            numbers,
            queries,
        };
        let start = Instant::now();
        let answer = call(&input);
        let took = start.elapsed().as_nanos();
        (answer, u64::try_from(took).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
