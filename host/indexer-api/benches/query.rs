//! Cost of a query of 32,768 tokens over loopback: `cargo bench -p indexer-api`.
//!
//! The service runs in a separate process (this program again), so that its CPU time is measured alone. One client
//! sends one query at a time over one connection. All instances hold the whole prompt, in blocks of 16 tokens. Linux
//! only: CPU time is read from `/proc`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use indexer_api::{
    FeedFollower, FollowError, FollowedSource, FollowedWorker, Indexer, IndexerAccess, IndexerParts, Service,
    ServiceKind,
};
use kv_index::{Holder, IndexLimits, SharedPrefixIndex};
use routing::{Attention, BlockEvent, DpRank, EngineBlockHash, StoredBlocks, Tier, WorkerId};

const TOKENS: u32 = 32_768;
const BLOCK: u32 = 16;
const MEASURE: Duration = Duration::from_secs(3);
/// Unit of Linux' CPU times (`USER_HZ`).
const TICKS_A_SECOND: f64 = 100.0;

type BenchResult<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> BenchResult<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("--serve"), Some(instances)) => serve(instances.parse()?),
        _ => compare(),
    }
}

fn tokens() -> Vec<u32> {
    (0..TOKENS)
        .map(|token| token.wrapping_mul(2_654_435_761) % 128_000)
        .collect()
}

/// Follower without publishers: every service holds the prompt from the start.
struct PreloadedFollower {
    index: SharedPrefixIndex,
    next: AtomicU32,
}

impl FeedFollower for PreloadedFollower {
    fn follow(&self, _: &Service) -> Result<FollowedSource, FollowError> {
        let worker = WorkerId(self.next.fetch_add(1, Ordering::Relaxed));
        let stored = StoredBlocks {
            hashes: (0..u64::from(TOKENS / BLOCK)).map(EngineBlockHash).collect(),
            parent: None,
            tokens: tokens(),
            block_size: BLOCK,
            tier: Tier::Device,
            lora: None,
            extra_keys: Vec::new(),
            group: 0,
            attention: Attention::Full,
        };
        let holder = Holder {
            worker,
            rank: DpRank(0),
        };
        self.index.apply(holder, &BlockEvent::Stored(stored));
        Ok(FollowedSource::Engine(worker))
    }

    fn unfollow(&self, _: FollowedSource) {}

    fn workers(&self) -> Arc<[FollowedWorker]> {
        Arc::new([])
    }

    fn is_current(&self, _: WorkerId) -> bool {
        true
    }

    fn feed_states(&self) -> Vec<(FollowedSource, &'static str)> {
        Vec::new()
    }
}

fn serve(instances: u32) -> BenchResult<()> {
    let index = SharedPrefixIndex::new(IndexLimits { max_blocks: 1 << 20 });
    let indexer = Indexer::new(IndexerParts {
        index: index.clone(),
        follow: Arc::new(PreloadedFollower {
            index,
            next: AtomicU32::new(0),
        }),
        access: IndexerAccess::default(),
        body_limit: 32 << 20,
    });
    let service = |number: u32| Service {
        endpoint: format!("tcp://10.0.0.1:{}", 10_000 + number).into(),
        replay: "".into(),
        kind: ServiceKind::Vllm,
        model: "llama".into(),
        lora: "".into(),
        tenant: "default".into(),
        instance: format!("prefill-{number}").into(),
        block_size: BLOCK,
        rank: DpRank(0),
        profile: None,
    };
    indexer.register_all((0..instances).map(service).collect());
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        axum::serve(listener, indexer.routes()).await?;
        Ok(())
    })
}

struct ServerProcess {
    child: Child,
    stream: TcpStream,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerProcess {
    fn start(instances: u32) -> BenchResult<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", &instances.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        let out = child.stdout.take().ok_or("the child has no output")?;
        BufReader::new(out).read_line(&mut address)?;
        let stream = TcpStream::connect(address.trim())?;
        stream.set_nodelay(true)?;
        Ok(Self { child, stream })
    }

    /// Returns the CPU time so far, in seconds.
    fn cpu(&self) -> BenchResult<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, after_name) = stat.rsplit_once(')').ok_or("no such process")?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks / TICKS_A_SECOND)
    }

    /// Sends a request; returns the length of the response body.
    fn query(&mut self, request: &[u8], buffer: &mut Vec<u8>) -> BenchResult<usize> {
        self.stream.write_all(request)?;
        buffer.clear();
        let mut chunk = [0; 65_536];
        loop {
            let read = self.stream.read(&mut chunk)?;
            if read == 0 {
                return Err("the service closed the connection".into());
            }
            buffer.extend_from_slice(&chunk[..read]);
            let Some(head) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let headers = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
            if !headers.starts_with("http/1.1 200") {
                return Err(headers.into());
            }
            let length = headers
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.ok_or("an answer without a length")?.parse()?;
            if buffer.len() >= head + 4 + length {
                return Ok(length);
            }
        }
    }
}

fn request(path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// Returns a MessagePack map of a model, a block size and one field of bytes.
fn msgpack(field: &str, bytes: &[u8]) -> Vec<u8> {
    let mut body = b"\x83\xa5model\xa5llama\xaablock_size\x10".to_vec();
    body.push(0xa0 | field.len() as u8);
    body.extend(field.as_bytes());
    body.push(0xc6);
    body.extend((bytes.len() as u32).to_be_bytes());
    body.extend(bytes);
    body
}

fn requests() -> BTreeMap<&'static str, Vec<u8>> {
    let tokens = tokens();
    let json = serde_json::json!({"model": "llama", "block_size": BLOCK, "token_ids": tokens});
    let array = rmp_serde::to_vec(&json).unwrap_or_default();
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let hashes = block_hash::sequence_hashes(&tokens, BLOCK as usize, block_hash::RFC_1527_SEED);
    let hashes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    let packed = "application/msgpack";
    BTreeMap::from([
        (
            "tokens, msgpack bytes",
            request("/query", packed, &msgpack("token_ids", &bytes)),
        ),
        ("tokens, msgpack array", request("/query", packed, &array)),
        (
            "tokens, JSON",
            request("/query", "application/json", json.to_string().as_bytes()),
        ),
        (
            "2,048 rolling hashes, msgpack bytes",
            request("/query_by_hash", packed, &msgpack("seq_hashes", &hashes)),
        ),
    ])
}

fn compare() -> BenchResult<()> {
    println!("| instances | query of {TOKENS} tokens | CPU a query | p50 | p99 | answer |");
    println!("|---|---|---|---|---|---|");
    for instances in [1, 64] {
        for (name, request) in requests() {
            let mut process = ServerProcess::start(instances)?;
            let mut buffer = Vec::new();
            for _ in 0..50 {
                process.query(&request, &mut buffer)?;
            }
            let (cpu, start) = (process.cpu()?, Instant::now());
            let mut times = Vec::new();
            let mut answer = 0;
            while start.elapsed() < MEASURE {
                let requested = Instant::now();
                answer = process.query(&request, &mut buffer)?;
                times.push(requested.elapsed());
            }
            let cpu = (process.cpu()? - cpu) * 1e6 / times.len() as f64;
            times.sort_unstable();
            let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
            let (p50, p99) = (at(0.5), at(0.99));
            println!("| {instances} | {name} | {cpu:.0} us | {p50} us | {p99} us | {answer} B |");
        }
    }
    Ok(())
}
