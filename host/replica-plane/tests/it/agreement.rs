//! Agreement of several routers over a store in memory: canaries are judged by the evidence of all, once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use agreement::{
    AgreedKey, AgreedStore, AgreedWrite, ObjectRead, ObjectWrite, ReportKey, RouterStates, StoreError,
    StoreEvent, WriteOutcome,
};
use experiment::{Evidence, EvidenceTotals, RequestResult, StopRule};
use prometheus_client::registry::Registry;
use replica_plane::{
    AgreedHandle, AgreementMetrics, AgreementParts, AgreementReport, AgreementTask, ArmFacts, ObjectState,
    SharedTrial, StopOrder, TrialFacts, TrialSource,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

/// SHA-256 of `abc` (FIPS 180).
pub(crate) const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Store of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryStore(Arc<Mutex<StoreState>>);

#[derive(Debug, Default)]
struct StoreState {
    revision: u64,
    entries: BTreeMap<AgreedKey, (u64, Vec<u8>)>,
    objects: BTreeMap<String, Vec<u8>>,
    members: Vec<Sender<StoreEvent>>,
    accepted: usize,
    fault: Option<ReadFault>,
    /// Hash of an object that is not stored.
    refused: Option<String>,
    puts: usize,
    reads: usize,
    /// Set if those who join get no event by themselves.
    is_away: bool,
    /// Set if writes are not delivered.
    is_silent: bool,
}

/// Fault of all reads of objects.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReadFault {
    /// They fail.
    Error,
    /// They do not end.
    Stall,
}

/// One router's end.
#[derive(Debug)]
struct StoreEnd {
    store: MemoryStore,
    events: Receiver<StoreEvent>,
}

impl MemoryStore {
    /// Returns a store that is away: its routers get only the events that are delivered.
    pub(crate) fn away() -> Self {
        let store = Self::default();
        store.0.lock().unwrap().is_away = true;
        store
    }

    pub(crate) fn set_fault(&self, fault: Option<ReadFault>) {
        self.0.lock().unwrap().fault = fault;
    }

    pub(crate) fn set_object(&self, sha256: &str, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap();
        state.objects.insert(sha256.to_owned(), bytes.to_vec());
    }

    pub(crate) fn remove_object(&self, sha256: &str) {
        self.0.lock().unwrap().objects.remove(sha256);
    }

    /// Refuses to store bytes of this hash.
    pub(crate) fn refuse(&self, sha256: Option<&str>) {
        self.0.lock().unwrap().refused = sha256.map(str::to_owned);
    }

    /// Delivers writes no more.
    pub(crate) fn silence(&self) {
        self.0.lock().unwrap().is_silent = true;
    }

    /// Returns the number of accepted writes.
    pub(crate) fn accepted(&self) -> usize {
        self.0.lock().unwrap().accepted
    }

    /// Returns the number of begun writes of objects.
    pub(crate) fn puts(&self) -> usize {
        self.0.lock().unwrap().puts
    }

    /// Delivers an event to all routers.
    pub(crate) fn deliver(&self, event: &StoreEvent) {
        Self::send(&self.0.lock().unwrap(), event);
    }

    /// Returns the number of begun reads of objects.
    pub(crate) fn reads(&self) -> usize {
        self.0.lock().unwrap().reads
    }

    fn join(&self) -> StoreEnd {
        let (sender, events) = channel(10_000);
        let mut state = self.0.lock().unwrap();
        let store = self.clone();
        if state.is_away {
            state.members.push(sender);
            return StoreEnd { store, events };
        }
        sender.try_send(StoreEvent::Opened).unwrap();
        for (key, (revision, bytes)) in &state.entries {
            let (key, revision, bytes) = (key.clone(), *revision, bytes.clone());
            sender
                .try_send(StoreEvent::Entry { key, revision, bytes })
                .unwrap();
        }
        sender.try_send(StoreEvent::Synced).unwrap();
        state.members.push(sender);
        StoreEnd { store, events }
    }

    fn send(state: &StoreState, event: &StoreEvent) {
        for member in &state.members {
            let _ = member.try_send(event.clone());
        }
    }
}

impl AgreedStore for StoreEnd {
    async fn next(&mut self) -> StoreEvent {
        self.events.recv().await.unwrap_or(StoreEvent::Closed)
    }

