//! Cases of a whole request: client, router and engine on one thread over the loopback interface, with a native policy.
//! The kernel's work is not counted.
#![expect(
    clippy::disallowed_methods,
    reason = "the tasks end with the runtime of their case"
)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prometheus_client::registry::Registry;
use proxy::record::{RecordSpec, Recorder};
use proxy::{
    Authorization, ConnectionsSpec, EdgeSpec, Expectation, HealthSpec, LiveFeeds, ModelsSpec, Objectives,
    PoolSpec, PoolTimeouts, ProbeSpec, Proxy, ProxyMetrics, ProxyParts, Readiness, RebindableListener,
    RequestLimits, RetrySpec, RouteSpec, ServeLimits, SnapshotCell, SnapshotPlan, SnapshotSpec, StopRule,
    TokenSource, TracingSpec, TrialSpec,
};
use request_traces::otlp::Message;
use request_traces::{ForcedBudget, IdSource, QueueLimits, SamplingRule, TraceQueue};
use routing::{
    FeaturePlan, Fleet, Generation, Policy, PolicyVersions, Pool, RunNumber, WorkerId, WorkerSpec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use crate::cases::{Outcome, index};
use crate::native_policies::{FirstCandidate, HoldsWhileBusy};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n\
{\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"x\"}],\"usage\":{\"x\":10000}}\n";
const WARM_UP: u32 = 8;
/// Time of the first health probes, under valgrind.
const PROBES_TAKE: Duration = Duration::from_secs(2);
/// Number of traces that the exporter takes at once.
const BATCH: usize = 32;

/// Request features of the default policy.
const REQUEST_FEATURES: &[&str] = &[
    "request.prompt-tokens",
    "request.body-bytes",
    "request.waited-ms",
    "request.ttft-target-ms",
    "request.hold-left-ms",
    "request.tried",
    "prefix.best-tokens",
    "prefix.key-1024",
    "pool.queued",
];
/// Columns of the default policy.
const COLUMNS: &[&str] = &[
    "worker.role",
    "worker.weight",
    "load.requests",
    "load.decoding",
    "load.prefill-tokens",
    "tbt.ewma-ms",
    "prefix.any-tokens",
    "cost.token-ms",
    "cost.prefill-ms",
    "cost.request-ms",
    "cost.tbt-ms",
    "cost.fetched-share",
];

pub(crate) type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Parts of a router that a case reads.
#[derive(Default)]
struct RouterParts {
    traces: Option<Arc<TracingSpec>>,
    /// Number of candidates of the last decision.
    seen: Arc<AtomicUsize>,
}

/// Shape of a case's router. The default has one worker and a policy without columns.
#[derive(Clone, Copy, Default)]
pub(crate) struct RouterShape {
    /// Share of sampled requests, with traces on.
    sample: Option<f64>,
    /// Workers with live event feeds, and the columns of the default policy. 0: one worker and no columns.
    known_workers: u32,
    /// Connections with requests at once. The policy holds each request while another one is at the worker.
    /// 0: one connection, and nothing is held.
    held_clients: u32,
}

/// Sends requests while traces are off (`None`), or on with this share of sampled requests.
pub(crate) fn requested(sample: Option<f64>, times: u32) -> Outcome {
    request(
        RouterShape {
            sample,
            ..RouterShape::default()
        },
        times,
    )
}

/// Sends prompts of token ids to one of so many workers, by the columns of the default policy.
pub(crate) fn requested_of(known_workers: u32, times: u32) -> Outcome {
    request(
        RouterShape {
            known_workers,
            ..RouterShape::default()
        },
        times,
    )
}

/// Sends requests of several clients at once, which the policy holds until the one worker is free.
pub(crate) fn held(times: u32) -> Outcome {
    request(
        RouterShape {
            held_clients: 16,
            ..RouterShape::default()
        },
        times,
    )
}

fn request(shape: RouterShape, times: u32) -> Outcome {
    let queue = Arc::new(TraceQueue::default());
    queue.configure(QueueLimits {
        traces: 4 * BATCH,
        batch: BATCH,
        every: Duration::from_millis(1),
    });
    let seen = Arc::<AtomicUsize>::default();
    let parts = RouterParts {
        traces: shape.sample.map(|share| {
            Arc::new(TracingSpec {
                queue: Arc::clone(&queue),
                ids: IdSource::new([1, 2]),
                rule: SamplingRule::new(share, None),
                forced: ForcedBudget::new(0),
            })
        }),
        seen: Arc::clone(&seen),
    };
    run_router_of(serve_engine, shape, parts, async move |router| {
        if shape.held_clients > 0 {
            return send_at_once(router, shape.held_clients, times).await;
        }
        let mut client = Client::connect(router, shape.known_workers > 0).await?;
        if shape.known_workers > 0 {
            // The first request finds no worker in service, so that all are candidates.
            client.send().await?;
            seen.store(0, Ordering::Relaxed);
        }
        while (seen.load(Ordering::Relaxed) as u32) < shape.known_workers {
            tokio::time::sleep(PROBES_TAKE).await;
            client.send().await?;
        }
        let is_exported = shape.sample == Some(1.0);
        for number in 0..times + WARM_UP {
            client.send().await?;
            if is_exported && number as usize % BATCH == BATCH - 1 {
                export(&queue);
            }
        }
        Ok(())
    })
}

/// Runs a router with an engine, and clients of it.
pub(crate) fn run_router<E, C>(
    engine: impl FnOnce(TcpListener) -> E,
    shape: RouterShape,
    clients: impl FnOnce(SocketAddr) -> C,
) -> Outcome
where
    E: Future<Output = ()> + Send + 'static,
    C: Future<Output = Outcome>,
{
    run_router_of(engine, shape, RouterParts::default(), clients)
}

fn run_router_of<E, C>(
    engine: impl FnOnce(TcpListener) -> E,
    shape: RouterShape,
    parts: RouterParts,
    clients: impl FnOnce(SocketAddr) -> C,
) -> Outcome
where
    E: Future<Output = ()> + Send + 'static,
    C: Future<Output = Outcome>,
{
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(engine(listener));
        let snapshot = snapshot(address, shape, parts)?;
        clients(start_router(snapshot, shape).await?).await
    })
}

