//! Fetcher: the transfers that a starting router receives, without I/O and clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use replicas::{
    FeedKey, FleetHashes, ReceivedPart, RefusalReason, RouterId, TransferId, TransferMessage, TransferPart,
    TransferReceiver,
};
use routing::hash_mix;

use super::WantedFeed;
use super::metrics::FetchResult;

/// Most transfers at once.
const AT_ONCE: usize = 4;
/// Most bytes in sum. A router that would need more is ready without the rest.
const MOST_BYTES: usize = 256 << 20;
/// Wait for hellos: for any, and for those of further routers after the first.
const FIRST_PEER: Duration = Duration::from_secs(2);
const FURTHER_PEERS: Duration = Duration::from_millis(500);
/// Longest wait for a part, and the most requests for it.
const ANSWER: Duration = Duration::from_secs(1);
const MOST_ATTEMPTS: u32 = 2;
/// Pause after a router was busy, or its feed was not current for a moment.
const BUSY: Duration = Duration::from_millis(100);
/// Most requests to a router whose feed is not current, and most contents of a feed that were of no use.
const MOST_RETRIES: u32 = 5;

/// Message to another router.
pub(crate) type Outgoing = (RouterId, TransferMessage);

/// Result of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FetchStep {
    /// Nothing to do.
    None,
    /// A message to send.
    Send(Outgoing),
    /// Contents of a feed.
    Contents(FeedKey, Vec<u8>),
    /// A transfer has failed; another router may have the contents.
    Failed(FetchResult),
}

/// State of the routers that may have contents.
#[derive(Debug, Clone)]
pub(crate) struct PeersNow {
    /// Routers of the same fleet and configuration that are ready.
    pub(crate) routers: Vec<RouterId>,
    /// Hashes of this router.
    pub(crate) hashes: FleetHashes,
}

/// Actions that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DueActions {
    pub(crate) send: Vec<Outgoing>,
    /// Feeds that no router is left for.
    pub(crate) settled: Vec<FeedKey>,
    /// Transfers that were not answered.
    pub(crate) timed_out: usize,
    /// Nothing more is to be fetched.
    pub(crate) is_over: bool,
}

#[derive(Debug)]
struct Fetch {
    from: RouterId,
    receiver: TransferReceiver,
    requested_at: Duration,
    attempts: u32,
    /// Refusals because the feed was not current.
    not_current: u32,
    /// Set if the router was busy: the request is repeated at this time.
    busy_until: Option<Duration>,
}

/// The transfers under way.
#[derive(Debug)]
pub(crate) struct Fetcher {
    router: RouterId,
    fetches: Vec<Fetch>,
    tried: HashMap<FeedKey, HashSet<RouterId>>,
    /// Number of contents of a feed that were not taken over.
    useless: HashMap<FeedKey, u32>,
    /// Feeds whose contents are here and are being taken over.
    seeding: HashSet<FeedKey>,
    first_peer_at: Option<Duration>,
    begun: u64,
    bytes: usize,
}

impl Fetcher {
    pub(crate) fn new(router: RouterId) -> Self {
        Self {
            router,
            fetches: Vec::new(),
            tried: HashMap::new(),
            useless: HashMap::new(),
            seeding: HashSet::new(),
            first_peer_at: None,
            begun: 0,
            bytes: 0,
        }
    }

    /// Returns the due steps. `now` is the time that this router has waited since the start.
    pub(crate) fn due(&mut self, now: Duration, peers: &PeersNow, wanted: &[WantedFeed]) -> DueActions {
        let mut due = DueActions::default();
        if peers.routers.is_empty() {
            due.is_over = self.first_peer_at.is_none() && now >= FIRST_PEER;
        } else {
            self.first_peer_at.get_or_insert(now);
        }
        if self.bytes >= MOST_BYTES {
            due.is_over = true;
        }
        self.repeat_requests(now, &mut due);
        let is_begun = self.first_peer_at.is_some_and(|at| now >= at + FURTHER_PEERS);
        if !is_begun || due.is_over {
            return due;
        }
        for wanted in wanted {
            let is_busy = |fetch: &Fetch| fetch.receiver.id().feed == wanted.feed;
            if self.seeding.contains(&wanted.feed) || self.fetches.iter().any(is_busy) {
                continue;
            }
            if self.fetches.len() >= AT_ONCE {
                break;
            }
            match self.next_peer(wanted.feed, peers) {
                Some(from) => due.send.push(self.begin(now, from, peers.hashes, wanted)),
                None => due.settled.push(wanted.feed),
            }
        }
        due
    }

