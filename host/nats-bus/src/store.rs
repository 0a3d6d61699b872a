//! Store of a fleet's agreed entries: JetStream key-value buckets and an object store.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agreement::{
    AgreedKey, AgreedStore, AgreedWrite, ObjectRead, ObjectWrite, ReportKey, StoreError, StoreEvent,
    WriteOutcome,
};
use async_nats::connection::State;
use async_nats::jetstream::kv::{Operation, UpdateError, UpdateErrorKind};
use async_nats::jetstream::object_store::{GetErrorKind, ObjectStore};
use async_nats::{Client, Event};
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::client::{self, NatsError, NatsOptions};
use crate::faults::Faults;
use crate::open_store::{Buckets, OpenStore, Watched};
use crate::store_error::failed;

/// Longest wait for the bytes of an object, in or out.
const OBJECT: Duration = Duration::from_secs(20);
/// Attempted action of a read of an object, for errors.
const READ_OBJECT: &str = "read the bytes of a policy";
/// Attempted action of a write of an object, for errors.
const WRITE_OBJECT: &str = "store the bytes of a policy";
/// Most bytes of an object.
const MOST_OBJECT: usize = 64 << 20;
/// Longest wait until all buckets are open: an answer may be lost with a connection.
const OPEN: Duration = Duration::from_secs(5);
/// Pause between two looks at the state of the connection.
const LOOK: Duration = Duration::from_millis(100);
/// Pause after a failed attempt to open the buckets.
const PAUSE: Duration = Duration::from_secs(1);

/// Buckets of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Copies of each entry in a cluster, 1 to 5.
    pub copies: usize,
    /// Longest wait for one answer of the store.
    pub answer: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            copies: 1,
            answer: Duration::from_secs(2),
        }
    }
}

/// The store over JetStream.
pub struct NatsStore {
    client: Client,
    events: mpsc::Receiver<Event>,
    fleet: String,
    options: StoreOptions,
    state: OpenState,
    faults: Faults,
    /// Events that are found and not returned yet.
    ahead: VecDeque<StoreEvent>,
}

/// State of the buckets.
enum OpenState {
    /// They are opened at this time.
    Waiting(Instant),
    Opening(BoxFuture<'static, Result<OpenStore, StoreError>>),
    Open(Box<OpenStore>),
}

impl fmt::Debug for NatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsStore")
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}

impl NatsStore {
    /// Starts the client. It returns before a server is reached.
    ///
    /// # Errors
    /// [`NatsError`] where options or files are invalid.
    pub async fn start(options: &NatsOptions, store: StoreOptions) -> Result<Self, NatsError> {
        let (client, events) = client::start(options).await?;
        Ok(Self {
            client,
            events,
            fleet: options.fleet.clone(),
            options: store,
            state: OpenState::Waiting(Instant::now()),
            faults: Faults::default(),
            ahead: VecDeque::new(),
        })
    }

    fn buckets(&self) -> Result<&Buckets, StoreError> {
        match &self.state {
            OpenState::Open(open) => Ok(&open.buckets),
            OpenState::Waiting(_) | OpenState::Opening(_) => Err(StoreError {
                doing: "reach the store",
                why: "it is away".to_owned(),
            }),
        }
    }

    /// Leaves the buckets, and opens them again later.
    fn leave(&mut self, pause: Duration, why: String) -> StoreEvent {
        self.state = OpenState::Waiting(Instant::now() + pause);
        StoreEvent::Lost(why)
    }

