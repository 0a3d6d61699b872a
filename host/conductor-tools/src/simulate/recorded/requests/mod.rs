//! The requests of a decision log (`config/RECORD.md`), pool by pool, with the workers and the policies that had them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use decision_log::{
    BLOCK_HASH_BYTES, DecidedLine, DecisionLine, Line, OutcomeLine, PhaseName, PolicyLine, SCHEMA, WorkerLine,
};
use routing::Role;
use serde::Serialize;
use simulator::{RecordedRequest, WorkerIdentity};

use crate::policy::{LogError, LogLines};

/// Requests in the files of a log.
#[derive(Debug, Default)]
pub(super) struct LoggedRequests {
    pub(super) pools: BTreeMap<String, LoggedPool>,
    /// Lines that are no line of a log.
    pub(super) unreadable: u64,
    /// Requests that ended without a decision in the log, which names the pool: they were refused before it, or its
    /// line is missing.
    pub(super) without_decision: u64,
    /// Requests that were recorded, and those that there were.
    numbers: (u64, u64),
    run: RecordedProcess,
}

/// Requests of one pool.
#[derive(Debug, Default)]
pub(super) struct LoggedPool {
    pub(super) requests: Vec<RecordedRequest>,
    /// Workers by the index that requests have.
    pub(super) workers: Vec<LoggedWorker>,
    /// Their indices in the order of the router's pool.
    order: Vec<usize>,
    /// Facts of the requests, in their order.
    facts: Vec<RequestFacts>,
    /// Policies that placed them.
    policies: Vec<LoggedPolicy>,
    /// Prompt tokens of blocks, of requests that have any.
    pub(super) block_tokens: Option<u32>,
    pub(super) left_out: LeftOut,
}

/// Facts of a request that a simulation has no use for.
#[derive(Debug, Clone, Copy)]
struct RequestFacts {
    at_us: u64,
    /// Index of the policy that placed it.
    policy: usize,
    has_blocks: bool,
    /// Time from arrival to first decision, in milliseconds.
    before_ms: f64,
}

/// Facts of the requests that are simulated.
#[derive(Debug, PartialEq)]
pub(super) struct PartFacts {
    pub(super) requests: usize,
    /// Policy that placed most of them, and their number.
    pub(super) policy: (LoggedPolicy, usize),
    /// Requests that have blocks.
    pub(super) with_blocks: usize,
    /// Sum of the times from arrival to first decision, in milliseconds.
    pub(super) before_ms: f64,
}

/// A worker of the log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoggedWorker {
    pub(super) role: Role,
    pub(super) identity: WorkerIdentity,
}

/// A policy of the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LoggedPolicy {
    pub(super) name: String,
    pub(super) sha256: Option<String>,
    pub(super) params: Option<String>,
}

/// Requests of the log that are not simulated, by why.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LeftOut {
    /// They were refused, broken off, or their client left.
    pub(super) not_served: u64,
    /// Their decision, or its worker, is not in the log.
    pub(super) not_placed: u64,
    /// Requests of unknown prompt or answer length.
    pub(super) lengths_unknown: u64,
    /// Their end is not in the log.
    pub(super) unfinished: u64,
}

/// Lines of one run of a router.
#[derive(Debug, Default)]
struct RecordedProcess {
    name: String,
    /// Policies as the file being read names them.
    policies: HashMap<u32, LoggedPolicy>,
    workers: HashMap<u32, LoggedWorker>,
    /// Requests that have been decided and have not ended.
    open: HashMap<u64, Placing>,
    /// The least and the greatest number of a request, and how many have ended.
    seqs: Option<(u64, u64)>,
    ended: u64,
}

/// Decisions of a request so far.
#[derive(Debug)]
struct Placing {
    pool: String,
    /// Times of the first decision and of the last one about its prompt, in microseconds since 1970.
    first_us: u64,
    dispatched_us: Option<u64>,
    session: Option<u64>,
    model: Arc<str>,
    policy: Option<LoggedPolicy>,
}