/// Sends requests on so many connections at once.
async fn send_at_once(router: SocketAddr, clients: u32, times: u32) -> Outcome {
    let mut sending = Vec::new();
    for _ in 0..clients {
        let mut client = Client::connect(router, false).await?;
        sending.push(tokio::spawn(async move {
            for _ in 0..WARM_UP + times / clients {
                if let Err(error) = client.send().await {
                    return Err(error.to_string());
                }
            }
            Ok(())
        }));
    }
    for sent in sending {
        sent.await??;
    }
    Ok(())
}

/// Encodes a batch as the exporter does.
fn export(queue: &TraceQueue) {
    for trace in queue.next().traces {
        for span in trace.spans() {
            black_box(span.encode_to_vec());
        }
    }
}

/// Engine that answers each request of a connection with the same bytes.
async fn serve_engine(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut bytes = Vec::new();
            while read_message(&mut stream, &mut bytes).await.is_ok() {
                if stream.write_all(ANSWER).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Reads a head and a body with a length.
pub(crate) async fn read_message(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<(), Problem> {
    bytes.clear();
    loop {
        if stream.read_buf(bytes).await? == 0 {
            return Err("the peer closed the connection".into());
        }
        let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let text = str::from_utf8(&bytes[..head])?;
        // A health probe has no body.
        let length = text.split("content-length: ").nth(1).unwrap_or("0");
        let length: usize = length.split("\r\n").next().unwrap_or(length).parse()?;
        while bytes.len() < head + 4 + length {
            if stream.read_buf(bytes).await? == 0 {
                return Err("the peer closed the connection within a body".into());
            }
        }
        return Ok(());
    }
}

/// Client with one connection.
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    async fn connect(router: SocketAddr, has_ids: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let prompt = if has_ids {
            format!("[{}7]", "1234,".repeat(194))
        } else {
            format!("\"{}\"", "word ".repeat(195))
        };
        let body = format!(r#"{{"model":"bench","max_tokens":1,"prompt":{prompt}}}"#);
        let head = "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n";
        Ok(Self {
            stream: TcpStream::connect(router).await?,
            request: format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes(),
            answer: Vec::new(),
        })
    }

    async fn send(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.stream.write_all(&self.request).await?;
        let read = read_message(&mut self.stream, &mut self.answer).await;
        read.map_err(|error| error.to_string())?;
        if self.answer.starts_with(b"HTTP/1.1 200") {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&self.answer).into_owned().into())
        }
    }
}

async fn start_router(
    snapshot: SnapshotSpec,
    shape: RouterShape,
) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let mut registry = Registry::default();
    let metrics = ProxyMetrics::new(&mut registry);
    let first = SnapshotPlan::new(None, snapshot)?;
    let cell = Arc::new(SnapshotCell::new(first, &metrics));
    metrics.watch(&mut registry, &cell);
    let live = Arc::<LiveFeeds>::default();
    (0..shape.known_workers).for_each(|worker| live.set(WorkerId(worker), true));
    let proxy = Proxy::new(ProxyParts {
        snapshots: cell,
        index: Arc::new(index(shape.known_workers)),
        live,
        metrics,
        registry: Arc::new(registry),
        readiness: Readiness::default(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let limits = ServeLimits {
        delay: Duration::ZERO,
        drain: Duration::ZERO,
        connections: 16,
    };
    let stop = CancellationToken::new();
    tokio::spawn(proxy::serve(
        RebindableListener::new(listener).0,
        proxy,
        axum::Router::new(),
        stop,
        limits,
    ));
    Ok(address)
}

fn snapshot(
    engine: SocketAddr,
    shape: RouterShape,
    parts: RouterParts,
) -> Result<SnapshotSpec, Box<dyn std::error::Error>> {
    let RouterParts { traces, seen } = parts;
    let worker = |number: u32| WorkerSpec::mixed(format!("w{number}"), format!("http://{engine}"));
    let (fleet, _) = Fleet::default().next((0..shape.known_workers.max(1)).map(worker).collect());
    let policy: Arc<dyn Policy> = if shape.held_clients > 0 {
        Arc::new(HoldsWhileBusy(FeaturePlan::resolve(&[], &["load.requests"])?))
    } else if shape.known_workers > 0 {
        Arc::new(FirstCandidate {
            plan: FeaturePlan::resolve(REQUEST_FEATURES, COLUMNS)?,
            seen,
        })
    } else {
        Arc::new(FirstCandidate {
            plan: FeaturePlan::resolve::<&str>(&[], &[])?,
            seen,
        })
    };
    let ample = Duration::from_secs(600);
    Ok(SnapshotSpec {
        generation: Generation(1),
        pools: vec![pool(&fleet, shape.known_workers > 0)],
        routes: vec![RouteSpec {
            prefill_policy: None,
            decode_policy: None,
            models: Vec::new(),
            path: None,
            headers: Vec::new(),
            pool: "main".to_owned(),
            policy: PolicyVersions::only(policy),
            trials: TrialSpec {
                canaries: Vec::new(),
                rule: StopRule::default(),
                shadows: Vec::new(),
                shadow_sample: 0.0,
            },
            objectives: Objectives::default(),
        }],
        models: ModelsSpec::default(),
        limits: RequestLimits {
            body_bytes: 1 << 20,
            connect_timeout: ample,
            first_byte_timeout: ample,
            idle_timeout: ample,
            first_token_timeout: None,
            request_timeout: None,
            attempts: 3,
        },
        record: RecordSpec::nothing(Recorder::of_run(&mut Registry::default(), RunNumber::default())),
        traces,
        decision_headers: false,
        edge: EdgeSpec::default(),
        clients: Vec::new(),
        metrics_on_listen: false,
        policy_headers: Vec::new(),
    })
}

fn pool(fleet: &Fleet, is_probed: bool) -> PoolSpec {
    let probe = ProbeSpec {
        interval: Duration::from_secs(3_600),
        timeout: Duration::from_secs(600),
        ..ProbeSpec::default()
    };
    PoolSpec {
        pool: Pool {
            name: "main".into(),
            workers: fleet.workers().into(),
        },
        tokens: TokenSource::Off,
        expectation: Expectation::default(),
        queue_limit: 64,
        queue_timeout: Duration::from_secs(600),
        admission: None,
        keep_alive: None,
        adapters: Vec::new(),
        model_list: None,
        authorization: Authorization::Pass,
        connections: ConnectionsSpec::default(),
        accept_handover: false,
        isolate_prefixes: false,
        pd: None,
        health: HealthSpec {
            probe: is_probed.then_some(probe),
            ..HealthSpec::default()
        },
        scrape: None,
        retries: RetrySpec::default(),
        timeouts: PoolTimeouts::default(),
    }
}