    fn handle(&mut self, event: Option<Event>) -> Option<StoreEvent> {
        let fault = event.as_ref().and_then(|event| self.faults.take_in(event));
        match event {
            Some(Event::Connected) => {
                self.state = OpenState::Waiting(Instant::now());
                None
            }
            Some(Event::Disconnected) => Some(self.leave(PAUSE, "the NATS server is away".to_owned())),
            Some(Event::Closed) | None => Some(StoreEvent::Closed),
            Some(_) if self.is_connected() => {
                if let Some(why) = fault {
                    warn!(
                        why,
                        "the connection of the store of the fleet's decisions has a fault"
                    );
                }
                None
            }
            // The reason for which the server is away; the buckets have been left.
            Some(_) => {
                fault.map(|why| StoreEvent::Lost(format!("failed to connect to the NATS servers: {why}")))
            }
        }
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Moves the state of the buckets on. Dropping the future loses nothing.
    async fn advance(state: &mut OpenState, client: &Client, fleet: &str, options: &StoreOptions) -> Advance {
        match state {
            OpenState::Waiting(at) => {
                tokio::time::sleep_until(*at).await;
                if client.connection_state() != State::Connected {
                    // Its event may have come before its state.
                    *state = OpenState::Waiting(Instant::now() + LOOK);
                    return Advance::Nothing;
                }
                let opening = Buckets::open(client.clone(), fleet.to_owned(), options.clone());
                let opening = async move {
                    let opened = timeout(OPEN, opening).await;
                    opened.unwrap_or_else(|_| Err(no_answer("open the buckets of JetStream")))
                };
                *state = OpenState::Opening(Box::pin(opening));
                Advance::Nothing
            }
            OpenState::Opening(opening) => match opening.await {
                Ok(open) => {
                    *state = OpenState::Open(Box::new(open));
                    Advance::Opened
                }
                Err(error) => Advance::Failed(error),
            },
            OpenState::Open(open) => Advance::Watched(open.next().await),
        }
    }
}

/// Progress of the buckets.
enum Advance {
    Nothing,
    Opened,
    Failed(StoreError),
    Watched(Watched),
}

impl AgreedStore for NatsStore {
    async fn next(&mut self) -> StoreEvent {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                return event;
            }
            tokio::select! {
                biased;
                event = self.events.recv() => {
                    if let Some(event) = self.handle(event) {
                        return event;
                    }
                }
                advance = Self::advance(&mut self.state, &self.client, &self.fleet, &self.options) => match advance {
                    Advance::Nothing => {}
                    Advance::Opened => self.ahead.push_back(StoreEvent::Opened),
                    Advance::Failed(error) => return self.leave(PAUSE, error.to_string()),
                    Advance::Watched(Watched::Event(event)) => return event,
                    Advance::Watched(Watched::Ignored) => {}
                    Advance::Watched(Watched::Ended(why)) => return self.leave(PAUSE, why),
                },
            }
        }
    }

    async fn write(&mut self, write: &AgreedWrite) -> WriteOutcome {
        let buckets = match self.buckets() {
            Ok(buckets) => buckets,
            Err(error) => return WriteOutcome::Unknown(error),
        };
        let doing = "write an agreed entry";
        let update = buckets
            .agreed
            .update(write.key.to_string(), write.bytes.clone().into(), write.expected);
        match timeout(self.options.answer, update).await {
            Ok(Ok(revision)) => WriteOutcome::Accepted(revision),
            Ok(Err(error)) if is_wrong_revision(&error) => WriteOutcome::Conflict,
            Ok(Err(error)) => WriteOutcome::Unknown(failed(doing, &error)),
            Err(_) => WriteOutcome::Unknown(no_answer(doing)),
        }
    }

    async fn read(&mut self, key: &AgreedKey) -> Result<Option<StoreEvent>, StoreError> {
        let doing = "read an agreed entry";
        let entry = self.buckets()?.agreed.entry(key.to_string());
        let entry = timeout(self.options.answer, entry)
            .await
            .map_err(|_| no_answer(doing))?;
        let entry = entry.map_err(|error| failed(doing, &error))?;
        Ok(entry.map(|entry| {
            let (key, revision) = (key.clone(), entry.revision);
            match entry.operation {
                Operation::Put => StoreEvent::Entry {
                    key,
                    revision,
                    bytes: entry.value.to_vec(),
                },
                Operation::Delete | Operation::Purge => StoreEvent::Removed { key, revision },
            }
        }))
    }

    async fn report(&mut self, key: &ReportKey, report: Vec<u8>) -> Result<(), StoreError> {
        let doing = "write a report";
        let put = self.buckets()?.reports.put(key.text(), report.into());
        match timeout(self.options.answer, put).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(failed(doing, &error)),
            Err(_) => Err(no_answer(doing)),
        }
    }

    fn put_object(&self, sha256: &str, bytes: Arc<Vec<u8>>) -> ObjectWrite {
        let objects = self.buckets().map(|buckets| buckets.objects.clone());
        let sha256 = sha256.to_owned();
        Box::pin(async move {
            let stored = timeout(OBJECT, write_object(&objects?, &sha256, &bytes)).await;
            stored.unwrap_or_else(|_| Err(no_answer(WRITE_OBJECT)))
        })
    }

    fn object(&self, sha256: &str) -> ObjectRead {
        let objects = self.buckets().map(|buckets| buckets.objects.clone());
        let sha256 = sha256.to_owned();
        Box::pin(async move {
            let read = timeout(OBJECT, read_object(&objects?, &sha256)).await;
            read.unwrap_or_else(|_| Err(no_answer(READ_OBJECT)))
        })
    }
}

/// Stores the bytes of an object, unless the store has them.
async fn write_object(objects: &ObjectStore, sha256: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let known = objects.info(sha256).await;
    if known.is_ok_and(|known| known.size == bytes.len()) {
        return Ok(());
    }
    let stored = objects.put(sha256, &mut &*bytes).await;
    stored.map(drop).map_err(|error| failed(WRITE_OBJECT, &error))
}

/// Reads the bytes of an object, if there is one.
async fn read_object(objects: &ObjectStore, sha256: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut object = match objects.get(sha256).await {
        Ok(object) => object,
        Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(READ_OBJECT, &error)),
    };
    if object.info.size > MOST_OBJECT {
        let why = format!("they have {} bytes, more than {MOST_OBJECT}", object.info.size);
        let doing = READ_OBJECT;
        return Err(StoreError { doing, why });
    }
    let mut bytes = Vec::with_capacity(object.info.size);
    let read = object.read_to_end(&mut bytes).await;
    read.map_err(|error| failed(READ_OBJECT, &error))?;
    Ok(Some(bytes))
}

fn is_wrong_revision(error: &UpdateError) -> bool {
    error.kind() == UpdateErrorKind::WrongLastRevision
}

fn no_answer(doing: &'static str) -> StoreError {
    StoreError {
        doing,
        why: "the store did not answer in time".to_owned(),
    }
}
