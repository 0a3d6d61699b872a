//! Store of a route's entry, which a test writes for the other routers of a fleet.

use std::sync::{Arc, Mutex, MutexGuard};

use agreement::{
    AgreedEntry, AgreedKey, AgreedStore, AgreedWrite, ObjectRead, ObjectWrite, ReportKey, StoreError,
    StoreEvent, WriteOutcome,
};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Store of one route's entry.
#[derive(Clone)]
pub(super) struct FleetStore {
    state: Arc<Mutex<StoreState>>,
    /// Room for reports: the router's task stands still without it.
    pub(super) reports: Arc<Semaphore>,
}

struct StoreState {
    entry: Option<(AgreedKey, u64, AgreedEntry)>,
    /// Revision of the removal of the entry.
    removed: u64,
    removed_key: Option<AgreedKey>,
    revision: u64,
    /// Set while a report waits for room.
    is_held: bool,
    answer: WriteAnswer,
    events: Sender<StoreEvent>,
}

/// Answer to writes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum WriteAnswer {
    Given,
    /// The entry is written, and the answer is lost.
    Lost,
    /// Nothing is written, and there is no answer.
    Never,
}

/// A router's end of the store.
pub(super) struct StoreEnd(FleetStore, Receiver<StoreEvent>);

impl FleetStore {
    pub(super) fn new() -> (Self, StoreEnd) {
        let (events, received) = channel(1_000);
        for event in [StoreEvent::Opened, StoreEvent::Synced] {
            events.try_send(event).unwrap();
        }
        let state = StoreState {
            entry: None,
            removed: 0,
            removed_key: None,
            revision: 0,
            is_held: false,
            answer: WriteAnswer::Given,
            events,
        };
        let store = Self {
            state: Arc::new(Mutex::new(state)),
            reports: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        };
        (store.clone(), StoreEnd(store, received))
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap()
    }

    pub(super) fn set_answer(&self, answer: WriteAnswer) {
        self.lock().answer = answer;
    }

    pub(super) fn send(&self, event: StoreEvent) {
        self.lock().events.try_send(event).unwrap();
    }

    /// Returns whether a report waits for room.
    pub(super) fn is_held(&self) -> bool {
        self.lock().is_held
    }

    /// Returns the entry: its author, and the value.
    pub(super) fn entry(&self) -> (String, Value) {
        let entry = self.lock().entry.clone();
        entry.map_or_else(Default::default, |(_, _, entry)| (entry.by, entry.value))
    }

    pub(super) fn key(&self) -> AgreedKey {
        self.lock().entry.clone().unwrap().0
    }

    pub(super) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Writes an entry, and delivers it.
    pub(super) fn put(&self, key: &AgreedKey, entry: AgreedEntry) -> u64 {
        let mut state = self.lock();
        state.revision += 1;
        let (key, revision, bytes) = (key.clone(), state.revision, entry.encode());
        state.entry = Some((key.clone(), revision, entry));
        let event = StoreEvent::Entry { key, revision, bytes };
        state.events.try_send(event).unwrap();
        state.revision
    }

    /// Writes the present entry with changes, as another router.
    pub(super) fn put_other(&self, change: impl FnOnce(&mut Value)) {
        let (key, _, entry) = self.lock().entry.clone().unwrap();
        let mut value = entry.value;
        change(&mut value);
        self.put_by("2", &key, value);
    }

    /// Writes a value as a router.
    pub(super) fn put_by(&self, router: &str, key: &AgreedKey, value: Value) -> u64 {
        // A number for each write.
        let number = self.revision() + 1;
        self.put(key, AgreedEntry::new(router, number, 0, value))
    }

    /// Removes the entry, as an operator does.
    pub(super) fn remove(&self) {
        let mut state = self.lock();
        state.revision += 1;
        let (key, ..) = state.entry.take().unwrap();
        (state.removed, state.removed_key) = (state.revision, Some(key));
        let removal = state.removal().unwrap();
        state.events.try_send(removal).unwrap();
    }

    /// Opens again, with its entry.
    pub(super) fn open_again(&self) {
        self.send(StoreEvent::Opened);
        let event = self.lock().event();
        if let Some(event) = event {
            self.send(event);
        }
        self.send(StoreEvent::Synced);
    }
}

impl StoreState {
    /// Returns the event of the entry.
    fn event(&self) -> Option<StoreEvent> {
        let (key, revision, entry) = self.entry.clone()?;
        let bytes = entry.encode();
        Some(StoreEvent::Entry { key, revision, bytes })
    }

    /// Returns the event of the last removal.
    fn removal(&self) -> Option<StoreEvent> {
        let (key, revision) = (self.removed_key.clone()?, self.removed);
        Some(StoreEvent::Removed { key, revision })
    }
}

impl AgreedStore for StoreEnd {
    async fn next(&mut self) -> StoreEvent {
        self.1.recv().await.unwrap_or(StoreEvent::Closed)
    }

    async fn write(&mut self, write: &AgreedWrite) -> WriteOutcome {
        let lost = WriteOutcome::Unknown(StoreError {
            doing: "write",
            why: "no answer".to_owned(),
        });
        let (answer, current) = {
            let state = self.0.lock();
            let entry = state.entry.as_ref().map(|(_, revision, _)| *revision);
            (state.answer, entry.unwrap_or(state.removed))
        };
        if answer == WriteAnswer::Never {
            return lost;
        }
        if current != write.expected {
            return WriteOutcome::Conflict;
        }
        let revision = self.0.put(&write.key, AgreedEntry::decode(&write.bytes).unwrap());
        match answer {
            WriteAnswer::Given => WriteOutcome::Accepted(revision),
            WriteAnswer::Lost | WriteAnswer::Never => lost,
        }
    }

    async fn read(&mut self, wanted: &AgreedKey) -> Result<Option<StoreEvent>, StoreError> {
        let state = self.0.lock();
        Ok(match &state.entry {
            Some((key, ..)) => (key == wanted).then(|| state.event()).flatten(),
            None => state
                .removal()
                .filter(|_| state.removed_key.as_ref() == Some(wanted)),
        })
    }

    async fn report(&mut self, _: &ReportKey, _: Vec<u8>) -> Result<(), StoreError> {
        if self.0.reports.available_permits() == 0 {
            self.0.lock().is_held = true;
        }
        self.0.reports.acquire().await.unwrap().forget();
        Ok(())
    }

    fn put_object(&self, _: &str, _: Arc<Vec<u8>>) -> ObjectWrite {
        Box::pin(std::future::ready(Ok(())))
    }

    fn object(&self, _: &str) -> ObjectRead {
        Box::pin(std::future::ready(Ok(None)))
    }
}
