//! What a policy can ask while it decides one request.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use routing::{Aims, DecisionQueries, Tier, Worker, WorkerId};

use super::columns::Sight;
use super::view::{AskedPrompt, Matches, Reader};

/// The path of every request of a trace.
const PATH: &str = "/v1/completions";

/// The candidates of one call, and the prompt they are for. A trace has no headers and no model.
pub(super) struct CallQueries {
    reader: Reader,
    aims: Arc<Mutex<Aims>>,
    prompt: Arc<AskedPrompt>,
    workers: Vec<Arc<Worker>>,
    /// Of the candidates, row by row.
    ids: Vec<WorkerId>,
    /// Filled at once for a policy that has a column of it, else by the first question.
    matches: OnceLock<Matches>,
}

impl CallQueries {
    pub(super) fn new(sight: &Sight, prompt: &Arc<AskedPrompt>, workers: Vec<Arc<Worker>>) -> Self {
        Self {
            reader: sight.view.reader().clone(),
            aims: Arc::clone(&sight.aims),
            prompt: Arc::clone(prompt),
            ids: workers.iter().map(|worker| worker.id()).collect(),
            workers,
            matches: OnceLock::new(),
        }
    }

    pub(super) fn ids(&self) -> &[WorkerId] {
        &self.ids
    }

    /// The matches, if the index was asked.
    pub(super) fn asked(&self) -> Option<&Matches> {
        self.matches.get()
    }

    /// Asks the index unless it was.
    pub(super) fn matches(&self) -> &Matches {
        self.matches
            .get_or_init(|| self.reader.ask(&self.prompt, &self.ids))
    }
}

impl DecisionQueries for CallQueries {
    fn candidates(&self) -> &[WorkerId] {
        &self.ids
    }

    fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.workers.iter().find(|worker| worker.id() == id).cloned()
    }

    fn matched(&self, tier: Tier) -> Vec<u32> {
        self.matches().on(tier).collect()
    }

    fn holders(&self, tokens: u32) -> u32 {
        // `Disk` is the slowest tier: whatever is held at all.
        let holders = self.matches().on(Tier::Disk).filter(|held| *held >= tokens);
        u32::try_from(holders.count()).unwrap_or(u32::MAX)
    }

    fn ahead(&self, most: &[u32]) -> Vec<u32> {
        let aims = self.aims.lock().unwrap_or_else(PoisonError::into_inner);
        aims.ahead(&self.ids, most)
    }

    fn path(&self) -> &str {
        PATH
    }
}
