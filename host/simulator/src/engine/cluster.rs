//! Workers, and the links between them.

use std::collections::BTreeMap;

use super::job::{EngineEvent, Fetch, Job, JobKind};
use super::link::Link;
use super::step::tokens;
use super::worker::SimWorker;
use crate::profile::Profile;
use crate::spec::ClusterSpec;

/// A simulated cluster. Time may stand still between two calls, and never goes back.
#[derive(Debug)]
pub struct Cluster {
    workers: Vec<SimWorker>,
    /// What each worker sends.
    links: Vec<Link>,
    /// How much longer than the profile says a transfer takes on each link.
    link_scale: Vec<f64>,
    /// By their number on a link.
    transfers: BTreeMap<usize, Transfer>,
    started: usize,
    profile: Profile,
    block_tokens: u32,
}

#[derive(Debug, Clone, Copy)]
struct Transfer {
    request: usize,
    from: usize,
    to: usize,
}

impl Cluster {
    /// An idle and empty one. A block of its prompts stands for `block_tokens` tokens.
    #[must_use]
    pub fn new(spec: &ClusterSpec, block_tokens: u32) -> Self {
        let workers = spec.workers.iter();
        let nominal_gbps = spec.profile.link_gbps();
        Self {
            workers: workers
                .clone()
                .enumerate()
                .map(|(index, worker)| SimWorker::new(spec, index, worker, block_tokens))
                .collect(),
            links: workers.clone().map(|_| Link::default()).collect(),
            link_scale: workers.map(|worker| nominal_gbps / worker.link_gbps).collect(),
            transfers: BTreeMap::new(),
            started: 0,
            profile: spec.profile.clone(),
            block_tokens,
        }
    }

    /// Its workers, by index.
    #[must_use]
    pub fn workers(&self) -> &[SimWorker] {
        &self.workers
    }

    /// Gives a worker a job. Its fetch brings no more than the other worker has, and what this one has is not sent; a prompt that was
    /// computed at the other worker is there as a whole.
    ///
    /// # Panics
    /// If the cluster has no such worker, or none that is fetched from.
    pub fn submit(&mut self, now_us: u64, worker: usize, mut job: Job) {
        let missing = job.fetch.map_or(0, |fetch| self.missing(worker, &job, fetch));
        if missing == 0 {
            job.fetch = None;
        }
        if let Some(fetch) = &mut job.fetch
            && !matches!(job.kind, JobKind::Decode { .. })
        {
            let sender = &mut self.workers[fetch.from];
            fetch.blocks = fetch.blocks.min(sender.cache().matched(&job.blocks).any);
            sender.touch(&job.blocks[..fetch.blocks]);
        }
        let request = job.request;
        let from = job.fetch.filter(|_| self.workers[worker].awaits_fetch(&job));
        self.workers[worker].submit(now_us, job);
        if let Some(Fetch { from, .. }) = from {
            let alone_us = self.profile.transfer_us(missing) as f64 * self.link_scale[from];
            self.links[from].start(now_us, self.started, alone_us);
            let to = worker;
            self.transfers
                .insert(self.started, Transfer { request, from, to });
            self.started += 1;
        }
    }

    /// When anything happens next.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        let workers = self.workers.iter().filter_map(SimWorker::next_at);
        workers.chain(self.links.iter().filter_map(Link::next_at)).min()
    }

    /// Lets time pass, and tells what happened in its order; at one time, by worker.
    pub fn advance(&mut self, now_us: u64, out: &mut Vec<EngineEvent>) {
        while let Some(at_us) = self.next_at().filter(|at| *at <= now_us) {
            self.end_transfers(at_us);
            for worker in &mut self.workers {
                if worker.next_at().is_some_and(|next| next <= at_us) {
                    worker.advance(at_us, out);
                }
            }
        }
    }

    /// A worker loses everything: the requests that are lost by it, by number. Those whose prompts were on their way from it to a decode
    /// worker are among them. It is there again at once, empty; whoever wants it to be away sends it nothing.
    pub fn fail(&mut self, now_us: u64, worker: usize) -> Vec<usize> {
        let mut lost = self.workers[worker].fail();
        let touched = |transfer: &Transfer| transfer.from == worker || transfer.to == worker;
        let broken: Vec<usize> = self
            .transfers
            .iter()
            .filter_map(|(id, transfer)| touched(transfer).then_some(*id))
            .collect();
        for id in broken {
            let Some(Transfer { request, from, to }) = self.transfers.remove(&id) else {
                continue;
            };
            self.links[from].cancel(now_us, id);
            if to != worker && self.workers[to].source_lost(now_us, request) {
                lost.push(request);
            }
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    fn end_transfers(&mut self, at_us: u64) {
        let mut ended = Vec::new();
        for link in &mut self.links {
            if link.next_at().is_some_and(|next| next <= at_us) {
                link.advance(at_us, &mut ended);
            }
        }
        for id in ended {
            if let Some(Transfer { request, to, .. }) = self.transfers.remove(&id) {
                self.workers[to].arrived(at_us, request);
            }
        }
    }

    /// Tokens that a fetch would send.
    fn missing(&self, worker: usize, job: &Job, fetch: Fetch) -> u32 {
        if fetch.from == worker {
            return 0;
        }
        let matched = |at: usize| self.workers[at].cache().matched(&job.blocks).any;
        let there = match job.kind {
            JobKind::Decode { .. } => fetch.blocks,
            JobKind::Whole | JobKind::Prefill => fetch.blocks.min(matched(fetch.from)),
        };
        let tokens = |blocks| tokens(blocks, self.block_tokens, job.prompt_tokens);
        tokens(there).saturating_sub(tokens(matched(worker)))
    }
}
