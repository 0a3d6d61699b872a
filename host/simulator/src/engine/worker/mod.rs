//! Worker: prompts and answers, step after step.
//!
//! A step computes prompts, or writes one token of every answer, or, where prompts are computed in chunks, both at
//! once. Events are kept in the order of time until they are read.

mod plan;

use std::collections::BTreeMap;

use super::cache::BlockCache;
use super::decode::{Batch, DecodeJob};
use super::gaps::TokenGaps;
use super::job::{EngineEvent, EngineEventKind, EngineLoad, Gauge, Job, JobKind, Reuse};
use super::prefill::{Prompt, Prompts};
use super::step::{Costs, Parts, Step};
use crate::spec::{CacheTiming, ClusterSpec, Transfers, WorkerSpec};

/// A simulated worker.
#[derive(Debug)]
pub(crate) struct SimWorker {
    index: usize,
    costs: Costs,
    cache_timing: CacheTiming,
    transfers: Transfers,
    chunk_tokens: Option<u32>,
    step_prompts: usize,
    writes_answers: bool,
    cache: BlockCache,
    prompts: Prompts,
    answers: Batch,
    /// Complete blocks of prompt and answer by request, for answers whose blocks are known.
    grown_blocks: BTreeMap<usize, Box<[u64]>>,
    step: Option<Step>,
    reported: Vec<EngineEvent>,
}

impl SimWorker {
    /// Returns a worker of the cluster, idle and empty. A block stands for `block_tokens` tokens.
    pub(super) fn new(cluster: &ClusterSpec, index: usize, spec: &WorkerSpec, block_tokens: u32) -> Self {
        Self {
            index,
            costs: Costs::new(cluster, spec, block_tokens),
            cache_timing: cluster.cache_timing,
            transfers: cluster.transfers,
            chunk_tokens: cluster.chunk_tokens,
            step_prompts: match cluster.chunk_tokens {
                Some(_) => cluster.step_prompts.unwrap_or(usize::MAX),
                None => 1,
            },
            writes_answers: cluster.decode,
            cache: BlockCache::new(spec.cache_blocks),
            prompts: Prompts::new(cluster.order),
            answers: Batch::new(spec.kv_tokens),
            grown_blocks: BTreeMap::new(),
            step: None,
            reported: Vec::new(),
        }
    }

    /// Returns its cache.
    #[must_use]
    pub(crate) fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Returns its load. The tokens are those held at its last event.
    #[must_use]
    pub(crate) fn load(&self) -> EngineLoad {
        let begun = self.prompts.begun.iter();
        let computing: u64 = begun.map(|prompt| u64::from(prompt.done)).sum();
        EngineLoad {
            waiting: self.prompts.waiting() + self.answers.waiting(),
            computing: self.prompts.begun.len(),
            decoding: self.answers.len() as usize,
            kv_tokens: self.answers.resident() + computing,
        }
    }

    /// Returns how long a step will take that writes a token of every answer it has and is given, with one more to a
    /// prompt of so many tokens, in microseconds.
    pub(super) fn step_us_with(&mut self, now_us: u64, prompt_tokens: u32) -> u64 {
        self.catch_up(now_us);
        self.answers_us(1, prompt_tokens.into())
    }

    /// Returns its remaining work.
    pub(super) fn gauge(&mut self, now_us: u64) -> Gauge {
        self.catch_up(now_us);
        let begun = self.prompts.begun.iter();
        let rest = begun.map(|prompt| u64::from(prompt.job.prompt_tokens - prompt.done));
        Gauge {
            prompts: self.prompts.waiting() + self.prompts.begun.len(),
            queued_tokens: self.prompts.waiting_tokens() + rest.sum::<u64>(),
            backlog_us: self.backlog_us(now_us),
            handed_over: self.answers.waiting(),
            decoding: self.answers.len() as usize,
            resident_tokens: self.answers.resident(),
            step_us: self.answers_us(0, 0),
        }
    }