    /// Repeats requests that were not answered, and gives up those that were repeated.
    fn repeat_requests(&mut self, now: Duration, due: &mut DueActions) {
        let before = self.fetches.len();
        self.fetches.retain(|fetch| {
            let is_late = now >= fetch.requested_at + ANSWER;
            fetch.busy_until.is_some() || !is_late || fetch.attempts < MOST_ATTEMPTS
        });
        due.timed_out = before - self.fetches.len();
        for fetch in &mut self.fetches {
            let is_due = match fetch.busy_until {
                Some(until) => now >= until,
                None => now >= fetch.requested_at + ANSWER,
            };
            if is_due {
                fetch.attempts += u32::from(fetch.busy_until.take().is_none());
                fetch.requested_at = now;
                due.send
                    .push((fetch.from, TransferMessage::Request(fetch.receiver.request())));
            }
        }
    }

    /// Returns a router that the feed was not requested from yet; feeds are spread over the routers.
    fn next_peer(&self, feed: FeedKey, peers: &PeersNow) -> Option<RouterId> {
        let tried = self.tried.get(&feed);
        let is_new = |router: &&RouterId| tried.is_none_or(|tried| !tried.contains(router));
        let left: Vec<RouterId> = peers.routers.iter().filter(is_new).copied().collect();
        let place = (feed.0 as usize).checked_rem(left.len())?;
        left.get(place).copied()
    }

    fn begin(&mut self, now: Duration, from: RouterId, hashes: FleetHashes, wanted: &WantedFeed) -> Outgoing {
        self.begun += 1;
        self.tried.entry(wanted.feed).or_default().insert(from);
        let id = TransferId {
            number: hash_mix(self.router.0 ^ hash_mix(self.begun)),
            feed: wanted.feed,
        };
        let receiver = TransferReceiver::new(id, hashes, wanted.known_from);
        let request = receiver.request();
        self.fetches.push(Fetch {
            from,
            receiver,
            requested_at: now,
            attempts: 1,
            not_current: 0,
            busy_until: None,
        });
        (from, TransferMessage::Request(request))
    }

    /// Handles a part. Parts of unknown transfers and of other routers are ignored.
    pub(crate) fn part(&mut self, now: Duration, from: RouterId, part: TransferPart) -> FetchStep {
        let Some(at) = self.find(from, part.id) else {
            return FetchStep::None;
        };
        let bytes = part.bytes.len();
        let fetch = &mut self.fetches[at];
        match fetch.receiver.receive(part) {
            Ok(ReceivedPart::Ignored) => FetchStep::None,
            Ok(ReceivedPart::Next) => {
                self.bytes += bytes;
                (fetch.requested_at, fetch.attempts) = (now, 1);
                FetchStep::Send((from, TransferMessage::Request(fetch.receiver.request())))
            }
            Ok(ReceivedPart::All(contents)) => {
                self.bytes += bytes;
                let feed = self.fetches.swap_remove(at).receiver.id().feed;
                self.seeding.insert(feed);
                FetchStep::Contents(feed, contents)
            }
            Err(_) => {
                self.fetches.swap_remove(at);
                FetchStep::Failed(FetchResult::Unreadable)
            }
        }
    }

