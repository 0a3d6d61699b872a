//! `conductor policy check`: a policy decides the built-in scenarios, as the router would call it.

mod report;

use std::time::Duration;

use observability::error_chain;
use policy_runtime::{Endurance, ListenerCheck, PolicySettings, ProbeError, Rehearsal, RehearsedScenario};
use routing::{FaultKind, Verdict};

pub(crate) use self::report::CheckReport;
pub(super) use self::report::explain_outcome;
use super::component::ComponentFile;
use super::diagnostic::Diagnostic;
use super::progress::StepProgress;
use super::settings::{self, SettingsOrMistakes};
use super::{engine, print};
use crate::args::{GateArgs, IdleVerdict, PolicyCheckArgs};
use crate::{Exit, UsageError};
use operator_tools::units::{size, time};

/// Divisor of the CPU budget. A call that takes at least that part of it is reported.
const MUCH_OF_THE_BUDGET: u32 = 2;
/// The most candidates that the router tries a policy with before it loads it.
const TRIED_WITH: usize = 256;

/// Runs the requested check.
///
/// # Errors
/// Where the component, its settings or the runtime cannot be had.
pub(super) fn run(args: &PolicyCheckArgs) -> anyhow::Result<Exit> {
    let subject = ComponentFile::find(&args.subject.policy).map_err(UsageError::new)?;
    let given = settings::read(&args.subject.settings, &subject.name).map_err(UsageError::new)?;
    let report = check(&subject, given, &args.gate)?;
    print(&report, args.subject.json)?;
    Ok(report.exit())
}

/// Checks one component with these settings. The mistakes of their file are findings.
///
/// # Errors
/// Where the runtime cannot be had.
pub(super) fn check(
    subject: &ComponentFile,
    given: SettingsOrMistakes,
    gate: &GateArgs,
) -> anyhow::Result<CheckReport> {
    let mut report = CheckReport::of(subject);
    let given = match given {
        Ok(given) => given,
        Err(mistakes) => {
            report.findings = mistakes;
            return Ok(report);
        }
    };
    let progress = StepProgress::begin();
    let begins = |step| progress.rehearses(&subject.name, step);
    let rehearsed = engine()?.rehearse(&subject.name, &subject.bytes, &given.settings, begins);
    drop(progress);
    match rehearsed {
        Ok(rehearsal) => {
            report.findings = all_findings(&rehearsal, &given.settings, gate);
            report.add(rehearsal);
        }
        Err(error) => report
            .findings
            .extend(Diagnostic::not_loaded(&error, given.configured.as_ref())),
    }
    Ok(report)
}

/// Returns the diagnostics of a policy that could be called, with the verdicts that the gate does not allow.
pub(super) fn all_findings(
    rehearsal: &Rehearsal,
    settings: &PolicySettings,
    gate: &GateArgs,
) -> Vec<Diagnostic> {
    let mut all = findings(rehearsal, settings);
    all.extend(turned_away(rehearsal, gate));
    all
}

/// Returns the diagnostics of a policy that could be called.
fn findings(rehearsal: &Rehearsal, settings: &PolicySettings) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    findings.extend(failed_scenes(&rehearsal.scenes));
    findings.extend(rehearsal.refused.as_ref().map(|error| {
        let message = format!("the router would not load it: failed to {}", error_chain(error));
        Diagnostic::error("trial-failed", message)
    }));
    findings.extend(failed_listener_checks(&rehearsal.listener_checks));
    findings.extend(unrepeatable(&rehearsal.scenes));
    findings.extend(slow(&rehearsal.scenes, settings.cpu_budget));
    findings.extend(unforgetting(&rehearsal.scenes));
    findings.extend(tired(&rehearsal.endurance));
    findings.extend(growing(&rehearsal.endurance, settings));
    findings
}

fn failed_scenes(scenes: &[RehearsedScenario]) -> Option<Diagnostic> {
    let failed = names(scenes, |scene| scene.outcome.is_err() && !is_over_time(scene));
    (!failed.is_empty()).then(|| {
        let message = if failed.len() == scenes.len() {
            "it failed every scenario".to_owned()
        } else {
            format!("it failed {} of {} scenarios: {}", failed.len(), scenes.len(), failed.join(", "))
        };
        Diagnostic::error("scenarios-failed", message)
            .help("the router's fallback would decide these in its place; answer with a row of the candidates, or `pass`")
    })
}

/// Lists the requests that an idle fleet does not get.
fn turned_away(rehearsal: &Rehearsal, gate: &GateArgs) -> Vec<Diagnostic> {
    let idle = || rehearsal.scenes.iter().filter(|scene| scene.scenario.is_idle());
    let of = |is: fn(&Verdict) -> bool| -> Vec<&'static str> {
        let scenes = idle().filter(|scene| scene.outcome.as_ref().is_ok_and(is));
        scenes.map(|scene| scene.scenario.name).collect()
    };
    let mut findings = Vec::new();
    let rejected = of(|verdict| matches!(verdict, Verdict::Reject(_)));
    if !rejected.is_empty() && !gate.allows(IdleVerdict::Reject) {
        let message = format!(
            "it rejects a request although no worker has any load: {}",
            rejected.join(", ")
        );
        let help = "clients would be refused by an empty fleet: is a comparison reversed, or an unknown number taken for a \
                    large one? --allow reject, if it is intended";
        findings.push(Diagnostic::error("rejects-idle", message).help(help));
    }
    let passed = of(|verdict| matches!(verdict, Verdict::Pass));
    // A scorer without an opinion leaves the choice to the others of its pipeline.
    let is_scorer = rehearsal.description.scores_singly();
    if !passed.is_empty() && !is_scorer && !gate.allows(IdleVerdict::Pass) {
        let message = format!(
            "it passes on a request although no worker has any load, so that the router's fallback decides: {}",
            passed.join(", ")
        );
        let help = "answer with a row of the candidates; --allow pass, if it is intended";
        findings.push(Diagnostic::error("passes-idle", message).help(help));
    }
    let held = of(|verdict| matches!(verdict, Verdict::Queue(_)));
    if !held.is_empty() {
        let message = format!(
            "it holds a request although no worker has any load: {}",
            held.join(", ")
        );
        let help = "nothing ends on an idle fleet, so a held request waits until its next evaluation";
        findings.push(Diagnostic::warning("holds-idle", message).help(help));
    }
    findings
}