    async fn write(&mut self, write: &AgreedWrite) -> WriteOutcome {
        let mut state = self.store.0.lock().unwrap();
        let current = state.entries.get(&write.key).map_or(0, |(revision, _)| *revision);
        if current != write.expected {
            return WriteOutcome::Conflict;
        }
        state.revision += 1;
        state.accepted += 1;
        let (revision, bytes, key) = (state.revision, write.bytes.clone(), write.key.clone());
        state.entries.insert(key.clone(), (revision, bytes.clone()));
        if !state.is_silent {
            MemoryStore::send(&state, &StoreEvent::Entry { key, revision, bytes });
        }
        WriteOutcome::Accepted(revision)
    }

    async fn read(&mut self, key: &AgreedKey) -> Result<Option<StoreEvent>, StoreError> {
        let state = self.store.0.lock().unwrap();
        let (key, entry) = (key.clone(), state.entries.get(key).cloned());
        Ok(entry.map(|(revision, bytes)| StoreEvent::Entry { key, revision, bytes }))
    }

    async fn report(&mut self, key: &ReportKey, report: Vec<u8>) -> Result<(), StoreError> {
        let (key, bytes) = (key.clone(), report);
        MemoryStore::send(&self.store.0.lock().unwrap(), &StoreEvent::Report { key, bytes });
        Ok(())
    }

    fn put_object(&self, sha256: &str, bytes: Arc<Vec<u8>>) -> ObjectWrite {
        let mut state = self.store.0.lock().unwrap();
        state.puts += 1;
        if state.refused.as_deref() == Some(sha256) {
            return Box::pin(std::future::ready(Err(StoreError {
                doing: "store the bytes of a policy",
                why: "maximum bytes exceeded".to_owned(),
            })));
        }
        state.objects.insert(sha256.to_owned(), bytes.to_vec());
        Box::pin(std::future::ready(Ok(())))
    }

    fn object(&self, sha256: &str) -> ObjectRead {
        let mut state = self.store.0.lock().unwrap();
        state.reads += 1;
        let bytes = match state.fault {
            None => Ok(state.objects.get(sha256).cloned()),
            Some(ReadFault::Error) => Err(StoreError {
                doing: "read the bytes of a policy",
                why: "no leader".to_owned(),
            }),
            Some(ReadFault::Stall) => return Box::pin(std::future::pending()),
        };
        Box::pin(std::future::ready(bytes))
    }
}

/// Experiment with one canary.
#[derive(Debug, Clone)]
struct Trial(Arc<Mutex<TrialState>>);

#[derive(Debug)]
struct TrialState {
    evidence: Evidence,
    stopped: Option<String>,
    is_news: bool,
}

impl Trial {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(TrialState {
            evidence: evidence(),
            stopped: None,
            is_news: false,
        })))
    }

    /// Adds requests of all session groups, of which every second one of the canary fails.
    fn serve(&self, requests: u32) {
        let mut state = self.0.lock().unwrap();
        for at in 0..requests {
            for arm in [0, 1] {
                let result = RequestResult {
                    failed: Some(arm == 1 && at % 2 == 0),
                    ..RequestResult::default()
                };
                assert_eq!(
                    state.evidence.add(arm, (at % 64) as u8, &result),
                    [],
                    "one alone has too few"
                );
            }
        }
    }

    fn stopped(&self) -> Option<String> {
        self.0.lock().unwrap().stopped.clone()
    }

    fn resume(&self) {
        let mut state = self.0.lock().unwrap();
        state.evidence = evidence();
        (state.stopped, state.is_news) = (None, true);
    }
}

fn evidence() -> Evidence {
    let rule = StopRule {
        consecutive_failures: 0,
        ..StopRule::default()
    };
    Evidence::new(rule, 2)
}

impl TrialSource for Trial {
    type Trial = Self;

    fn trials(&self) -> Vec<Self> {
        vec![self.clone()]
    }
}

impl SharedTrial for Trial {
    fn facts(&self) -> TrialFacts {
        let arm = |policy: &str, is_stopped| ArmFacts {
            policy: policy.to_owned(),
            version: "1".to_owned(),
            is_stopped,
            reason: "worse".to_owned(),
        };
        TrialFacts {
            identity: "the trial".to_owned(),
            pool: "p".to_owned(),
            route: "*".to_owned(),
            arms: vec![arm("control", false), arm("canary", self.stopped().is_some())],
        }
    }

    fn take_changed(&self, _: usize) -> bool {
        std::mem::take(&mut self.0.lock().unwrap().is_news)
    }

    fn totals(&self) -> EvidenceTotals {
        self.0.lock().unwrap().evidence.totals()
    }

