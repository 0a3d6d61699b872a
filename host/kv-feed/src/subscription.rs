//! One feed: its sockets, its publisher's history, and what it tells the sink.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use kv_events::{ReplayPart, decode_batch, live_message, replay_part};
use routing::DpRank;
use tracing::{debug, info, warn};
use zmq::{Message, Socket};

use crate::recovery::{Action, Recovery};
use crate::sockets::{self, Contexts};
use crate::spec::{FeedSink, FeedSpec, ResetReason};
use crate::status::{FeedCounters, FeedState};

/// Messages taken from one socket before the others' turn.
const TURN: usize = 256;
/// Ranks one publisher may name. Batches of further ones are dropped: they would be a malfunction.
const MAX_RANKS: usize = 1024;

pub(crate) struct Subscription {
    pub(crate) spec: FeedSpec,
    pub(crate) counters: Arc<FeedCounters>,
    contexts: Contexts,
    /// None where it could not be opened: the feed is broken until the configuration changes.
    live: Option<Socket>,
    replay: Option<Socket>,
    recovery: Recovery<Message>,
    /// Caches the sink was told of since their last reset.
    ranks: BTreeSet<DpRank>,
    /// Whether something undecodable was already logged.
    warned: bool,
    announced_live: bool,
    actions: Vec<Action<Message>>,
}

impl Subscription {
    pub(crate) fn open(
        contexts: &Contexts,
        spec: FeedSpec,
        counters: Arc<FeedCounters>,
        now: Instant,
    ) -> Self {
        let live = sockets::subscribe(contexts, &spec.endpoint, &spec.topic)
            .inspect_err(
                |error| warn!(worker = %spec.name, endpoint = spec.endpoint, %error, "failed to subscribe"),
            )
            .ok();
        let mut actions = Vec::new();
        let can_replay = live.is_some() && spec.replay.is_some();
        let recovery = Recovery::new(can_replay, now, &mut actions);
        Self {
            spec,
            counters,
            contexts: contexts.clone(),
            live,
            replay: None,
            recovery,
            ranks: BTreeSet::new(),
            warned: false,
            announced_live: false,
            actions,
        }
    }

