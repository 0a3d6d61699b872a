//! A running service, its index, and a plain HTTP client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use indexer_api::{
    ApiKey, FeedFollower, FollowError, FollowedFeed, FollowedSource, FollowedWorker, HostNames, Indexer,
    IndexerAccess, IndexerParts, Service, ServiceKind,
};
use kv_index::{Holder, IndexLimits, SharedPrefixIndex};
use routing::{
    Attention, BlockEvent, DpRank, EngineBlockHash, Lora, StoreId, StoredBlocks, Tier, Worker, WorkerId,
    WorkerSpec,
};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

pub(crate) const BODY_LIMIT: usize = 1 << 20;

/// Follower that assigns ids and records them.
#[derive(Default)]
pub(crate) struct Follower {
    next: AtomicU32,
    pub(crate) followed: Mutex<BTreeMap<FollowedSource, Service>>,
    workers: Vec<FollowedWorker>,
    /// Engines whose feeds are not live.
    pub(crate) down: Mutex<BTreeSet<WorkerId>>,
    /// While it is locked, lookups wait.
    pub(crate) gate: Mutex<()>,
    /// Lookups that began.
    pub(crate) lookups: AtomicU32,
}

impl FeedFollower for Follower {
    fn follow(&self, service: &Service) -> Result<FollowedSource, FollowError> {
        if !service.endpoint.contains("://") {
            return Err(FollowError::Endpoint {
                endpoint: service.endpoint.clone(),
                why: "Invalid argument".to_owned(),
            });
        }
        let id = 100 + self.next.fetch_add(1, Ordering::Relaxed);
        let followed = match service.kind {
            ServiceKind::Mooncake => FollowedSource::Store(StoreId(id)),
            ServiceKind::Vllm | ServiceKind::Sglang => FollowedSource::Engine(WorkerId(id)),
        };
        self.followed.lock().unwrap().insert(followed, service.clone());
        Ok(followed)
    }

    fn unfollow(&self, followed: FollowedSource) {
        self.followed.lock().unwrap().remove(&followed).unwrap();
    }

    fn workers(&self) -> Arc<[FollowedWorker]> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.lock().unwrap());
        self.workers.clone().into()
    }

    fn is_current(&self, engine: WorkerId) -> bool {
        !self.down.lock().unwrap().contains(&engine)
    }

    fn feed_states(&self) -> Vec<(FollowedSource, &'static str)> {
        let followed = self.followed.lock().unwrap();
        let workers = self
            .workers
            .iter()
            .map(|known| FollowedSource::Engine(known.worker.id()));
        followed
            .keys()
            .copied()
            .chain(workers)
            .map(|worker| (worker, "live"))
            .collect()
    }
}

/// Returns the router's worker `gpu-9`, which serves `llama` and has id 9.
pub(crate) fn own_worker() -> FollowedWorker {
    own_worker_of(&[0])
}

/// Returns the same worker with a publisher for each of these ranks.
pub(crate) fn own_worker_of(ranks: &[u16]) -> FollowedWorker {
    let spec = WorkerSpec {
        models: vec!["llama".into()],
        ..WorkerSpec::mixed("gpu-9", "http://10.0.0.9:8000")
    };
    FollowedWorker {
        worker: Arc::new(Worker::new(WorkerId(9), spec)),
        feeds: ranks
            .iter()
            .map(|&rank| FollowedFeed {
                endpoint: format!("tcp://10.0.0.9:{}", 5557 + rank).into(),
                replay: "".into(),
                rank: DpRank(rank),
            })
            .collect(),
    }
}