    /// Handles a refusal.
    pub(crate) fn refusal(
        &mut self,
        now: Duration,
        from: RouterId,
        id: TransferId,
        reason: RefusalReason,
    ) -> FetchStep {
        let Some(at) = self.find(from, id) else {
            return FetchStep::None;
        };
        let fetch = &mut self.fetches[at];
        // A feed that checks for missed messages is not current for a moment.
        fetch.not_current += u32::from(reason == RefusalReason::NotCurrent);
        let is_passing = match reason {
            RefusalReason::Busy => true,
            RefusalReason::NotCurrent => fetch.not_current < MOST_RETRIES,
            RefusalReason::OtherFleet | RefusalReason::NothingOlder | RefusalReason::Over => false,
        };
        if is_passing {
            fetch.busy_until = Some(now + BUSY);
            return FetchStep::None;
        }
        self.fetches.swap_remove(at);
        FetchStep::Failed(FetchResult::Refused)
    }

    /// Records that the contents of a feed were taken over, or not. Then another router may have the contents.
    pub(crate) fn seeded(&mut self, feed: FeedKey, is_taken: bool) {
        self.seeding.remove(&feed);
        let useless = self.useless.entry(feed).or_default();
        *useless += u32::from(!is_taken);
        if !is_taken && *useless < MOST_RETRIES {
            // The own feed may have checked for missed messages.
            self.tried.remove(&feed);
        }
    }