    /// Returns the time of a step of all answers that are here or given to it, and of so many more that hold so many
    /// tokens.
    fn answers_us(&self, more: u32, tokens: u64) -> u64 {
        let batch = self.answers.len() + self.answers.waiting() as u32 + more;
        if batch == 0 {
            return 0;
        }
        let resident = self.answers.resident() + self.answers.waiting_tokens() + tokens;
        let mut parts = Parts::default();
        self.costs.decode(batch, resident, &mut parts);
        self.costs.took_us(parts)
    }

    /// Returns how long it will take to compute the prompts it has, in microseconds: exact where they are computed
    /// whole and in their order and [`CacheTiming::Routed`], else as far as it was known when they came.
    #[must_use]
    pub(crate) fn backlog_us(&self, now_us: u64) -> u64 {
        let begun = self.prompts.begun.iter();
        let step = match self.step {
            Some(step) if begun.len() > 0 => step.ends_us.saturating_sub(now_us),
            _ => 0,
        };
        let rest: u64 = begun.map(|prompt| self.costs.rest_us(prompt.rest())).sum();
        step + rest + self.prompts.backlog_us()
    }

    /// Returns whether a job with a fetch begins only after [`Self::arrived`]: the fetch goes over a link, and does not
    /// hold this worker.
    pub(super) fn awaits_fetch(&self, job: &Job) -> bool {
        let over_link =
            matches!(job.kind, JobKind::Decode { .. }) || self.transfers == Transfers::ShareSender;
        job.fetch.is_some() && over_link
    }

    /// Takes a job.
    pub(super) fn submit(&mut self, now_us: u64, mut job: Job) {
        self.catch_up(now_us);
        let grown = std::mem::take(&mut job.grown_blocks);
        if self.writes_answers && job.kind != JobKind::Prefill && !grown.is_empty() {
            self.grown_blocks.insert(job.request, grown);
        }
        let ready = !self.awaits_fetch(&job);
        if let JobKind::Decode { first_us } = job.kind {
            let blocks = job.blocks.clone();
            self.answers.push(job, first_us, ready);
            if ready {
                self.keep(now_us, &blocks);
            }
        } else {
            let reuse = self.look_up(&job);
            let takes_us = self.costs.alone_us(&job, reuse);
            let mut prompt = Prompt::new(job, ready, takes_us);
            if self.cache_timing == CacheTiming::Routed {
                prompt.reuse = Some(reuse);
                self.keep(now_us, &prompt.job.blocks);
            }
            self.prompts.push(prompt);
        }
        self.begin(now_us);
    }

    /// Records the arrival of the blocks that a job had to fetch.
    pub(super) fn arrived(&mut self, now_us: u64, request: usize) {
        self.catch_up(now_us);
        if let Some(prompt) = self.prompts.find(request) {
            prompt.ready = true;
        } else if let Some(blocks) = self.answers.arrived(request) {
            let blocks: Box<[u64]> = blocks.into();
            self.keep(now_us, &blocks);
        }
        self.begin(now_us);
    }

    /// Marks blocks as read by another worker.
    pub(super) fn touch(&mut self, blocks: &[u64]) {
        self.cache.touch(blocks);
    }

    /// Handles the loss of the worker that a job fetches from. A prompt is computed from the blocks here. A request
    /// whose prompt was to come from there is lost, and `true` is returned.
    pub(super) fn source_lost(&mut self, now_us: u64, request: usize) -> bool {
        self.catch_up(now_us);
        let Some(prompt) = self.prompts.find(request) else {
            self.answers.drop_waiting(request);
            return true;
        };
        prompt.ready = true;
        prompt.job.fetch = None;
        if let Some(reuse) = &mut prompt.reuse {
            reuse.fetched = 0;
            prompt.takes_us = self.costs.alone_us(&prompt.job, *reuse);
        }
        self.begin(now_us);
        false
    }

