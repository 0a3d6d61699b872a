//! `conductor policy check`: a policy decides the built-in scenarios, as the router would ask it.

mod report;

use std::time::Duration;

use policy_runtime::{Chore, Endurance, PolicySettings, ProbeError, Rehearsal, Scene};
use routing::FaultKind;

pub(super) use self::report::CheckReport;
use super::finding::Finding;
use super::subject::Subject;
use super::table::{size, time};
use super::{engine, print, settings};
use crate::cli::{SettingsArgs, SubjectArgs};
use crate::exit::Exit;

/// A call that takes one part in this many of its CPU budget, or more, is told of.
const MUCH_OF_THE_BUDGET: u32 = 2;
/// The most candidates that the router tries a policy with before it loads it.
const TRIED_WITH: usize = 256;

/// Checks what was asked for.
///
/// # Errors
/// Where the component, its settings or the runtime cannot be had.
pub(super) fn run(args: &SubjectArgs) -> anyhow::Result<Exit> {
    let subject = Subject::find(&args.policy)?;
    let report = check(&subject, &args.settings)?;
    print(&report, args.json)?;
    Ok(report.exit())
}

/// Checks one component.
///
/// # Errors
/// As [`run`].
pub(super) fn check(subject: &Subject, args: &SettingsArgs) -> anyhow::Result<CheckReport> {
    let mut report = CheckReport::of(subject);
    let given = match settings::read(args, &subject.name)? {
        Ok(given) => given,
        Err(mistakes) => {
            report.findings = mistakes;
            return Ok(report);
        }
    };
    match engine()?.rehearse(&subject.name, &subject.bytes, &given.settings) {
        Ok(rehearsal) => {
            report.findings = findings(&rehearsal, &given.settings);
            report.add(rehearsal);
        }
        Err(error) => report.findings.extend(Finding::not_loaded(&error, &given)),
    }
    Ok(report)
}

/// What there is to say against a policy that could be asked.
fn findings(rehearsal: &Rehearsal, settings: &PolicySettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(failed_scenes(&rehearsal.scenes));
    findings.extend(rehearsal.refused.as_ref().map(|error| {
        let message = format!("the router would not load it: failed to {}", super::chain(error));
        Finding::error("trial-failed", message)
    }));
    findings.extend(failed_chores(&rehearsal.chores));
    findings.extend(unrepeatable(&rehearsal.scenes));
    findings.extend(slow(&rehearsal.scenes, settings.cpu_budget));
    findings.extend(unforgetting(&rehearsal.scenes));
    findings.extend(tired(&rehearsal.endurance));
    findings.extend(growing(&rehearsal.endurance, settings));
    findings
}

fn failed_scenes(scenes: &[Scene]) -> Option<Finding> {
    let failed = names(scenes, |scene| scene.outcome.is_err() && !is_over_time(scene));
    (!failed.is_empty()).then(|| {
        let message = if failed.len() == scenes.len() {
            "it failed every scenario".to_owned()
        } else {
            format!("it failed {} of {} scenarios: {}", failed.len(), scenes.len(), failed.join(", "))
        };
        Finding::error("scenarios-failed", message)
            .help("the router's fallback would decide these in its place; answer with a row of the candidates, or `pass`")
    })
}

/// Events and ticks that it did not survive.
fn failed_chores(chores: &[Chore]) -> Vec<Finding> {
    let failed = chores.iter().filter_map(|chore| {
        let failure = chore.outcome.as_ref().err()?;
        let message = format!("it failed at {}: {failure}", chore.about);
        let help = "no decision is the worse for it, but what these events tell is lost: take any worker, kind and number for possible";
        Some(Finding::error("events-failed", message).help(help))
    });
    failed.collect()
}

fn unrepeatable(scenes: &[Scene]) -> Option<Finding> {
    let differing = names(scenes, |scene| !scene.repeats);
    (!differing.is_empty()).then(|| {
        let message = format!(
            "two fresh instances decide the same call differently: {}",
            differing.join(", ")
        );
        Finding::error("not-repeatable", message)
            .help("a recorded decision could not be replayed: use `host.random` and `host.now-us` for chance and time")
    })
}

fn unforgetting(scenes: &[Scene]) -> Option<Finding> {
    let remembering = names(scenes, |scene| !scene.forgets);
    (!remembering.is_empty()).then(|| {
        let message = format!(
            "the same call on the same instance is decided differently the second time: {}",
            remembering.join(", ")
        );
        Finding::warning("keeps-memory", message).help(
            "any of several instances answers a request, and each is thrown away after a fault or a swap: keep what matters in `state`",
        )
    })
}

/// Whether it only took too long, for a fleet larger than those the router tries it with.
fn is_over_time(scene: &Scene) -> bool {
    let kind = scene.outcome.as_ref().err().map(ProbeError::kind);
    kind == Some(FaultKind::Deadline) && scene.scenario.candidates() > TRIED_WITH
}

fn slow(scenes: &[Scene], budget: Duration) -> Option<Finding> {
    let took = |scene: &Scene| scene.warm_in.unwrap_or(scene.first_in);
    let is_slow = |scene: &&Scene| {
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
    Some(Finding::warning("slow", message).help(help))
}

fn tired(endurance: &Endurance) -> Option<Finding> {
    // What fails at once fails its scenarios too.
    let (call, fault) = endurance.fault.as_ref().filter(|(call, _)| *call > 1)?;
    Some(Finding::error(
        "fails-later",
        format!(
            "asked about one request after the other, it failed call {call}: {}: {}",
            fault.kind().as_str(),
            fault.what()
        ),
    ))
}

/// What needs more in the second half of a long run than in the first will need too much one day.
fn growing(endurance: &Endurance, settings: &PolicySettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let [half, whole] = endurance.state_keys;
    if endurance.fault.is_none() && whole > half {
        let message = format!(
            "its `state` grows with the requests: {half} keys halfway through {} of them, {whole} at the end",
            endurance.calls
        );
        let help = "4,096 keys are all there is, and `set` is refused then: delete those that are old, or hash sessions into a few keys";
        findings.push(Finding::warning("state-grows", message).help(help));
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
            "at {} it is ended and begins afresh: give back what `schedule` allocates, the list of candidates too",
            size(settings.memory_bytes)
        );
        findings.push(Finding::warning("memory-grows", message).help(help));
    }
    findings
}

fn names(scenes: &[Scene], wanted: impl Fn(&Scene) -> bool) -> Vec<&'static str> {
    let wanted = scenes.iter().filter(|scene| wanted(scene));
    wanted.map(|scene| scene.scenario.name).collect()
}
