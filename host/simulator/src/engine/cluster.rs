//! Cluster: workers, and the links between them.

use std::collections::BTreeMap;

use super::due_tree::DueTree;
use super::job::{EngineEvent, Fetch, Gauge, Job, JobKind};
use super::link::Link;
use super::step::tokens;
use super::worker::SimWorker;
use crate::profile::Profile;
use crate::spec::ClusterSpec;

/// A simulated cluster. Time may stand still between two calls, and never goes back.
#[derive(Debug)]
pub(crate) struct Cluster {
    workers: Vec<SimWorker>,
    /// Link of each worker.
    links: Vec<Link>,
    /// Factor of a transfer's time over the profile's, by link.
    link_scale: Vec<f64>,
    /// Transfers by their number on a link.
    transfers: BTreeMap<usize, Transfer>,
    started: usize,
    profile: Profile,
    block_tokens: u32,
    /// Limit of a decode worker's time between tokens; none: no limit.
    refuses_over_us: Option<u64>,
    due_workers: DueTree,
    due_links: DueTree,
}

#[derive(Debug, Clone, Copy)]
struct Transfer {
    request: usize,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Returns an idle and empty one. A block of its prompts stands for `block_tokens` tokens.
    pub(crate) fn new(spec: &ClusterSpec, block_tokens: u32) -> Self {
        let workers = spec.workers.iter();
        let nominal_gbps = spec.profile.link_gbps();
        Self {
            workers: workers
                .clone()
                .enumerate()
                .map(|(index, worker)| SimWorker::new(spec, index, worker, block_tokens))
                .collect(),
            links: workers.clone().map(|_| Link::default()).collect(),
            due_workers: DueTree::new(workers.len()),
            due_links: DueTree::new(workers.len()),
            refuses_over_us: spec.decode_refuses_over_us,
            link_scale: workers.map(|worker| nominal_gbps / worker.link_gbps).collect(),
            transfers: BTreeMap::new(),
            started: 0,
            profile: spec.profile.clone(),
            block_tokens,
        }
    }

    /// Returns its workers, by index.
    pub(crate) fn workers(&self) -> &[SimWorker] {
        &self.workers
    }

    /// Submits a job to a worker. Its fetch brings no more than the other worker has, without the blocks that are here.
    /// A prompt that was computed at the other worker is there as a whole.
    ///
    /// # Panics
    /// If the cluster has no such worker, or none that is fetched from.
    pub(crate) fn submit(&mut self, now_us: u64, worker: usize, mut job: Job) {
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
        self.note_worker(worker);
        if let Some(Fetch { from, .. }) = from {
            let alone_us = self.profile.transfer_us(missing) as f64 * self.link_scale[from];
            self.links[from].start(now_us, self.started, alone_us);
            let to = worker;
            self.transfers
                .insert(self.started, Transfer { request, from, to });
            self.started += 1;
            self.note_link(from);
        }
    }

    /// Returns whether a decode worker refuses to write the answer to a prompt of so many tokens: with all it has and
    /// was given, its steps would take longer than they may.
    pub(crate) fn refuses(&mut self, now_us: u64, worker: usize, prompt_tokens: u32) -> bool {
        let Some(limit_us) = self.refuses_over_us else {
            return false;
        };
        let step_us = self.workers[worker].step_us_with(now_us, prompt_tokens);
        self.note_worker(worker);
        step_us > limit_us
    }

    /// Returns a worker's remaining work.
    pub(crate) fn gauge(&mut self, now_us: u64, worker: usize) -> Gauge {
        let gauge = self.workers[worker].gauge(now_us);
        self.note_worker(worker);
        gauge
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let both = [self.due_workers.next(), self.due_links.next()];
        both.into_iter().flatten().min()
    }

    /// Advances the time. Returns the events in their order; at one time, by worker.
    pub(crate) fn advance(&mut self, now_us: u64, out: &mut Vec<EngineEvent>) {
        while let Some(at_us) = self.next_at().filter(|at| *at <= now_us) {
            self.end_transfers(at_us);
            let mut next = 0;
            while let Some(worker) = self.due_workers.first(next, at_us) {
                self.workers[worker].advance(at_us, out);
                self.note_worker(worker);
                next = worker + 1;
            }
        }
    }

    /// Fails a worker, which loses everything. Returns the lost requests, by number. Those whose prompts were on their
    /// way from it to a decode worker are among them. It is there again at once, empty; a caller that keeps it
    /// away sends it nothing.
    pub(crate) fn fail(&mut self, now_us: u64, worker: usize) -> Vec<usize> {
        let mut lost = self.workers[worker].fail();
        self.note_worker(worker);
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
            self.note_link(from);
            if to != worker {
                if self.workers[to].source_lost(now_us, request) {
                    lost.push(request);
                }
                self.note_worker(to);
            }
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    fn end_transfers(&mut self, at_us: u64) {
        let mut ended = Vec::new();
        let mut next = 0;
        while let Some(link) = self.due_links.first(next, at_us) {
            self.links[link].advance(at_us, &mut ended);
            self.note_link(link);
            next = link + 1;
        }
        for id in ended {
            if let Some(Transfer { request, to, .. }) = self.transfers.remove(&id) {
                self.workers[to].arrived(at_us, request);
                self.note_worker(to);
            }
        }
    }

    /// Updates the next event of a worker.
    fn note_worker(&mut self, worker: usize) {
        self.due_workers.set(worker, self.workers[worker].next_at());
    }

    /// Updates the next event of a link.
    fn note_link(&mut self, link: usize) {
        self.due_links.set(link, self.links[link].next_at());
    }

    /// Returns the tokens that a fetch would send.
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
