//! Subscription: one feed's connections and its recovery state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_events::{ReplayPart, live_message, replay_part};
use tracing::{debug, warn};

use crate::delivery::{Applied, FeedDelivery};
use crate::link::{FeedLink, LinkNote, LinkReader, ReceivedMessage};
use crate::payload::ChargedPayload;
use crate::reason::FeedCause;
use crate::recovery::{FeedRecovery, RecoveryAction};
use crate::seed::{FeedContents, FeedSeed, ReadContents};
use crate::slice::TimeSlice;
use crate::spec::{Endpoint, FeedSink, FeedTarget, ResetReason};
use crate::status::{FeedCounters, FeedState};
use crate::zmtp::Fault;

/// Pause before a failed socket is opened again: the address may still be in use.
const REOPEN: Duration = Duration::from_secs(1);
/// Consequence of a closed connection to the PUB socket.
const LIVE_REFUSED: &str = "its state is reset, and the connection is retried after a pause";
/// Consequence of a failed handshake with the PUB socket.
const LIVE_NOT_OPENED: &str = "the connection is retried after a pause";
/// Consequence of a closed connection to the ROUTER socket.
const REPLAY_REFUSED: &str = "its replay is incomplete, and live events continue";

pub(crate) struct FeedSubscription {
    pub(crate) feed: FeedTarget,
    pub(crate) counters: Arc<FeedCounters>,
    /// Number of the feed in the notifier's wake-up reasons.
    pub(crate) number: u64,
    links: FeedLinks,
    recovery: FeedRecovery<ChargedPayload>,
    delivery: FeedDelivery,
    /// The engine is known to work, and nothing was received since that was reported.
    mute: bool,
    actions: Vec<RecoveryAction<ChargedPayload>>,
}

/// Connections of a feed.
struct FeedLinks {
    reader: Arc<LinkReader>,
    live: Option<FeedLink>,
    replay: Option<FeedLink>,
    /// Time to open the live link again, if it is closed.
    reopen_at: Option<Instant>,
    /// A failure to open was logged.
    warned_closed: bool,
    /// Fault of the latest connection; `None` while one is established.
    fault: Option<Fault>,
}

impl FeedSubscription {
    pub(crate) fn open(
        reader: Arc<LinkReader>,
        feed: FeedTarget,
        counters: Arc<FeedCounters>,
        first_check: Duration,
        sink: &mut dyn FeedSink,
        now: Instant,
    ) -> Self {
        let delivery = FeedDelivery::new(&feed, Arc::clone(&counters));
        delivery.open(sink);
        if matches!(feed.endpoint(), Endpoint::Bind(_)) {
            counters.reason.awaited();
        }
        let mut actions = Vec::new();
        let recovery = FeedRecovery::new(feed.replay().is_some(), first_check, now, &mut actions);
        let mut subscription = Self {
            feed,
            counters,
            number: reader.new_feed(),
            links: FeedLinks {
                reader,
                live: None,
                replay: None,
                reopen_at: None,
                warned_closed: false,
                fault: None,
            },
            recovery,
            delivery,
            mute: false,
            actions,
        };
        subscription.subscribe(now);
        subscription
    }

    /// Opens the live link; it replaces an existing one.
    fn subscribe(&mut self, now: Instant) {
        let links = &mut self.links;
        links.live = None;
        self.recovery.disconnected(&mut self.actions);
        let feed = &self.feed;
        let opened = links
            .reader
            .subscribe(self.number, feed.endpoint(), feed.topic(), feed.curve());
        match opened {
            Ok(live) => {
                links.live = Some(live);
                links.reopen_at = None;
                links.warned_closed = false;
            }
            Err(error) => {
                links.reopen_at = Some(now + REOPEN);
                if !links.warned_closed {
                    links.warned_closed = true;
                    let endpoint = feed.endpoint().address();
                    let error: &dyn std::error::Error = &error;
                    warn!(
                        feed = feed.name(),
                        endpoint, error, "failed to subscribe to KV events: retrying"
                    );
                }
            }
        }
    }

