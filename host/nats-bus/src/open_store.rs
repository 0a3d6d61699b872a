//! Open buckets of a fleet, and the watches over them.

use std::time::Duration;

use agreement::{AgreedKey, MOST_ENTRY_BYTES, ReportKey, StoreError, StoreEvent};
use async_nats::Client;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig};
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{self, DiscardPolicy, StorageType};
use async_nats::jetstream::{ContextBuilder, Message};
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until};

use crate::store::StoreOptions;
use crate::store_error::failed;

/// Longest time until all values of the beginning are delivered: a message may be lost with a connection.
const SYNC: Duration = Duration::from_secs(10);
/// Age at which reports of routers end.
const REPORT_AGE: Duration = Duration::from_hours(24);
/// Most bytes of all agreed entries, of all reports, and of all objects.
const MOST_BYTES: [i64; 3] = [16 << 20, 64 << 20, 256 << 20];
/// Most bytes of one report.
const MOST_REPORT: i32 = 1 << 20;
/// Operation of a message of a bucket: absent for a value.
const OPERATION: &str = "KV-Operation";

/// Buckets of a fleet.
pub(crate) struct Buckets {
    pub(crate) agreed: Store,
    pub(crate) reports: Store,
    pub(crate) objects: ObjectStore,
}

/// Buckets with their watches.
pub(crate) struct OpenStore {
    pub(crate) buckets: Buckets,
    agreed: Watch,
    reports: Watch,
    is_synced: bool,
    /// Time by which all values of the beginning must be delivered.
    deadline: Instant,
}

/// Watch over a bucket: its last values, then changes.
struct Watch {
    messages: Ordered,
    prefix: String,
    /// Values that were there when the watch began and are not delivered yet.
    is_current: bool,
}

/// Result of a watch.
pub(crate) enum Watched {
    Event(StoreEvent),
    /// A message that is none of the fleet's.
    Ignored,
    /// The watch ended, for this reason.
    Ended(String),
}

impl Buckets {
    /// Opens the buckets of a fleet, and creates those that do not exist.
    pub(crate) async fn open(
        client: Client,
        fleet: String,
        options: StoreOptions,
    ) -> Result<OpenStore, StoreError> {
        let StoreOptions { copies, answer } = options;
        let context = ContextBuilder::new().timeout(answer).build(client.clone());
        let [most_agreed, most_reports, most_objects] = MOST_BYTES;
        let agreed = KeyValueConfig {
            bucket: format!("conductor_{fleet}"),
            description: "Decisions of a fleet of routers",
            most_bytes: most_agreed,
            most_value: i32::try_from(MOST_ENTRY_BYTES).unwrap_or(i32::MAX),
            max_age: Duration::ZERO,
        };
        let reports = KeyValueConfig {
            bucket: format!("conductor_{fleet}_reports"),
            description: "Reports of the routers of a fleet",
            most_bytes: most_reports,
            most_value: MOST_REPORT,
            max_age: REPORT_AGE,
        };
        let objects = object_store::Config {
            bucket: format!("conductor_{fleet}_policies"),
            description: Some("Policies of a fleet of routers, by SHA-256".to_owned()),
            max_bytes: most_objects,
            num_replicas: copies,
            ..object_store::Config::default()
        };
        let buckets = Self {
            agreed: agreed.open(&context, copies).await?,
            reports: reports.open(&context, copies).await?,
            objects: objects_of(&context, objects).await?,
        };
        Ok(OpenStore {
            agreed: Watch::start(&buckets.agreed, &client).await?,
            reports: Watch::start(&buckets.reports, &client).await?,
            buckets,
            is_synced: false,
            deadline: Instant::now() + SYNC,
        })
    }
}

/// Key-value bucket with one value for each key.
struct KeyValueConfig {
    bucket: String,
    description: &'static str,
    most_bytes: i64,
    most_value: i32,
    /// Age at which values end; zero for never.
    max_age: Duration,
}

