//! Cases of a whole request: client, router and engine on one thread over the loopback interface, with a native policy.
//! The kernel's work is not counted.
#![expect(
    clippy::disallowed_methods,
    reason = "the tasks end with the runtime of their case"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kv_index::{IndexLimits, SharedPrefixIndex};
use prometheus_client::registry::Registry;
use proxy::record::{RecordSpec, Recorder};
use proxy::{
    Authorization, ConnectionsSpec, Door, EdgeSpec, Expectation, HealthSpec, LiveFeeds, ModelsSpec,
    Objectives, PoolSpec, PoolTimeouts, Proxy, ProxyMetrics, ProxyParts, Readiness, RequestLimits, RetrySpec,
    RouteSpec, ServeLimits, SnapshotCell, SnapshotPlan, SnapshotSpec, StopRule, TokenSource, TracingSpec,
    TrialSpec,
};
use request_traces::otlp::Message;
use request_traces::{ForcedBudget, IdSource, QueueLimits, SamplingRule, TraceQueue};
use routing::{
    Choice, DecisionInput, FeaturePlan, Fleet, Generation, Policy, PolicyDescription, PolicyFault,
    PolicyVersions, Pool, Role, RunNumber, Verdict, WorkerSpec,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

use crate::cases::Outcome;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 84\r\n\r\n\
{\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"x\"}],\"usage\":{\"x\":10000}}\n";
const WARM_UP: u32 = 8;
/// Number of traces that the exporter takes at once.
const BATCH: usize = 32;

/// Sends requests while traces are off (`None`), or on with this share of sampled requests.
pub(crate) fn requested(sample: Option<f64>, times: u32) -> Outcome {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = TcpListener::bind("127.0.0.1:0").await?;
        let engine_address = engine.local_addr()?;
        tokio::spawn(serve_engine(engine));
        let queue = Arc::new(TraceQueue::default());
        queue.configure(QueueLimits {
            traces: 4 * BATCH,
            batch: BATCH,
            every: Duration::from_millis(1),
        });
        let traces = sample.map(|share| {
            Arc::new(TracingSpec {
                queue: Arc::clone(&queue),
                ids: IdSource::new([1, 2]),
                rule: SamplingRule::new(share, None),
                forced: ForcedBudget::new(0),
            })
        });
        let is_exported = sample == Some(1.0);
        let router = start_router(engine_address, traces).await?;
        let mut client = Client::connect(router).await?;
        for number in 0..times + WARM_UP {
            client.send().await?;
            if is_exported && number as usize % BATCH == BATCH - 1 {
                export(&queue);
            }
        }
        Ok(())
    })
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
async fn read_message(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    bytes.clear();
    loop {
        if stream.read_buf(bytes).await? == 0 {
            return Err("the peer closed the connection".into());
        }
        let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let text = str::from_utf8(&bytes[..head])?.to_ascii_lowercase();
        let length = text.split("content-length: ").nth(1).ok_or("no content-length")?;
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
    async fn connect(router: SocketAddr) -> Result<Self, Box<dyn std::error::Error>> {
        let body = format!(
            r#"{{"model":"bench","max_tokens":1,"prompt":"{}"}}"#,
            "word ".repeat(195)
        );
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
    engine: SocketAddr,
    traces: Option<Arc<TracingSpec>>,
) -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let mut registry = Registry::default();
    let metrics = ProxyMetrics::new(&mut registry);
    let first = SnapshotPlan::new(None, snapshot(engine, traces)?)?;
    let cell = Arc::new(SnapshotCell::new(first, &metrics));
    metrics.watch(&mut registry, &cell);
    let proxy = Proxy::new(ProxyParts {
        snapshots: cell,
        index: Arc::new(SharedPrefixIndex::new(IndexLimits { max_blocks: 1_000 })),
        live: Arc::<LiveFeeds>::default(),
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
        Door::new(listener).0,
        proxy,
        axum::Router::new(),
        stop,
        limits,
    ));
    Ok(address)
}

fn snapshot(
    engine: SocketAddr,
    traces: Option<Arc<TracingSpec>>,
) -> Result<SnapshotSpec, Box<dyn std::error::Error>> {
    let (fleet, _) = Fleet::default().next(vec![WorkerSpec {
        name: "w0".into(),
        url: format!("http://{engine}").into(),
        role: Role::Mixed,
        models: Vec::new(),
        weight: 1.0,
        labels: BTreeMap::new(),
        rank: None,
        bootstrap: None,
    }]);
    let policy: Arc<dyn Policy> = Arc::new(FirstCandidate(FeaturePlan::resolve::<&str>(&[], &[])?));
    let ample = Duration::from_secs(600);
    Ok(SnapshotSpec {
        generation: Generation(1),
        pools: vec![pool(&fleet)],
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

fn pool(fleet: &Fleet) -> PoolSpec {
    PoolSpec {
        pool: Pool {
            name: "main".into(),
            workers: fleet.workers().into(),
        },
        tokens: TokenSource::Off,
        expectation: Expectation::default(),
        queue_limit: 16,
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
        health: HealthSpec::default(),
        scrape: None,
        retries: RetrySpec::default(),
        timeouts: PoolTimeouts::default(),
    }
}

/// Policy that takes the first candidate.
#[derive(Debug)]
struct FirstCandidate(FeaturePlan);

impl PolicyDescription for FirstCandidate {
    fn name(&self) -> &str {
        "first-candidate"
    }

    fn plan(&self) -> &FeaturePlan {
        &self.0
    }
}

impl Policy for FirstCandidate {
    fn decide(&self, _: &DecisionInput<'_>) -> Result<Verdict, PolicyFault> {
        Ok(Verdict::Route(Choice {
            row: 0,
            prefill: None,
            score: f64::NAN,
        }))
    }
}
