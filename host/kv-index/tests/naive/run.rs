//! Acts a script out on an index and on the model, and compares as it goes.

use kv_index::SharedPrefixIndex;
use routing::{BlockEvent, WorkerId};

use super::engines::{Act, Engines, queried};
use super::model::Model;
use super::oracle::{compare, never_more, same_counts};
use super::script::Script;

/// Claim to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Every event has the same effect and every question the same answer.
    Equal,
    /// No answer is larger: the index may have had to leave blocks out.
    NeverMore,
}

/// Counts of the work done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// Whole events.
    pub(crate) events: u64,
    /// Blocks they named; 1 for an event that names none.
    pub(crate) blocks: u64,
    /// Number of queried prompts, each at all workers.
    pub(crate) questions: u64,
}

impl Done {
    pub(crate) fn add(&mut self, other: Self) {
        self.events += other.events;
        self.blocks += other.blocks;
        self.questions += other.questions;
    }

    fn count(&mut self, act: &Act) {
        self.events += 1;
        self.blocks += match act {
            Act::Apply(_, BlockEvent::Stored(stored)) => stored.hashes.len().max(1) as u64,
            Act::Apply(_, BlockEvent::Removed(removed)) => removed.hashes.len().max(1) as u64,
            _ => 1,
        };
    }
}

/// Runs a script. The index must be empty at first, or hold nothing of the script's workers. All prompts are queried
/// after every `pause` steps and after the last three.
pub(crate) fn run(
    index: &SharedPrefixIndex,
    script: &Script,
    claim: Claim,
    pause: usize,
) -> Result<Done, String> {
    let (mut model, mut engines, mut done) = (Model::default(), Engines::new(script), Done::default());
    let workers: Vec<WorkerId> = (0..script.workers).map(WorkerId).collect();
    for (at, step) in script.steps.iter().enumerate() {
        let act = engines.act(step);
        done.count(&act);
        let (found, expected, event) = match act {
            Act::RemoveWorker(worker) => (index.remove_worker(worker), model.remove_worker(worker), None),
            Act::Apply(holder, event) => (
                index.apply(holder, &event),
                model.apply(holder, &event),
                Some(event),
            ),
        };
        if claim == Claim::Equal {
            same_counts(found, expected).map_err(|unlike| format!("step {at}, {event:?}: {unlike}"))?;
        }
        if at + 3 < script.steps.len() && !at.is_multiple_of(pause) {
            continue;
        }
        for queried in script.prompts.iter().filter_map(queried) {
            let compared = match claim {
                Claim::Equal => compare(index, &model, &queried, &workers),
                Claim::NeverMore => never_more(index, &model, &queried, &workers),
            };
            compared.map_err(|unlike| format!("after step {at}: {unlike}"))?;
            done.questions += 1;
        }
        for &worker in workers.iter().filter(|_| claim == Claim::Equal) {
            let (found, expected) = (index.held_blocks(worker), model.held_blocks(worker));
            if found != expected {
                return Err(format!(
                    "after step {at}: {worker:?} holds {expected} blocks, the index says {found}"
                ));
            }
        }
    }
    Ok(done)
}
