//! Routers that give each other the contents of their indexes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use replica_plane::{IndexContents, IndexTransfer, TransferMetrics, TransferParts, WantedFeed};
use replicas::{DirectBus, DirectEvent, FeedKey, PART_BYTES, RefusalReason, RouterId, TransferError};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::bus::Hub;
use crate::{Router, pass};

/// Direct messages in memory.
#[derive(Clone, Default)]
struct DirectHub(Arc<Mutex<HashMap<RouterId, Sender<DirectEvent>>>>);

struct DirectEnd {
    hub: DirectHub,
    own: RouterId,
    events: Receiver<DirectEvent>,
}

impl DirectHub {
    fn join(&self, own: RouterId) -> DirectEnd {
        let (sender, events) = channel(1_000);
        self.0.lock().unwrap().insert(own, sender);
        DirectEnd {
            hub: self.clone(),
            own,
            events,
        }
    }
}

impl DirectBus for DirectEnd {
    fn send(&self, to: RouterId, payload: Vec<u8>) -> bool {
        let members = self.hub.0.lock().unwrap();
        let message = DirectEvent::Message {
            from: self.own,
            payload,
        };
        members.get(&to).is_some_and(|to| to.try_send(message).is_ok())
    }

    async fn next(&mut self) -> DirectEvent {
        self.events.recv().await.unwrap_or(DirectEvent::Closed)
    }
}

/// An index: the contents of feeds that it can give, and those that it needs.
#[derive(Clone, Default)]
struct Index(Arc<Mutex<IndexState>>);

#[derive(Default)]
struct IndexState {
    is_open: bool,
    has: HashMap<FeedKey, Vec<u8>>,
    wanted: Vec<FeedKey>,
    taken: HashMap<FeedKey, Vec<u8>>,
}

impl IndexContents for Index {
    fn is_open(&self) -> bool {
        self.0.lock().unwrap().is_open
    }

    fn close(&self) {
        self.0.lock().unwrap().is_open = false;
    }

    fn wanted(&self) -> Vec<WantedFeed> {
        let wanted = |feed: &FeedKey| WantedFeed {
            feed: *feed,
            known_from: Some(7),
        };
        self.0.lock().unwrap().wanted.iter().map(wanted).collect()
    }

    fn settle(&self, feed: FeedKey) {
        self.0.lock().unwrap().wanted.retain(|wanted| *wanted != feed);
    }

    fn export(
        &self,
        feed: FeedKey,
        known_from: Option<u64>,
    ) -> oneshot::Receiver<Result<Vec<u8>, RefusalReason>> {
        assert_eq!(known_from, Some(7));
        let (sender, receiver) = oneshot::channel();
        let contents = self.0.lock().unwrap().has.get(&feed).cloned();
        sender.send(contents.ok_or(RefusalReason::NothingOlder)).unwrap();
        receiver
    }

    fn seed(&self, feed: FeedKey, bytes: &[u8]) -> Result<oneshot::Receiver<bool>, TransferError> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap().taken.insert(feed, bytes.to_vec());
        sender.send(true).unwrap();
        Ok(receiver)
    }
}

#[expect(clippy::disallowed_methods, reason = "a test ends its tasks with its runtime")]
fn start(direct: &DirectHub, router: &Router, id: u64, index: &Index) {
    let transfer = IndexTransfer::new(TransferParts {
        router: RouterId(id),
        contents: index.clone(),
        reports: router.reports.clone(),
        metrics: Arc::new(TransferMetrics::register(&mut Registry::default())),
    });
    let bus = direct.join(RouterId(id));
    tokio::spawn(transfer.run(bus, CancellationToken::new()));
}

fn contents(feed: u64) -> Vec<u8> {
    vec![feed as u8; 2 * PART_BYTES + 7]
}

#[tokio::test(start_paused = true)]
async fn a_new_router_gets_what_another_one_has_in_parts() {
    let (hub, direct) = (Hub::default(), DirectHub::default());
    let (old, new) = (Router::start(&hub, 1, 2), Router::start(&hub, 2, 2));
    let (has, wants) = (Index::default(), Index::default());
    {
        let mut has = has.0.lock().unwrap();
        has.has = (0..9).map(|feed| (FeedKey(feed), contents(feed))).collect();
        let mut wants = wants.0.lock().unwrap();
        (wants.is_open, wants.wanted) = (true, (0..10).map(FeedKey).collect());
    }
    start(&direct, &old, 1, &has);
    start(&direct, &new, 2, &wants);
    pass(3_000).await;
    let wants = wants.0.lock().unwrap();
    assert!(
        wants.wanted.is_empty(),
        "the last one is refused, the others are here"
    );
    assert_eq!(wants.taken.len(), 9);
    assert!(wants.taken.iter().all(|(feed, bytes)| *bytes == contents(feed.0)));
}

#[tokio::test(start_paused = true)]
async fn routers_with_other_workers_give_each_other_nothing() {
    let (hub, direct) = (Hub::default(), DirectHub::default());
    let (old, new) = (Router::start(&hub, 1, 2), Router::start(&hub, 2, 3));
    let (has, wants) = (Index::default(), Index::default());
    has.0.lock().unwrap().has.insert(FeedKey(1), contents(1));
    {
        let mut wants = wants.0.lock().unwrap();
        (wants.is_open, wants.wanted) = (true, vec![FeedKey(1)]);
    }
    start(&direct, &old, 1, &has);
    start(&direct, &new, 2, &wants);
    pass(3_000).await;
    assert!(wants.0.lock().unwrap().taken.is_empty());
    assert!(!wants.is_open(), "the wait is over");
}

#[tokio::test(start_paused = true)]
async fn a_router_that_did_not_run_still_waits_for_others() {
    let (hub, direct) = (Hub::default(), DirectHub::default());
    let (new, wants) = (Router::start(&hub, 1, 2), Index::default());
    wants.0.lock().unwrap().is_open = true;
    start(&direct, &new, 1, &wants);
    pass(100).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    pass(100).await;
    assert!(wants.is_open(), "nothing could be heard in this minute");
    pass(3_000).await;
    assert!(!wants.is_open(), "the wait is over");
}

#[tokio::test(start_paused = true)]
async fn a_router_that_starts_itself_gives_nothing() {
    let (hub, direct) = (Hub::default(), DirectHub::default());
    let (one, two) = (Router::start(&hub, 1, 2), Router::start(&hub, 2, 2));
    let indexes = [Index::default(), Index::default()];
    for index in &indexes {
        let mut state = index.0.lock().unwrap();
        (state.is_open, state.wanted) = (true, vec![FeedKey(1)]);
        state.has.insert(FeedKey(1), contents(1));
    }
    start(&direct, &one, 1, &indexes[0]);
    start(&direct, &two, 2, &indexes[1]);
    pass(3_000).await;
    for index in &indexes {
        let state = index.0.lock().unwrap();
        assert!(state.taken.is_empty() && state.wanted.is_empty());
    }
}
