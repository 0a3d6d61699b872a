//! One feed: its links and its publisher's history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_events::{ReplayPart, live_message, replay_part};
use tracing::{debug, warn};

use crate::delivery::Delivery;
use crate::link::{Link, Note, Reader, Received};
use crate::payload::Payload;
use crate::reason::FeedCause;
use crate::recovery::{Action, Recovery};
use crate::slice::Slice;
use crate::spec::{Feed, FeedSink, ResetReason};
use crate::status::{FeedCounters, FeedState};
use crate::zmtp::Fault;

/// A subscription that could not be opened is tried again in this time: the address may still be in use.
const REOPEN: Duration = Duration::from_secs(1);

pub(crate) struct Subscription {
    pub(crate) feed: Feed,
    pub(crate) counters: Arc<FeedCounters>,
    /// The one that the bell rings for.
    pub(crate) number: u64,
    links: Links,
    recovery: Recovery<Payload>,
    delivery: Delivery,
    /// Its engine is known to work, and nothing was heard since that was told.
    mute: bool,
    actions: Vec<Action<Payload>>,
}

/// The connections of a feed.
struct Links {
    reader: Arc<Reader>,
    live: Option<Link>,
    replay: Option<Link>,
    /// When to open the live one again, where it is not.
    reopen_at: Option<Instant>,
    /// Whether a failure to open was logged.
    warned_closed: bool,
    /// Why the latest connection was closed; none while one stands.
    fault: Option<Fault>,
}

