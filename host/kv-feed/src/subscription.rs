//! One feed: its sockets and its publisher's history.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_events::{ReplayPart, live_message, replay_part};
use tracing::{debug, warn};
use zmq::{Context, Message, Socket};

use crate::delivery::Delivery;
use crate::reason::FeedCause;
use crate::recovery::{Action, Recovery};
use crate::sockets::{self, LIVE_QUEUE, Live, Turn};
use crate::spec::{Feed, FeedSink, ResetReason};
use crate::status::{FeedCounters, FeedState};

/// Messages taken from one socket before the others' turn.
const TURN: u16 = 256;
/// A subscription that could not be opened is tried again in this time: the address may still be in use.
const REOPEN: Duration = Duration::from_secs(1);
pub(crate) struct Subscription {
    pub(crate) feed: Feed,
    pub(crate) counters: Arc<FeedCounters>,
    context: Arc<Context>,
    live: Option<Live>,
    /// When to open it again, where it is not.
    reopen_at: Option<Instant>,
    replay: Option<Socket>,
    recovery: Recovery<Message>,
    delivery: Delivery,
    /// Whether a failure to open was logged.
    warned_closed: bool,
    /// Its engine is known to work, and nothing was heard since that was told.
    mute: bool,
    actions: Vec<Action<Message>>,
}

impl Subscription {
    pub(crate) fn open(
        context: Arc<Context>,
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
            context,
            live: None,
            reopen_at: None,
            replay: None,
            recovery,
            delivery,
            warned_closed: false,
            mute: false,
            actions,
        };
        subscription.subscribe(now);
        subscription
    }

    /// Opens the live socket, in place of the one there is.
    fn subscribe(&mut self, now: Instant) {
        self.live = None;
        self.recovery.disconnected(&mut self.actions);
        let feed = &self.feed;
        match Live::open(&self.context, feed.endpoint(), feed.topic()) {
            Ok(live) => {
                self.live = Some(live);
                self.reopen_at = None;
                self.warned_closed = false;
            }
            Err(error) => {
                self.reopen_at = Some(now + REOPEN);
                if !self.warned_closed {
                    self.warned_closed = true;
                    let endpoint = feed.endpoint().address();
                    warn!(feed = feed.name(), endpoint, %error, "failed to subscribe to KV events: trying again and again");
                }
            }
        }
    }

    /// The sockets to be polled.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.live.iter().flat_map(Live::sockets).chain(&self.replay)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.recovery.deadline(), self.reopen_at];
        deadlines.into_iter().flatten().min()
    }

    /// Receives what is there, within a turn, and acts on it and on the time.
    pub(crate) fn step(&mut self, sink: &mut dyn FeedSink, now: Instant) {
        let mut frames = Vec::new();
        if self.reopen_at.is_some_and(|at| now >= at) {
            self.subscribe(now);
        }
        self.connections(&mut frames, sink, now);
        self.hear(TURN, &mut frames, sink, now);
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
                Err(error) => self.delivery.drop_message(&error),
            }
            self.act(sink, now);
        }
        self.recovery.tick(now, &mut self.actions);
        self.act(sink, now);
        self.publish_status(sink);
    }

    /// Takes in live messages, so many at most.
    fn hear(&mut self, most: u16, frames: &mut Vec<Message>, sink: &mut dyn FeedSink, now: Instant) {
        for _ in 0..most {
            let Some(true) = self.live.as_ref().map(|live| self.heard(&live.messages, frames)) else {
                break;
            };
            match live_message(frames) {
                Ok(message) => {
                    let sequence = message.sequence;
                    self.counters.heard(now);
                    self.mute = false;
                    if let Some(payload) = frames.pop() {
                        self.recovery.live(sequence, payload, now, &mut self.actions);
                    }
                }
                Err(error) => self.delivery.drop_message(&error),
            }
            self.act(sink, now);
        }
    }

    /// Takes notice of connections that came and went, before the messages that came over them.
    fn connections(&mut self, frames: &mut Vec<Message>, sink: &mut dyn FeedSink, now: Instant) {
        while let Some(live) = &mut self.live {
            match live.turn(frames) {
                Ok(Some(Turn::Connected { beside })) => {
                    if beside {
                        self.delivery.warn_once(
                            &"another publisher connected to the same address: each needs one of its own",
                        );
                    }
                    self.recovery.connected(now, &mut self.actions);
                }
                Ok(Some(Turn::Disconnected)) => {
                    debug!(
                        feed = self.feed.name(),
                        "the connection to the publisher of KV events is lost"
                    );
                    // What came over it is read before another connection brings something else.
                    self.hear(LIVE_QUEUE, frames, sink, now);
                    self.recovery.disconnected(&mut self.actions);
                    if matches!(self.feed, Feed::Store(_)) {
                        // Workers go on without it, so that nothing else marks it as out of date.
                        self.delivery.reset(sink, ResetReason::ConnectionLost);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    warn!(feed = self.feed.name(), %error, "failed to watch a connection for KV events");
                    return;
                }
            }
            self.act(sink, now);
        }
    }

    fn heard(&self, socket: &Socket, frames: &mut Vec<Message>) -> bool {
        sockets::receive(socket, frames)
            .inspect_err(|error| warn!(feed = self.feed.name(), %error, "failed to receive KV events"))
            .unwrap_or(false)
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
                    Action::StopAsking => self.replay = None,
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
        self.replay = sockets::ask(&self.context, endpoint, from)
            .inspect_err(
                |error| warn!(feed = self.feed.name(), endpoint, %error, "failed to ask for a replay"),
            )
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
            (FeedState::Connecting, (true, false)) => FeedCause::ConnectionLost,
            (FeedState::Connecting, (false, false)) => FeedCause::NotConnected,
            (FeedState::Rebuilding, _) if self.mute => FeedCause::Mute,
            (FeedState::Rebuilding, _) if self.recovery.is_doubtful() => FeedCause::Doubtful,
            (FeedState::Rebuilding, _) => FeedCause::Replaying,
        }
    }

    fn publish_status(&mut self, sink: &mut dyn FeedSink) {
        let state = match () {
            () if self.live.is_none() => FeedState::Broken,
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