    /// The sockets to be polled.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.live.iter().chain(&self.replay)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.recovery.deadline()
    }

    /// Receives what is there, within a turn, and acts on it and on the time.
    pub(crate) fn step(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        let mut frames = Vec::new();
        for _ in 0..TURN {
            let Some(true) = self.live.as_ref().map(|socket| self.heard(socket, &mut frames)) else {
                break;
            };
            match live_message(&frames) {
                Ok(message) => {
                    let sequence = message.sequence;
                    if let Some(payload) = frames.pop() {
                        self.recovery.live(sequence, payload, now, &mut self.actions);
                    }
                }
                Err(error) => self.drop_message(&error),
            }
            self.act(sink);
        }
        for _ in 0..TURN {
            let Some(true) = self.replay.as_ref().map(|socket| self.heard(socket, &mut frames)) else {
                break;
            };
            match replay_part(&frames) {
                Ok(ReplayPart::End) => self.recovery.replay_ended(now, &mut self.actions),
                Ok(ReplayPart::Batch(message)) => {
                    let sequence = message.sequence;
                    if let Some(payload) = frames.pop() {
                        self.recovery.replayed(sequence, payload, now, &mut self.actions);
                    }
                }
                Err(error) => self.drop_message(&error),
            }
            self.act(sink);
        }
        self.recovery.tick(now, &mut self.actions);
        self.act(sink);
        self.publish_status(sink);
    }

    fn heard(&self, socket: &Socket, frames: &mut Vec<Message>) -> bool {
        sockets::receive(socket, frames)
            .inspect_err(|error| warn!(worker = %self.spec.name, %error, "failed to receive KV events"))
            .unwrap_or(false)
    }

    /// Ends the feed: nothing keeps its blocks up to date any more.
    pub(crate) fn close(mut self, sink: &mut dyn FeedSink) {
        self.reset(sink, ResetReason::FeedRemoved);
        self.announce(sink, false);
    }

    fn act(&mut self, sink: &mut dyn FeedSink) {
        // What a replay brings is of the past: nobody may take it for the present.
        if self.recovery.replaying() {
            self.announce(sink, false);
        }
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Apply(payload) => self.apply(&payload, sink),
                Action::Reset(reason) => self.reset(sink, reason),
                Action::CountGap => self.counters.gaps.add(1),
                Action::StopAsking => self.replay = None,
                Action::Ask(from) => self.ask(from),
                Action::TellUnanswered => self.tell_unanswered(),
            }
        }
        // Nothing was added meanwhile: the allocation is kept.
        self.actions = actions;
    }

    fn apply(&mut self, payload: &[u8], sink: &mut dyn FeedSink) {
        let batch = match decode_batch(payload) {
            Ok(batch) => batch,
            Err(error) => {
                // Any cache of this publisher may have been meant, and removals may have been in it.
                self.drop_message(&error);
                return self.reset(sink, ResetReason::Undecodable);
            }
        };
        let rank = batch.dp_rank.or(self.spec.rank).unwrap_or_default();
        if self.ranks.len() >= MAX_RANKS && !self.ranks.contains(&rank) {
            return self.drop_message(&"batch of one rank too many");
        }
        self.counters.batches.add(1);
        self.counters.events.add(batch.events.len());
        self.counters.rejected.add(batch.rejected.len());
        self.ranks.insert(rank);
        sink.events(self.spec.worker, rank, &batch.events);
        if let Some(rejected) = batch.rejected.first() {
            self.warn_once(&rejected.reason);
        }
        if batch.rejected.iter().any(kv_events::RejectedEvent::hides_removal) {
            self.reset_rank(sink, rank, ResetReason::Undecodable);
        }
    }

    fn reset(&mut self, sink: &mut dyn FeedSink, reason: ResetReason) {
        if reason == ResetReason::Restarted {
            self.counters.restarts.add(1);
        }
        for rank in std::mem::take(&mut self.ranks) {
            self.reset_rank(sink, rank, reason);
        }
    }

    fn reset_rank(&mut self, sink: &mut dyn FeedSink, rank: DpRank, reason: ResetReason) {
        self.ranks.remove(&rank);
        self.counters.resets.add(1);
        info!(worker = %self.spec.name, rank = rank.0, %reason, "dropped what was known of a KV cache");
        sink.reset(self.spec.worker, rank, reason);
    }

    /// Opens a socket for each replay: what an earlier one still brings goes with its socket. A failure is noticed as
    /// a replay that times out.
    fn ask(&mut self, from: u64) {
        let Some(endpoint) = &self.spec.replay else { return };
        self.counters.replays.add(1);
        debug!(worker = %self.spec.name, endpoint, from, "asking for a replay of KV events");
        self.replay = sockets::ask(&self.contexts, endpoint, from)
            .inspect_err(
                |error| warn!(worker = %self.spec.name, endpoint, %error, "failed to ask for a replay"),
            )
            .ok();
    }

    fn tell_unanswered(&self) {
        let endpoint = self.spec.replay.as_deref().unwrap_or_default();
        warn!(
            worker = %self.spec.name, endpoint,
            "no answer to a request for a replay of KV events: going on with live ones, asking again now and then"
        );
    }

    fn drop_message(&mut self, why: &dyn std::fmt::Display) {
        self.counters.rejected_messages.add(1);
        self.warn_once(why);
    }

    /// The first sample only: a publisher of another version would fill the log. The counters tell the rest.
    fn warn_once(&mut self, why: &dyn std::fmt::Display) {
        if !self.warned {
            self.warned = true;
            warn!(worker = %self.spec.name, endpoint = self.spec.endpoint, %why, "skipped KV events (further ones are only counted)");
        }
    }

    fn publish_status(&mut self, sink: &mut dyn FeedSink) {
        let state = match () {
            () if self.live.is_none() => FeedState::Broken,
            () if !self.recovery.reached() => FeedState::Connecting,
            () if self.recovery.replaying() => FeedState::Rebuilding,
            () => FeedState::Live,
        };
        // The sink first: whoever reads that the feed is live can rely on it.
        self.announce(sink, state == FeedState::Live);
        self.counters.set_state(state);
        self.counters
            .set_progress(self.recovery.last_applied(), self.recovery.complete());
    }

    fn announce(&mut self, sink: &mut dyn FeedSink, live: bool) {
        if self.announced_live != live {
            self.announced_live = live;
            sink.live(self.spec.worker, live);
        }
    }
}