impl Subscription {
    pub(crate) fn open(
        reader: Arc<Reader>,
        feed: Feed,
        counters: Arc<FeedCounters>,
        sink: &mut dyn FeedSink,
        now: Instant,
    ) -> Self {
        let delivery = Delivery::new(&feed, Arc::clone(&counters));
        delivery.open(sink);
        let mut actions = Vec::new();
        let recovery = Recovery::new(feed.replay().is_some(), now, &mut actions);
        let mut subscription = Self {
            feed,
            counters,
            number: reader.new_feed(),
            links: Links {
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

    /// Opens the live link, in place of the one there is.
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
                        endpoint, error, "failed to subscribe to KV events: trying again and again"
                    );
                }
            }
        }
    }

    /// Whether notes wait for the next turn.
    pub(crate) fn has_notes(&self) -> bool {
        let links = [&self.links.live, &self.links.replay];
        links.into_iter().flatten().any(Link::has_notes)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.recovery.deadline(), self.links.reopen_at];
        deadlines.into_iter().flatten().min()
    }

    /// Drops messages that wait for a replay: other feeds have no memory left. They are asked for when it has ended.
    pub(crate) fn make_room(&mut self) {
        self.recovery.make_room();
    }

    /// Takes what was read, within a turn, and acts on it and on the time.
    pub(crate) fn step(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        if self.links.reopen_at.is_some_and(|at| now >= at) {
            self.subscribe(now);
        }
        let mut slice = Slice::begin(now);
        while !slice.is_over(Instant::now()) {
            let Some(note) = self.links.live.as_ref().and_then(Link::next) else {
                break;
            };
            self.on_live(note, &mut slice, sink, now);
            self.act(sink, now);
        }
        let mut slice = Slice::begin(Instant::now());
        while !slice.is_over(Instant::now()) {
            let Some(note) = self.links.replay.as_ref().and_then(Link::next) else {
                break;
            };
            self.on_replay(note, &mut slice, now);
            self.act(sink, now);
        }
        self.recovery.tick(now, &mut self.actions);
        self.act(sink, now);
        self.publish_status(sink);
    }

    fn on_live(&mut self, note: Note, slice: &mut Slice, sink: &mut dyn FeedSink, now: Instant) {
        match note {
            Note::Connected { beside } => {
                if beside {
                    self.delivery.warn_once(
                        &"another publisher connected to the same address: each needs one of its own",
                    );
                }
                self.links.fault = None;
                self.recovery.connected(now, &mut self.actions);
            }
            Note::Message(received) => self.live_message(received, slice, now),
            Note::Closed(fault) => {
                self.refuse(fault, now);
                self.links.fault = Some(fault);
                if !fault.is_handshake() {
                    // Removals may have been in what was not taken.
                    self.recovery.spoiled(&mut self.actions);
                }
            }
            Note::Disconnected => {
                debug!(
                    feed = self.feed.name(),
                    "the connection to the publisher of KV events is lost"
                );
                self.recovery.disconnected(&mut self.actions);
                if matches!(self.feed, Feed::Store(_)) {
                    // Workers go on without it, so that nothing else marks it as out of date.
                    self.delivery.reset(sink, ResetReason::ConnectionLost);
                }
            }
        }
    }

    fn live_message(&mut self, received: Received, slice: &mut Slice, now: Instant) {
        let sequence = match live_message(&received.frames) {
            Ok(message) => message.sequence,
            Err(error) => {
                slice.spend(0);
                return self.delivery.drop_message(&error);
            }
        };
        self.counters.heard(now);
        self.mute = false;
        if let Some(payload) = Payload::of(received) {
            slice.spend(payload.len());
            self.recovery.live(sequence, payload, now, &mut self.actions);
        }
    }

    fn on_replay(&mut self, note: Note, slice: &mut Slice, now: Instant) {
        let received = match note {
            Note::Message(received) => received,
            Note::Closed(fault) => {
                self.refuse(fault, now);
                return self.recovery.replay_failed(now);
            }
            // A connection that breaks shows as a replay that times out.
            Note::Connected { .. } | Note::Disconnected => return,
        };
        match replay_part(&received.frames) {
            Ok(ReplayPart::End) => {
                slice.spend(0);
                self.recovery.replay_ended(now, &mut self.actions);
            }
            Ok(ReplayPart::Batch(message)) => {
                let sequence = message.sequence;
                if let Some(payload) = Payload::of(received) {
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

    /// Records that a connection was closed for what the publisher sent.
    fn refuse(&mut self, fault: Fault, now: Instant) {
        self.counters.refused.add(fault);
        self.delivery.warn_refused(fault, now);
    }

    /// The engine works, and nothing is heard of it: what is known is not to be trusted until something is.
    pub(crate) fn doubt(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        self.mute = true;
        self.resubscribe(now);
        self.publish_status(sink);
    }

    fn resubscribe(&mut self, now: Instant) {
        self.counters.silences.add(1);
        warn!(
            feed = self.feed.name(),
            "a subscription brings no KV events though there are some: subscribing anew"
        );
        self.subscribe(now);
    }

    /// Nothing keeps what was told up to date any more.
    pub(crate) fn end(&mut self, sink: &mut dyn FeedSink) {
        self.delivery.end(sink);
    }

    /// After [`Subscription::end`].
    pub(crate) fn close(self, sink: &mut dyn FeedSink) {
        self.delivery.close(sink);
    }

    fn act(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        // What a replay brings is of the past: nobody may take it for the present.
        if self.recovery.is_behind() {
            self.delivery.announce(sink, false);
        }
        let mut actions = std::mem::take(&mut self.actions);
        while !actions.is_empty() {
            for action in actions.drain(..) {
                match action {
                    Action::Apply(payload) => {
                        let is_current = !self.recovery.is_behind();
                        self.delivery.apply(&payload, is_current, sink);
                    }
                    Action::Reset(reason) => self.delivery.reset(sink, reason),
                    Action::CountGap => self.counters.gaps.add(1),
                    Action::StopAsking => self.links.replay = None,
                    Action::Ask(from) => self.ask(from),
                    Action::TellUnanswered => self.tell_unanswered(),
                    Action::Resubscribe => self.resubscribe(now),
                }
            }
            // Acting may have led to more.
            std::mem::swap(&mut actions, &mut self.actions);
        }
        // Nothing is left: the allocation is kept.
        self.actions = actions;
    }

    /// Opens a socket for each replay: what an earlier one still brings goes with its socket. A failure is noticed as
    /// a replay that times out.
    fn ask(&mut self, from: u64) {
        let Some(endpoint) = self.feed.replay() else {
            return;
        };
        self.counters.replays.add(1);
        debug!(
            feed = self.feed.name(),
            endpoint, from, "asking for a replay of KV events"
        );
        let asked = self
            .links
            .reader
            .ask(self.number, endpoint, from, self.feed.curve());
        self.links.replay = asked
            .inspect_err(|error| {
                let error: &dyn std::error::Error = error;
                warn!(
                    feed = self.feed.name(),
                    endpoint, error, "failed to ask for a replay"
                );
            })
            .ok();
    }

    fn tell_unanswered(&self) {
        let endpoint = self.feed.replay().unwrap_or_default();
        warn!(
            feed = self.feed.name(),
            endpoint,
            "no answer to a request for a replay of KV events: going on with live ones, asking again now and then"
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
            (FeedState::Rebuilding, _) if self.recovery.is_doubtful() => FeedCause::Doubtful,
            (FeedState::Rebuilding, _) => FeedCause::Replaying,
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
        // The sink first: whoever reads that the feed is live can rely on it.
        self.delivery.announce(sink, state == FeedState::Live);
        self.counters.set_state(state);
        let silent = self.recovery.reached() && (self.mute || self.recovery.is_doubtful());
        self.counters.set_silence(self.recovery.answers(), silent);
        self.counters
            .set_progress(self.recovery.last_applied(), self.recovery.complete());
    }
}