    fn set_others(&self, others: &[&EvidenceTotals]) {
        let mut state = self.0.lock().unwrap();
        let worse = state.evidence.set_others(others.iter().copied());
        if !worse.is_empty() && state.stopped.is_none() {
            (state.stopped, state.is_news) = (Some("own".to_owned()), true);
        }
    }

    fn apply_stop(&self, _: usize, order: Option<&StopOrder>) -> bool {
        let mut state = self.0.lock().unwrap();
        match (order, state.stopped.is_some()) {
            (Some(order), false) => {
                state.stopped = Some(order.by.clone());
                true
            }
            (None, true) => {
                state.stopped = None;
                state.evidence = evidence();
                true
            }
            _ => false,
        }
    }
}

pub(crate) struct Router {
    trial: Trial,
    pub(crate) handle: AgreedHandle,
}

#[expect(clippy::disallowed_methods, reason = "a test ends its tasks with its runtime")]
pub(crate) fn router(store: &MemoryStore, id: &str, stop: &CancellationToken) -> Router {
    let (trial, handle) = (Trial::new(), AgreedHandle::new(id, id));
    let task = AgreementTask::new(AgreementParts {
        handle: handle.clone(),
        trials: trial.clone(),
        metrics: Arc::new(AgreementMetrics::register(&mut Registry::default())),
    });
    tokio::spawn(task.run(store.join(), stop.clone()));
    Router { trial, handle }
}

/// Waits, in paused time, until `look` is true.
pub(crate) async fn until(what: &str, look: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if look() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("never: {what}")
}

#[tokio::test(start_paused = true)]
async fn a_canary_is_stopped_by_the_sum_of_three_routers_decided_once_and_resumed_by_one_for_all() {
    let (store, stop) = (MemoryStore::default(), CancellationToken::new());
    let routers = ["1", "2", "3"].map(|id| router(&store, id, &stop));
    for router in &routers {
        router.trial.serve(80);
    }
    until("all have stopped it", || {
        routers.iter().all(|router| router.trial.stopped().is_some())
    })
    .await;
    let accepted = || store.accepted();
    until("the store has it", || accepted() > 0).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(accepted(), 1, "one decided");
    let report = AgreementReport::of(&routers[2].handle, |_| true);
    assert_eq!((report.entries.len(), report.entries[0].kind), (1, "canary"));
    assert_eq!(report.entries[0].value["stopped"], true);

    let late = router(&store, "4", &stop);
    until("a new router obeys", || late.trial.stopped().is_some()).await;
    routers[1].trial.resume();
    let all = || routers.iter().chain([&late]);
    until("all have resumed it", || {
        all().all(|router| router.trial.stopped().is_none())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(
        all().all(|router| router.trial.stopped().is_none()),
        "the evidence from before does not stop it again"
    );
    assert_eq!(accepted(), 2);
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn bytes_are_stored_before_their_decision_and_fetched_by_their_hash() {
    let (store, stop) = (MemoryStore::default(), CancellationToken::new());
    let (one, two) = (router(&store, "1", &stop), router(&store, "2", &stop));
    let sha256 = ABC;
    let key = AgreedKey::of(agreement::AgreedKind::Route, "r");
    let object = (sha256.to_owned(), Arc::new(b"abc".to_vec()));
    one.handle.propose(key.clone(), serde_json::json!(1), [object]);
    until("the decision is there", || {
        two.handle.view().stored(&key).is_some()
    })
    .await;
    until("the bytes are there", || {
        matches!(two.handle.object(sha256), ObjectState::Ready(_))
    })
    .await;
    store.set_object("00", b"abc");
    until("bytes of another hash are refused", || {
        matches!(two.handle.object("00"), ObjectState::Failed(_))
    })
    .await;
    assert!(!one.handle.view().is_proposed(&key));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn states_of_a_new_router_are_known_after_many_others_came_and_went() {
    let (store, stop) = (MemoryStore::default(), CancellationToken::new());
    let router = router(&store, "1", &stop);
    for id in 0..300 {
        let id = format!("{id:x}");
        let bytes = RouterStates::of(&id).encode();
        let key = ReportKey::States { router: id };
        store.deliver(&StoreEvent::Report { key, bytes });
    }
    let newest = format!("{:x}", 299);
    until("the newest is known", || {
        router.handle.view().states.contains_key(&newest)
    })
    .await;
    assert_eq!(router.handle.view().states.len(), 256);
    stop.cancel();
}
