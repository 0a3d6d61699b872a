//! Outcome of a reload: made of a commit, and logged.

use admin_pages::control::{Changes, ReloadOutcome};
use tracing::{error, info};

use super::commit::Commit;

/// Returns the outcome of a new text.
pub(super) fn of_text(Commit { config, policies }: Commit) -> ReloadOutcome {
    let swapped = policies.swapped.into_iter();
    ReloadOutcome::Applied(Box::new(Changes {
        is_of_text: true,
        config,
        policy_versions: swapped.map(|swapped| swapped.policy).collect(),
        ..Changes::default()
    }))
}

/// Returns the outcome of new keys, certificates or tokenizers.
pub(super) fn of_resources() -> ReloadOutcome {
    ReloadOutcome::Applied(Box::new(Changes {
        resources: true,
        ..Changes::default()
    }))
}

/// Logs the outcome of a reload that a signal requested. New changes and new errors have lines of their own.
pub(super) fn log(result: &ReloadOutcome, generation: u64) {
    let outcome = result.as_str();
    match result {
        ReloadOutcome::Applied(_) => info!(generation, outcome, "reload after SIGHUP: the files are applied"),
        ReloadOutcome::Unchanged => info!(
            generation,
            outcome, "reload after SIGHUP: the files equal the active configuration: nothing changed"
        ),
        ReloadOutcome::Waiting { policies } => info!(
            generation,
            outcome,
            policies = policies.join(", "),
            "reload after SIGHUP: the configuration waits for policies that are being compiled"
        ),
        ReloadOutcome::Refused { step, problems } => {
            let first = problems.iter().find(|problem| problem.severity == "error");
            let (line, column) = first.map_or((1, 1), |problem| (problem.line, problem.column));
            let message = first.map_or("", |problem| &problem.message);
            error!(
                generation,
                outcome,
                step = step.as_str(),
                problems = problems.len(),
                line,
                column,
                "reload after SIGHUP: the configuration is refused and the old one stays: {message}"
            );
        }
    }
}