impl LoggedRequests {
    /// Reads the files of a log in their order.
    pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let mut text = Vec::new();
        for path in files {
            let mut lines = LogLines::open(path)?;
            while lines.read(&mut text)? {
                match serde_json::from_slice::<Line>(&text) {
                    Ok(Line::Log(log)) if log.schema != SCHEMA => {
                        let (path, found) = (path.clone(), log.schema);
                        return Err(LogError::Schema { path, found }.into());
                    }
                    Ok(line) => all.line(line)?,
                    Err(_) => all.unreadable += 1,
                }
            }
        }
        all.end_run();
        Ok(all)
    }

    /// Returns the share of the router's requests that were recorded; 1 where there were none.
    pub(super) fn share(&self) -> f64 {
        let (recorded, all) = self.numbers;
        if all == 0 {
            1.0
        } else {
            recorded as f64 / all as f64
        }
    }

    fn line(&mut self, line: Line) -> anyhow::Result<()> {
        match line {
            Line::Log(log) => {
                if log.run != self.run.name {
                    self.end_run();
                    self.run.name = log.run;
                }
                self.run.policies.clear();
                self.run.workers.clear();
            }
            Line::Worker(line) => {
                self.run.workers.insert(line.id, line.into());
            }
            Line::Policy(line) => {
                self.run.policies.insert(line.id, line.into());
            }
            Line::Decision(line) => self.decision(&line),
            Line::Outcome(line) => self.outcome(*line)?,
        }
        Ok(())
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if let Some((least, greatest)) = run.seqs {
            self.numbers.0 += run.ended;
            self.numbers.1 += greatest - least + 1;
        }
        for placing in run.open.into_values() {
            let pool = self.pools.entry(placing.pool).or_default();
            pool.left_out.unfinished += 1;
        }
    }

    fn decision(&mut self, line: &DecisionLine) {
        let pool = self.pools.entry(line.pool.clone()).or_default();
        pool.candidates(line.ids.iter().filter_map(|id| self.run.workers.get(id)));
        // The time of a decision is that of its end.
        let first_us = line.unix_us.saturating_sub(line.took_us.0 as u64);
        let session = line.session.as_deref();
        let placing = self.run.open.entry(line.seq).or_insert_with(|| Placing {
            pool: line.pool.clone(),
            first_us,
            dispatched_us: None,
            session: session.and_then(|session| u64::from_str_radix(session, 16).ok()),
            model: line.model.as_str().into(),
            policy: None,
        });
        let is_placed = matches!(line.decided, Some(DecidedLine::Route { .. }));
        if is_placed && line.phase != PhaseName::Decode {
            placing.dispatched_us = Some(line.unix_us);
            placing.policy = self.run.policies.get(&line.policy).cloned();
        }
    }

    fn outcome(&mut self, line: OutcomeLine) -> anyhow::Result<()> {
        let run = &mut self.run;
        let (least, greatest) = run.seqs.unwrap_or((line.seq, line.seq));
        run.seqs = Some((least.min(line.seq), greatest.max(line.seq)));
        run.ended += 1;
        let Some(placing) = run.open.remove(&line.seq) else {
            self.without_decision += 1;
            return Ok(());
        };
        let pool = self.pools.entry(placing.pool.clone()).or_default();
        pool.ended(&placing, line)
    }
}

impl LoggedPool {
    /// Records the end of a request of the pool.
    fn ended(&mut self, placing: &Placing, line: OutcomeLine) -> anyhow::Result<()> {
        if line.outcome != "complete" || line.status != Some(200) {
            self.left_out.not_served += 1;
            return Ok(());
        }
        let index = |name: &Option<String>| {
            let name = name.as_ref()?;
            self.workers
                .iter()
                .position(|worker| worker.identity.name == *name)
        };
        let (Some(worker), Some(dispatched_us), Some(policy)) =
            (index(&line.worker), placing.dispatched_us, &placing.policy)
        else {
            self.left_out.not_placed += 1;
            return Ok(());
        };
        let prefill = index(&line.prefill);
        let (Some(prompt_tokens), Some(output_tokens)) =
            (line.prompt_tokens, line.output_tokens.or(line.answer_events))
        else {
            self.left_out.lengths_unknown += 1;
            return Ok(());
        };
        let blocks = self.blocks(&line)?;
        let arrived_us = line.unix_us.saturating_sub(micros(line.duration_ms.0));
        let facts = RequestFacts {
            at_us: placing.first_us,
            policy: self.index_of(policy),
            has_blocks: blocks.is_some(),
            before_ms: placing.first_us.saturating_sub(arrived_us) as f64 / 1e3,
        };
        self.facts.push(facts);
        let cached = line.cached_tokens.map(whole);
        self.requests.push(RecordedRequest {
            at_us: placing.first_us,
            dispatched_us,
            first_token_us: line.ttft_ms.map(|ttft| arrived_us + micros(ttft.0)),
            finished_us: line.unix_us,
            prompt_tokens,
            output_tokens: whole(output_tokens),
            blocks: blocks.unwrap_or_default(),
            session: placing.session,
            worker,
            prefill,
            cached_tokens: cached.or(line.matched_tokens),
            model: Arc::clone(&placing.model),
        });
        Ok(())
    }