    fn find(&self, from: RouterId, id: TransferId) -> Option<usize> {
        let is_it = |fetch: &Fetch| fetch.from == from && fetch.receiver.id() == id;
        self.fetches.iter().position(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEED: FeedKey = FeedKey(10);

    fn peers(routers: &[u64]) -> PeersNow {
        PeersNow {
            routers: routers.iter().copied().map(RouterId).collect(),
            hashes: FleetHashes::of("f", "c"),
        }
    }

    fn wanted(feeds: std::ops::Range<u64>) -> Vec<WantedFeed> {
        let feed = |feed| WantedFeed {
            feed: FeedKey(feed),
            known_from: Some(7),
        };
        feeds.map(feed).collect()
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns a fetcher that has requested one feed from a router, its request, and the time.
    fn fetcher_with_request(routers: &[u64]) -> (Fetcher, Outgoing, Duration) {
        let mut fetcher = Fetcher::new(RouterId(1));
        assert_eq!(
            fetcher.due(at(0), &peers(routers), &wanted(10..11)),
            DueActions::default()
        );
        let now = FURTHER_PEERS;
        let mut due = fetcher.due(now, &peers(routers), &wanted(10..11));
        assert_eq!((due.send.len(), due.settled.len()), (1, 0));
        (fetcher, due.send.remove(0), now)
    }

    fn id_of((_, message): &Outgoing) -> TransferId {
        match message {
            TransferMessage::Request(request) => request.id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_another_router_the_fetch_is_soon_over() {
        let mut fetcher = Fetcher::new(RouterId(1));
        assert!(!fetcher.due(at(1999), &peers(&[]), &wanted(0..1)).is_over);
        assert!(fetcher.due(FIRST_PEER, &peers(&[]), &wanted(0..1)).is_over);
    }

    #[test]
    fn parts_are_requested_one_after_another() {
        let (mut fetcher, request, now) = fetcher_with_request(&[2]);
        let part = |part| TransferPart {
            id: id_of(&request),
            part,
            parts: 2,
            bytes: vec![part as u8],
        };
        assert_eq!(
            fetcher.part(now, RouterId(3), part(0)),
            FetchStep::None,
            "of another router"
        );
        let FetchStep::Send((RouterId(2), TransferMessage::Request(next))) =
            fetcher.part(now, RouterId(2), part(0))
        else {
            panic!("the next part is requested");
        };
        assert_eq!(next.part, 1);
        let contents = fetcher.part(now, RouterId(2), part(1));
        assert_eq!(contents, FetchStep::Contents(FEED, vec![0, 1]));
        let due = fetcher.due(now, &peers(&[2]), &wanted(10..11));
        assert_eq!(due, DueActions::default(), "it is being taken over");
    }

    #[test]
    fn a_router_that_does_not_answer_is_queried_twice_and_then_the_next_one() {
        let (mut fetcher, request, mut now) = fetcher_with_request(&[2, 3]);
        now += ANSWER;
        let due = fetcher.due(now, &peers(&[2, 3]), &wanted(10..11));
        assert_eq!(due.send, std::slice::from_ref(&request));
        now += ANSWER;
        let due = fetcher.due(now, &peers(&[2, 3]), &wanted(10..11));
        assert_eq!((due.timed_out, due.send.len()), (1, 1));
        assert_ne!(due.send[0].0, request.0);
        let id = id_of(&due.send[0]);
        let refused = fetcher.refusal(now, due.send[0].0, id, RefusalReason::NothingOlder);
        assert_eq!(refused, FetchStep::Failed(FetchResult::Refused));
        let due = fetcher.due(now, &peers(&[2, 3]), &wanted(10..11));
        assert_eq!(due.settled, [FEED], "no router is left");
    }

    #[test]
    fn a_busy_router_is_queried_again_after_a_pause() {
        let (mut fetcher, request, now) = fetcher_with_request(&[2]);
        fetcher.refusal(now, request.0, id_of(&request), RefusalReason::Busy);
        let early = fetcher.due(now, &peers(&[2]), &wanted(10..11));
        assert_eq!(early, DueActions::default());
        assert_eq!(
            fetcher.due(now + BUSY, &peers(&[2]), &wanted(10..11)).send,
            [request]
        );
    }

    #[test]
    fn a_feed_that_is_not_current_for_a_moment_is_requested_again() {
        let (mut fetcher, request, mut now) = fetcher_with_request(&[2]);
        for _ in 1..MOST_RETRIES {
            let refused = fetcher.refusal(now, request.0, id_of(&request), RefusalReason::NotCurrent);
            assert_eq!(refused, FetchStep::None);
            now += BUSY;
            let due = fetcher.due(now, &peers(&[2]), &wanted(10..11));
            assert_eq!(due.send, std::slice::from_ref(&request));
        }
        let refused = fetcher.refusal(now, request.0, id_of(&request), RefusalReason::NotCurrent);
        assert_eq!(refused, FetchStep::Failed(FetchResult::Refused));
    }

    #[test]
    fn contents_that_were_not_taken_over_are_fetched_a_few_times() {
        let mut fetcher = Fetcher::new(RouterId(1));
        let peers = peers(&[2]);
        fetcher.due(at(0), &peers, &wanted(10..11));
        for _ in 0..MOST_RETRIES {
            let due = fetcher.due(FURTHER_PEERS, &peers, &wanted(10..11));
            let part = TransferPart {
                id: id_of(&due.send[0]),
                part: 0,
                parts: 1,
                bytes: vec![1],
            };
            let contents = fetcher.part(FURTHER_PEERS, RouterId(2), part);
            assert_eq!(contents, FetchStep::Contents(FEED, vec![1]));
            fetcher.seeded(FEED, false);
        }
        let due = fetcher.due(FURTHER_PEERS, &peers, &wanted(10..11));
        assert_eq!(due.settled, [FEED]);
    }

    #[test]
    fn few_feeds_are_fetched_at_once_from_all_routers() {
        let mut fetcher = Fetcher::new(RouterId(1));
        let peers = peers(&[2, 3]);
        fetcher.due(at(0), &peers, &wanted(0..9));
        let due = fetcher.due(FURTHER_PEERS, &peers, &wanted(0..9));
        let queried: HashSet<RouterId> = due.send.iter().map(|(router, _)| *router).collect();
        assert_eq!((due.send.len(), queried.len()), (AT_ONCE, 2));
    }

    #[test]
    fn the_sum_of_all_bytes_is_bounded() {
        let (mut fetcher, _, now) = fetcher_with_request(&[2]);
        fetcher.bytes = MOST_BYTES;
        assert!(fetcher.due(now, &peers(&[2]), &wanted(0..1)).is_over);
    }
}