    /// Returns `true` if notes wait for the next slice.
    pub(crate) fn has_notes(&self) -> bool {
        let links = [&self.links.live, &self.links.replay];
        links.into_iter().flatten().any(FeedLink::has_notes)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.recovery.deadline(), self.links.reopen_at];
        deadlines.into_iter().flatten().min()
    }

    /// Drops messages queued during a replay, because other feeds have no memory left. They are requested after it.
    pub(crate) fn make_room(&mut self) {
        self.recovery.make_room();
    }

    /// Processes received notes within one slice, and handles timeouts.
    pub(crate) fn step(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        if self.links.reopen_at.is_some_and(|at| now >= at) {
            self.subscribe(now);
        }
        let mut slice = TimeSlice::begin(now);
        while !slice.is_over(Instant::now()) {
            let Some(note) = self.links.live.as_ref().and_then(FeedLink::next) else {
                break;
            };
            self.on_live(note, &mut slice, sink, now);
            self.act(sink, now);
        }
        let mut slice = TimeSlice::begin(Instant::now());
        while !slice.is_over(Instant::now()) {
            let Some(note) = self.links.replay.as_ref().and_then(FeedLink::next) else {
                break;
            };
            self.on_replay(note, &mut slice, now);
            self.act(sink, now);
        }
        self.recovery.tick(now, &mut self.actions);
        self.act(sink, now);
        self.publish_status(sink);
    }

    fn on_live(&mut self, note: LinkNote, slice: &mut TimeSlice, sink: &mut dyn FeedSink, now: Instant) {
        match note {
            LinkNote::NotReached => self.counters.reason.awaited(),
            LinkNote::Connected { beside } => {
                if beside {
                    self.delivery.warn_once(
                        &"another publisher connected to the same address: each needs one of its own",
                    );
                }
                self.links.fault = None;
                self.recovery.connected(now, &mut self.actions);
            }
            LinkNote::Message(received) => self.live_message(received, slice, now),
            LinkNote::Closed(fault) => {
                self.counters.refused.add(fault);
                let consequence = if fault.is_handshake() {
                    LIVE_NOT_OPENED
                } else {
                    LIVE_REFUSED
                };
                self.delivery.warn_refused(fault, consequence, now);
                self.links.fault = Some(fault);
                if !fault.is_handshake() {
                    // The lost message may contain removals.
                    self.recovery.message_lost(&mut self.actions);
                }
            }
            LinkNote::Disconnected => {
                debug!(
                    feed = self.feed.name(),
                    "the connection to the publisher of KV events is lost"
                );
                self.recovery.disconnected(&mut self.actions);
                if matches!(self.feed, FeedTarget::Store(_)) {
                    // Workers continue without the store, so nothing else marks it as outdated.
                    self.delivery.reset(sink, ResetReason::ConnectionLost);
                }
            }
        }
    }

    fn live_message(&mut self, received: ReceivedMessage, slice: &mut TimeSlice, now: Instant) {
        let sequence = match live_message(&received.frames) {
            Ok(message) => message.sequence,
            Err(error) => {
                slice.spend(0);
                return self.delivery.drop_message(&error);
            }
        };
        self.counters.received(now);
        self.mute = false;
        if let Some(payload) = ChargedPayload::of(received) {
            slice.spend(payload.len());
            self.recovery.live(sequence, payload, now, &mut self.actions);
        }
    }

    fn on_replay(&mut self, note: LinkNote, slice: &mut TimeSlice, now: Instant) {
        let received = match note {
            LinkNote::Message(received) => received,
            LinkNote::Closed(fault) => {
                self.counters.refused.add(fault);
                self.delivery.warn_refused(fault, REPLAY_REFUSED, now);
                return self.recovery.replay_failed(fault.is_limit(), now);
            }
            // A broken connection appears as a replay timeout.
            LinkNote::NotReached | LinkNote::Connected { .. } | LinkNote::Disconnected => return,
        };
        match replay_part(&received.frames) {
            Ok(ReplayPart::End) => {
                slice.spend(0);
                self.recovery.replay_ended(now, &mut self.actions);
            }
            Ok(ReplayPart::Batch(message)) => {
                let sequence = message.sequence;
                if let Some(payload) = ChargedPayload::of(received) {
                    slice.spend(payload.len());
                    self.recovery.replayed(sequence, payload, now, &mut self.actions);
                }
            }
            Err(error) => {
                slice.spend(0);
                self.delivery.drop_message(&error);
            }
        }
    }

    /// Marks the feed as suspect: the engine works, but nothing is received. The known state is not used until
    /// something is.
    pub(crate) fn mark_suspect(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        self.mute = true;
        self.resubscribe(now);
        self.publish_status(sink);
    }

    fn resubscribe(&mut self, now: Instant) {
        self.counters.silences.add(1);
        warn!(
            feed = self.feed.name(),
            "a subscription receives no KV events although the publisher has some: subscribing again"
        );
        self.subscribe(now);
    }

    /// Ends delivery: nothing keeps the delivered state up to date any more.
    pub(crate) fn end(&mut self, sink: &mut dyn FeedSink) {
        self.delivery.end(sink);
    }

    /// Closes the feed, after [`FeedSubscription::end`].
    pub(crate) fn close(self, sink: &mut dyn FeedSink) {
        self.delivery.close(sink);
    }

    /// Reads the contents of the feed's caches, unless messages may be missing.
    pub(crate) fn read_contents(&self, read: ReadContents) {
        let (FeedTarget::Engine(spec), Some(position)) = (&self.feed, self.recovery.position()) else {
            return;
        };
        read(&FeedContents {
            worker: spec.worker,
            ranks: &self.delivery.ranks(),
            position,
        });
    }

    /// Replaces the contents of the feed's caches by a seed, if it is of use.
    pub(crate) fn seed(&mut self, seed: FeedSeed, sink: &mut dyn FeedSink, now: Instant) {
        let FeedTarget::Engine(spec) = &self.feed else {
            return;
        };
        let is_taken = self.recovery.needs_seed(&seed.position) && self.delivery.seed(&seed.ranks, sink);
        if is_taken {
            (seed.fill)(spec.worker);
            self.recovery.seed(&seed.position, now, &mut self.actions);
            self.act(sink, now);
            self.publish_status(sink);
        }
        (seed.done)(is_taken);
    }

    fn act(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        // A replay delivers the past, which must not be taken for the current state.
        if self.recovery.is_behind() {
            self.delivery.announce(sink, false);
        }
        let mut actions = std::mem::take(&mut self.actions);
        // Number of the latest message that emptied caches, if no reset followed it.
        let mut emptied = None;
        while !actions.is_empty() {
            for action in actions.drain(..) {
                match action {
                    RecoveryAction::Apply(sequence, payload) => {
                        let is_current = !self.recovery.is_behind();
                        if self.delivery.apply(&payload, is_current, sink) == Applied::Emptied {
                            emptied = Some(sequence);
                        }
                    }
                    RecoveryAction::Reset(reason) => {
                        emptied = None;
                        self.delivery.reset(sink, reason);
                    }
                    RecoveryAction::CountGap => self.counters.gaps.add(1),
                    RecoveryAction::CancelReplay => self.links.replay = None,
                    RecoveryAction::RequestReplay(from) => self.request_replay(from),
                    RecoveryAction::ReportUnanswered => self.log_unanswered(),
                    RecoveryAction::Resubscribe => self.resubscribe(now),
                }
            }
            // Executing actions may have added more.
            std::mem::swap(&mut actions, &mut self.actions);
        }
        // The list is empty: its allocation is kept.
        self.actions = actions;
        if let Some(sequence) = emptied {
            self.recovery.emptied(sequence);
        }
    }

    /// Opens a socket per replay: late messages of an earlier one end with its socket. A failure appears as a replay
    /// timeout.
    fn request_replay(&mut self, from: u64) {
        let Some(endpoint) = self.feed.replay() else {
            return;
        };
        self.counters.replays.add(1);
        debug!(
            feed = self.feed.name(),
            endpoint, from, "requesting a replay of KV events"
        );
        let replay_link = self
            .links
            .reader
            .request_replay(self.number, endpoint, from, self.feed.curve());
        self.links.replay = replay_link
            .inspect_err(|error| {
                let error: &dyn std::error::Error = error;
                warn!(
                    feed = self.feed.name(),
                    endpoint, error, "failed to request a replay"
                );
            })
            .ok();
    }

    fn log_unanswered(&self) {
        let endpoint = self.feed.replay().unwrap_or_default();
        warn!(
            feed = self.feed.name(),
            endpoint,
            "no answer to a request for a replay of KV events: continuing with live events, and retrying"
        );
    }

    fn cause(&self, state: FeedState) -> FeedCause {
        match (state, self.recovery.connection()) {
            (FeedState::Live, _) => FeedCause::None,
            (FeedState::Broken, _) => FeedCause::NotOpened,
            (FeedState::Connecting, (_, true)) => FeedCause::NothingReceived,
            (FeedState::Connecting, _) if self.links.fault.is_some() => FeedCause::Refused,
            (FeedState::Connecting, (true, false)) => FeedCause::ConnectionLost,
            (FeedState::Connecting, (false, false)) => FeedCause::NotConnected,
            (FeedState::Rebuilding, _) if self.mute => FeedCause::Mute,
            (FeedState::Rebuilding, _) if !self.recovery.is_doubtful() => FeedCause::Replaying,
            (FeedState::Rebuilding, _) if self.recovery.is_refused() => FeedCause::Refused,
            (FeedState::Rebuilding, _) => FeedCause::Doubtful,
        }
    }

    fn publish_status(&mut self, sink: &mut dyn FeedSink) {
        let state = match () {
            () if self.links.live.is_none() => FeedState::Broken,
            () if !self.recovery.reached() => FeedState::Connecting,
            () if self.mute || self.recovery.is_behind() => FeedState::Rebuilding,
            () => FeedState::Live,
        };
        let is_unanswered = self.recovery.is_unanswered();
        self.counters
            .reason
            .set(self.cause(state), self.deadline(), is_unanswered);
        // The sink first: readers of the status can rely on the sink being live.
        self.delivery.announce(sink, state == FeedState::Live);
        self.counters.set_state(state);
        let silent = self.recovery.reached() && (self.mute || self.recovery.is_doubtful());
        self.counters.set_silence(self.recovery.answers(), silent);
        self.counters
            .set_progress(self.recovery.last_applied(), self.recovery.known_from());
    }
}