    fn index_of(&mut self, policy: &LoggedPolicy) -> usize {
        let known = self.policies.iter().position(|known| known == policy);
        known.unwrap_or_else(|| {
            self.policies.push(policy.clone());
            self.policies.len() - 1
        })
    }

    /// Returns the facts of the first requests by the times of their decisions, at most so many. `None` if there are
    /// none.
    pub(super) fn first(&self, most: Option<usize>) -> Option<PartFacts> {
        let mut facts = self.facts.clone();
        facts.sort_by_key(|facts| facts.at_us);
        facts.truncate(most.unwrap_or(usize::MAX));
        let mut placed = vec![0; self.policies.len()];
        facts.iter().for_each(|facts| placed[facts.policy] += 1);
        let counted = self.policies.iter().zip(placed);
        let (policy, by_it) = counted.max_by_key(|(policy, placed)| (*placed, *policy))?;
        Some(PartFacts {
            requests: facts.len(),
            policy: (policy.clone(), by_it),
            with_blocks: facts.iter().filter(|facts| facts.has_blocks).count(),
            before_ms: facts.iter().map(|facts| facts.before_ms).sum(),
        })
    }

    /// Returns the ids of a prompt's blocks. `None` if they are unknown.
    fn blocks(&mut self, line: &OutcomeLine) -> anyhow::Result<Option<Vec<u64>>> {
        let (Some(tokens), Some(hashes)) = (line.block_tokens.filter(|tokens| *tokens > 0), &line.blocks)
        else {
            return Ok(None);
        };
        let known = *self.block_tokens.get_or_insert(tokens);
        if known != tokens {
            bail!(
                "failed to read the log: it has blocks of {known} and of {tokens} tokens, since `prompt-blocks` was changed; \
                 take the files of one of them"
            );
        }
        let number = |hash: &[u8]| hash.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Some(
            hashes.0.chunks_exact(BLOCK_HASH_BYTES).map(number).collect(),
        ))
    }

    /// Records the candidates of a decision. They have the order of the router's pool: a worker that is new goes
    /// before the candidate after it, or last.
    fn candidates<'w>(&mut self, candidates: impl Iterator<Item = &'w LoggedWorker>) {
        let candidates: Vec<usize> = candidates.map(|worker| self.index_of_worker(worker)).collect();
        let mut next = self.order.len();
        if next == self.workers.len() {
            return;
        }
        for worker in candidates.into_iter().rev() {
            match self.order.iter().position(|known| *known == worker) {
                Some(place) => next = place,
                None => self.order.insert(next, worker),
            }
        }
    }

    /// Returns the index of a worker, which has its last description.
    fn index_of_worker(&mut self, worker: &LoggedWorker) -> usize {
        let is_it = |known: &LoggedWorker| known.identity.name == worker.identity.name;
        let Some(index) = self.workers.iter().position(is_it) else {
            self.workers.push(worker.clone());
            return self.workers.len() - 1;
        };
        // A reload may have changed it.
        if self.workers[index] != *worker {
            self.workers[index].clone_from(worker);
        }
        index
    }

    /// Returns the workers in the order of the router's pool, decode workers last: `--worker-speeds` and `--fail`
    /// count in it.
    pub(super) fn fleet(&self) -> Vec<LoggedWorker> {
        let in_order = self.order.iter().map(|index| self.workers[*index].clone());
        let mut fleet: Vec<LoggedWorker> = in_order.collect();
        fleet.sort_by_key(|worker| worker.role == Role::Decode);
        fleet
    }
}

impl From<WorkerLine> for LoggedWorker {
    fn from(line: WorkerLine) -> Self {
        Self {
            role: line.role.0,
            identity: WorkerIdentity {
                name: line.name,
                weight: line.weight.0,
                labels: line.labels,
            },
        }
    }
}

impl From<PolicyLine> for LoggedPolicy {
    fn from(line: PolicyLine) -> Self {
        Self {
            name: line.name,
            sha256: line.sha256,
            params: line.params,
        }
    }
}

/// Returns a time, unless it is not a number.
fn micros(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

fn whole(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