/// Lists the events and ticks that failed.
fn failed_listener_checks(listener_checks: &[ListenerCheck]) -> Vec<Diagnostic> {
    let failed = listener_checks.iter().filter_map(|check| {
        let failure = check.outcome.as_ref().err()?;
        let message = format!("it failed at {}: {failure}", check.about);
        let help = "decisions go on, but the information of these events is lost: accept any worker, kind and number";
        Some(Diagnostic::error("events-failed", message).help(help))
    });
    failed.collect()
}

fn unrepeatable(scenes: &[RehearsedScenario]) -> Option<Diagnostic> {
    let differing = names(scenes, |scene| !scene.repeats);
    (!differing.is_empty()).then(|| {
        let message = format!(
            "two fresh instances decide the same call differently: {}",
            differing.join(", ")
        );
        Diagnostic::error("not-repeatable", message)
            .help("a recorded decision could not be replayed: use `host.random` and `host.now-us` for chance and time")
    })
}

fn unforgetting(scenes: &[RehearsedScenario]) -> Option<Diagnostic> {
    let remembering = names(scenes, |scene| !scene.forgets);
    (!remembering.is_empty()).then(|| {
        let message = format!(
            "the same call on the same instance is decided differently the second time: {}",
            remembering.join(", ")
        );
        Diagnostic::warning("keeps-memory", message).help(
            "a request goes to any of several instances, which are discarded after a fault or a swap: keep lasting values in `state`",
        )
    })
}

/// Returns whether a scene only exceeded its time, for a fleet larger than those that the router tries policies with.
fn is_over_time(scene: &RehearsedScenario) -> bool {
    let kind = scene.outcome.as_ref().err().map(ProbeError::kind);
    kind == Some(FaultKind::Deadline) && scene.scenario.candidates() > TRIED_WITH
}

fn slow(scenes: &[RehearsedScenario], budget: Duration) -> Option<Diagnostic> {
    let took = |scene: &RehearsedScenario| scene.warm_in.unwrap_or(scene.first_in);
    let is_slow = |scene: &&RehearsedScenario| {
        is_over_time(scene) || scene.outcome.is_ok() && took(scene) * MUCH_OF_THE_BUDGET >= budget
    };
    let scene = scenes.iter().find(is_slow)?;
    let message = format!(
        "it used {} of CPU time for {} candidates, of a budget of {}",
        time(took(scene)),
        scene.scenario.candidates(),
        time(budget)
    );
    let help = "a call over its budget is ended and the fallback decides: see `conductor policy bench`, and raise `limits` of \
                [policies.NAME] (--cpu-ms here)";
    Some(Diagnostic::warning("slow", message).help(help))
}

fn tired(endurance: &Endurance) -> Option<Diagnostic> {
    // A policy that fails at once fails its scenarios too.
    let (call, fault) = endurance.fault.as_ref().filter(|(call, _)| *call > 1)?;
    Some(Diagnostic::error(
        "fails-later",
        format!(
            "called with one request after the other, it failed call {call}: {}: {}",
            fault.kind().as_str(),
            fault.what()
        ),
    ))
}

/// Returns the diagnostics of resources whose use grows. A second half of a long run that needs more than the first
/// exceeds the limit some day.
fn growing(endurance: &Endurance, settings: &PolicySettings) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let [half, whole] = endurance.state_keys;
    if endurance.fault.is_none() && whole > half {
        let message = format!(
            "its `state` grows with the requests: {half} keys halfway through {} of them, {whole} at the end",
            endurance.calls
        );
        let help = "the limit is 4,096 keys, and `set` is refused above it: delete old keys, or hash sessions into a few keys";
        findings.push(Diagnostic::warning("state-grows", message).help(help));
    }
    let [half, whole] = endurance.memory_bytes;
    if endurance.fault.is_none() && whole > half {
        let message = format!(
            "its memory grows with the requests: {} halfway through {} of them, {} at the end",
            size(half),
            endurance.calls,
            size(whole)
        );
        let help = format!(
            "at {} the instance is ended and started again: free what `schedule` allocates, the list of candidates too",
            size(settings.memory_bytes)
        );
        findings.push(Diagnostic::warning("memory-grows", message).help(help));
    }
    findings
}

fn names(scenes: &[RehearsedScenario], wanted: impl Fn(&RehearsedScenario) -> bool) -> Vec<&'static str> {
    let wanted = scenes.iter().filter(|scene| wanted(scene));
    wanted.map(|scene| scene.scenario.name).collect()
}