    /// Returns the time of its next event or action.
    pub(super) fn next_at(&self) -> Option<u64> {
        let reported = self.reported.first().map(|event| event.at_us);
        reported.or(self.step.map(|step| step.reports_us))
    }

    /// Advances the time. Returns the events.
    pub(super) fn advance(&mut self, now_us: u64, out: &mut Vec<EngineEvent>) {
        self.catch_up(now_us);
        out.append(&mut self.reported);
    }

    /// Ends the steps that are over.
    fn catch_up(&mut self, now_us: u64) {
        while let Some(step) = self.step.take_if(|step| step.ends_us <= now_us) {
            self.end_step(step);
        }
    }

    /// Loses everything, its cache too: the requests that were here. It goes on as one that has just been started.
    pub(super) fn fail(&mut self) -> Vec<usize> {
        self.step = None;
        self.cache.clear();
        self.grown_blocks.clear();
        self.reported
            .retain(|event| !matches!(event.kind, EngineEventKind::Cache(_)));
        let mut lost = self.prompts.clear();
        lost.extend(self.answers.clear());
        lost
    }

    fn end_step(&mut self, step: Step) {
        let at_us = step.ends_us;
        if step.decodes {
            let mut reported = Vec::new();
            self.answers.end_step(at_us, &mut reported);
            self.report(at_us, reported);
        }
        for prompt in self.prompts.end_step() {
            self.end_prompt(at_us, prompt);
        }
        self.begin(at_us);
    }

    fn end_prompt(&mut self, at_us: u64, prompt: Prompt) {
        let job = prompt.job;
        if self.cache_timing == CacheTiming::Computed {
            self.keep(at_us, &job.blocks);
        }
        let request = job.request;
        let reuse = prompt.reuse.unwrap_or_default();
        let mut reported = vec![EngineEventKind::PrefillDone { request, reuse }];
        if job.kind == JobKind::Whole {
            reported.push(EngineEventKind::FirstToken { request });
            if self.writes_answers {
                self.answers.join(DecodeJob::of(&job, Some(at_us)), &mut reported);
            } else {
                let gaps = TokenGaps::default();
                reported.push(EngineEventKind::Finished { request, gaps });
            }
        }
        self.report(at_us, reported);
    }

    /// Returns the cached part of a prompt, if it began now.
    fn look_up(&self, job: &Job) -> Reuse {
        let matched = self.cache.matched(&job.blocks);
        let tokens = |blocks| self.costs.tokens(blocks, job.prompt_tokens);
        let own = tokens(matched.any);
        let host = tokens(matched.in_host).min(own);
        let disk = tokens(matched.on_disk).min(own - host);
        let fetched = job.fetch.map_or(0, |fetch| tokens(fetch.blocks));
        Reuse {
            device: own - host - disk,
            host,
            disk,
            fetched: fetched.saturating_sub(own),
        }
    }

    /// Takes a prompt's blocks into the cache.
    fn keep(&mut self, at_us: u64, blocks: &[u64]) {
        let mut events = Vec::new();
        self.cache.insert(blocks, &mut events);
        self.report(at_us, events.into_iter().map(EngineEventKind::Cache));
    }

    /// Adds events. A finished answer is in the cache from then on, if its blocks are known.
    fn report(&mut self, at_us: u64, kinds: impl IntoIterator<Item = EngineEventKind>) {
        let worker = self.index;
        for kind in kinds {
            let finished = match kind {
                EngineEventKind::Finished { request, .. } => self.grown_blocks.remove(&request),
                _ => None,
            };
            self.reported.push(EngineEvent { at_us, worker, kind });
            if let Some(blocks) = finished {
                let mut events = Vec::new();
                self.cache.insert(&blocks, &mut events);
                let kinds = events.into_iter().map(EngineEventKind::Cache);
                self.reported
                    .extend(kinds.map(|kind| EngineEvent { at_us, worker, kind }));
            }
        }
    }
}