impl KeyValueConfig {
    /// Opens the bucket, or creates it. The client's own way queries the account, whose answer it cannot read from
    /// servers before 2.10.
    async fn open(self, context: &Context, copies: usize) -> Result<Store, StoreError> {
        if let Ok(store) = context.get_key_value(&self.bucket).await {
            return Ok(store);
        }
        let doing = "create a key-value bucket of JetStream";
        let stream = stream::Config {
            name: format!("KV_{}", self.bucket),
            description: Some(self.description.to_owned()),
            subjects: vec![format!("$KV.{}.>", self.bucket)],
            max_messages_per_subject: 1,
            max_bytes: self.most_bytes,
            max_message_size: self.most_value,
            max_age: self.max_age,
            storage: StorageType::File,
            num_replicas: copies,
            discard: DiscardPolicy::New,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            ..stream::Config::default()
        };
        let created = context.create_stream(stream).await;
        // Another router may have created it meanwhile.
        match context.get_key_value(self.bucket).await {
            Ok(store) => Ok(store),
            Err(error) => Err(match created {
                Ok(_) => failed(doing, &error),
                Err(refused) => failed(doing, &refused),
            }),
        }
    }
}

async fn objects_of(context: &Context, config: object_store::Config) -> Result<ObjectStore, StoreError> {
    if let Ok(store) = context.get_object_store(&config.bucket).await {
        return Ok(store);
    }
    let name = config.bucket.clone();
    match context.create_object_store(config).await {
        Ok(store) => Ok(store),
        Err(error) => match context.get_object_store(name).await {
            Ok(store) => Ok(store),
            Err(_) => Err(failed("create an object store of JetStream", &error)),
        },
    }
}

impl OpenStore {
    /// Waits for the next event. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Watched {
        if !self.is_synced && self.agreed.is_current && self.reports.is_current {
            self.is_synced = true;
            return Watched::Event(StoreEvent::Synced);
        }
        let (is_synced, deadline) = (self.is_synced, self.deadline);
        tokio::select! {
            biased;
            () = sleep_until(deadline), if !is_synced => {
                Watched::Ended("the entries were not delivered in time".to_owned())
            }
            message = self.agreed.messages.next() => match self.agreed.read(message) {
                Ok(Some((key, revision, bytes))) => AgreedKey::parse(&key).map_or(Watched::Ignored, |key| {
                    Watched::Event(match bytes {
                        Some(bytes) => StoreEvent::Entry { key, revision, bytes },
                        None => StoreEvent::Removed { key, revision },
                    })
                }),
                Ok(None) => Watched::Ignored,
                Err(why) => Watched::Ended(why),
            },
            message = self.reports.messages.next() => match self.reports.read(message) {
                Ok(Some((key, _, Some(bytes)))) => ReportKey::parse(&key).map_or(Watched::Ignored, |key| {
                    Watched::Event(StoreEvent::Report { key, bytes })
                }),
                Ok(_) => Watched::Ignored,
                Err(why) => Watched::Ended(why),
            },
        }
    }
}

type WatchedKey = (String, u64, Option<Vec<u8>>);
type OrderedMessage = Result<Message, async_nats::jetstream::consumer::push::OrderedError>;

impl Watch {
    async fn start(store: &Store, client: &Client) -> Result<Self, StoreError> {
        let doing = "watch a bucket of JetStream";
        let consumer = store.stream.create_consumer(OrderedConfig {
            deliver_subject: client.new_inbox(),
            description: Some("conductor".to_owned()),
            filter_subject: format!("{}>", store.prefix),
            replay_policy: ReplayPolicy::Instant,
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..OrderedConfig::default()
        });
        let consumer = consumer.await.map_err(|error| failed(doing, &error))?;
        let is_current = consumer.cached_info().num_pending == 0;
        let messages = consumer.messages().await;
        Ok(Self {
            messages: messages.map_err(|error| failed(doing, &error))?,
            prefix: store.prefix.clone(),
            is_current,
        })
    }

    /// Returns key, revision and bytes of a message; no bytes if the key was removed.
    fn read(&mut self, message: Option<OrderedMessage>) -> Result<Option<WatchedKey>, String> {
        let message = message.ok_or("the watch over a bucket ended")?;
        let message = message.map_err(|error| format!("the watch over a bucket failed: {error}"))?;
        let info = message
            .info()
            .map_err(|error| format!("a message has no position in its bucket: {error}"))?;
        self.is_current |= info.pending == 0;
        let revision = info.stream_sequence;
        let is_removed = message
            .headers
            .as_ref()
            .is_some_and(|headers| headers.get(OPERATION).is_some());
        let key = message.subject.strip_prefix(&*self.prefix);
        let bytes = (!is_removed).then(|| message.payload.to_vec());
        Ok(key.map(|key| (key.to_owned(), revision, bytes)))
    }
}