pub(crate) struct Running {
    pub(crate) index: SharedPrefixIndex,
    pub(crate) follower: Arc<Follower>,
    address: SocketAddr,
    stop: CancellationToken,
    _runtime: Runtime,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert!(
            self.head.contains("content-type: application/json"),
            "{}",
            self.head
        );
        serde_json::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn msgpack(&self) -> Value {
        assert!(
            self.head.contains("content-type: application/msgpack"),
            "{}",
            self.head
        );
        rmp_serde::from_slice(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_with(None, Vec::new())
    }

    pub(crate) fn start_with(api_key: Option<&str>, workers: Vec<FollowedWorker>) -> Self {
        // One thread, so whatever holds it up holds up everything.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 });
        let follower = Arc::new(Follower {
            workers,
            ..Follower::default()
        });
        let indexer = Indexer::new(IndexerParts {
            index: index.clone(),
            follow: follower.clone(),
            access: IndexerAccess {
                api_key: api_key.map(ApiKey::new),
                hosts: Some(HostNames::default()),
            },
            body_limit: BODY_LIMIT,
        });
        let stop = CancellationToken::new();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let stopped = stop.clone().cancelled_owned();
        let served = axum::serve(listener, indexer.routes()).with_graceful_shutdown(stopped);
        runtime.handle().spawn(served.into_future());
        Self {
            index,
            follower,
            address,
            stop,
            _runtime: runtime,
        }
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let patience = Some(std::time::Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head += "host: localhost\r\n";
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // The service may answer and close before it has read all of a refused body.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let split = answer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap();
        let body = answer.split_off(split + 4);
        let head = String::from_utf8(answer).unwrap().to_ascii_lowercase();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body,
        }
    }

    /// Marks the feed of an engine as lost.
    pub(crate) fn lose(&self, engine: WorkerId) {
        self.follower.down.lock().unwrap().insert(engine);
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, body.to_string().as_bytes())
    }

    pub(crate) fn post_msgpack(&self, path: &str, body: &[u8]) -> Answer {
        self.send("POST", path, &[("content-type", "application/msgpack")], body)
    }

    /// Registers a vLLM engine of `llama` with blocks of 4 tokens. Returns its id in the index.
    pub(crate) fn register(&self, instance: &str, changes: Value) -> WorkerId {
        match self.register_any(instance, changes) {
            FollowedSource::Engine(worker) => worker,
            FollowedSource::Store(_) => panic!("a store was registered"),
        }
    }

    /// Registers an engine or a store.
    pub(crate) fn register_any(&self, instance: &str, changes: Value) -> FollowedSource {
        let before = self.followed();
        self.post("/register", &registration(instance, changes)).ok();
        let now = self.followed();
        *now.iter().find(|followed| !before.contains(followed)).unwrap()
    }

    pub(crate) fn followed(&self) -> Vec<FollowedSource> {
        self.follower.followed.lock().unwrap().keys().copied().collect()
    }

    /// Stores a prompt of an engine in blocks of 4 tokens with consecutive hashes from `first_hash` on.
    pub(crate) fn store(&self, worker: WorkerId, rank: u16, tokens: &[u32], stored: Stored) {
        let blocks = tokens.len() as u64 / 4;
        let holder = Holder {
            worker,
            rank: DpRank(rank),
        };
        let event = StoredBlocks {
            hashes: (0..blocks)
                .map(|block| EngineBlockHash(stored.first_hash + block))
                .collect(),
            parent: None,
            tokens: tokens.to_vec(),
            block_size: 4,
            tier: stored.tier,
            lora: stored.lora.map(|name| Lora::Name(name.into())),
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        };
        self.index.apply(holder, &BlockEvent::Stored(event));
    }
}

/// Properties of stored blocks.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) tier: Tier,
    pub(crate) first_hash: u64,
    pub(crate) lora: Option<&'static str>,
}

pub(crate) const ON_DEVICE: Stored = Stored {
    tier: Tier::Device,
    first_hash: 1_000,
    lora: None,
};

/// Returns a registration; `changes` adds fields or, with null, removes them.
pub(crate) fn registration(instance: &str, changes: Value) -> Value {
    let mut body = serde_json::json!({
        "endpoint": format!("tcp://{instance}:5557"), "type": "vLLM", "modelname": "llama", "instance_id": instance,
        "block_size": 4, "dp_rank": 0,
    });
    for (key, value) in changes.as_object().unwrap() {
        let fields = body.as_object_mut().unwrap();
        match value {
            Value::Null => drop(fields.remove(key)),
            value => drop(fields.insert(key.clone(), value.clone())),
        }
    }
    body
}
