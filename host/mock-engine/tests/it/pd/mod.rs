//! Pairs of engines: every handshake, and every way it fails, as a router would meet them.

mod faults;
mod mooncake;
mod nixl;
mod sglang;
mod store;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use mock_engine::{Fabric, MockConfig, MockEngine, PdConfig, PdDialect, PdRole};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::client::{Reply, open_url, post, whole};
use crate::{DEADLINE, eventually, instant, start};

pub(crate) const PATH: &str = "/v1/completions";
/// Speed of the pairs as a multiple of real time.
const SCALE: f64 = 200.0;
/// Engine time in seconds that either side waits for the other, and that blocks are kept: longer than any test.
const ENDLESS: f64 = 1e5;
/// Engine time that either side of a [`brief`] concurrent pair waits for the other, in seconds.
const ABORT: f64 = 120.0;
/// Engine time that blocks are kept by a [`brief`] nixl, in seconds.
const LEASE: f64 = 60.0;

/// One prefill engine and one decode engine.
struct Pair {
    p: MockEngine,
    d: MockEngine,
}

/// Returns engine time as real time.
fn scaled(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds / SCALE)
}

fn half(role: PdRole, dialect: PdDialect, fabric: &Fabric) -> MockConfig {
    let pd = PdConfig {
        abort_timeout: Duration::from_secs_f64(ENDLESS),
        lease: Duration::from_secs_f64(ENDLESS),
        ..PdConfig::new(role, dialect, fabric)
    };
    MockConfig {
        time_scale: SCALE,
        pd: Some(pd),
        ..instant()
    }
}

async fn pair(dialect: PdDialect) -> Pair {
    pair_of(dialect, |_| {}).await
}

async fn pair_of(dialect: PdDialect, change: impl Fn(&mut MockConfig)) -> Pair {
    let fabric = Fabric::new();
    let engine = async |role| {
        let mut config = half(role, dialect, &fabric);
        change(&mut config);
        start(config).await
    };
    Pair {
        p: engine(PdRole::Prefill).await,
        d: engine(PdRole::Decode).await,
    }
}

/// Sets timeouts that a test can wait for.
fn brief(config: &mut MockConfig) {
    let pd = config.pd.as_mut().expect("a half");
    pd.abort_timeout = Duration::from_secs_f64(ABORT);
    pd.lease = Duration::from_secs_f64(LEASE);
}

impl Pair {
    /// Returns `true` if nothing is left on either engine.
    fn is_idle(&self) -> bool {
        self.p.stats().is_idle() && self.d.stats().is_idle()
    }

    /// Starts another decode engine with [`brief`] timeouts.
    async fn impatient_decode(&self) -> MockEngine {
        let mut config = self.d.config().clone();
        brief(&mut config);
        start(config).await
    }

    /// Waits until nothing is left on either engine.
    async fn idle(&self) {
        eventually("idle", || self.is_idle()).await;
    }
}

/// Sets costs so that a prompt takes 40 seconds of engine time, in ten steps.
fn slow_prefill(config: &mut MockConfig) {
    config.cost.prefill_token_ms = 4_000.0;
    config.chunk_tokens = Some(1);
}

/// Stopped clock of the test and its engines, which only [`Self::advance`] moves.
struct StoppedClock {
    _held: SyncSender<()>,
}

impl StoppedClock {
    fn new() -> Self {
        let (held, dropped) = sync_channel::<()>(0);
        // A paused clock moves by itself unless something blocks.
        TaskTracker::new().spawn_blocking(move || dropped.recv());
        tokio::time::pause();
        Self { _held: held }
    }

    /// Lets so many seconds of engine time pass, and a millisecond: timers are no finer.
    async fn advance(&self, seconds: f64) {
        tokio::time::advance(scaled(seconds) + Duration::from_millis(1)).await;
    }

    /// Polls until `reached`, while the clock stands still.
    async fn eventually(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !reached() {
            assert!(begun.elapsed() < DEADLINE, "never: {what}");
            self.pass_real_time().await;
        }
    }

    /// Lets so many seconds of engine time pass at once, again and again until `reached`.
    async fn advance_until(&self, what: &str, seconds: f64, mut reached: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !reached() {
            assert!(begun.elapsed() < DEADLINE, "never: {what}");
            self.advance(seconds).await;
            self.pass_real_time().await;
        }
    }

    /// Lets connections and tasks proceed.
    async fn pass_real_time(&self) {
        let pause = TaskTracker::new().spawn_blocking(|| thread::sleep(Duration::from_millis(1)));
        pause.await.expect("no panic");
    }
}

fn body(prompt: &[u32]) -> Value {
    json!({"prompt": prompt, "max_tokens": 3, "ignore_eos": true})
}

/// Returns the body with these members besides or instead.
fn with(mut body: Value, members: Value) -> Value {
    let members = members.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(members);
    body
}

async fn send(engine: &MockEngine, body: &Value) -> Reply {
    post(engine, PATH, body).await
}

/// Sends a request in the background.
fn background(engine: &MockEngine, body: &Value) -> Leg {
    let (url, body) = (format!("{}{PATH}", engine.url()), body.to_string());
    let task = TaskTracker::new().spawn(async move {
        let answer = open_url(http::Method::POST, &url, &[], body).await;
        whole(answer.expect("an answer")).await
    });
    Leg { task }
}

/// A request in the background.
struct Leg {
    task: tokio::task::JoinHandle<Reply>,
}

impl Leg {
    async fn reply(self) -> Reply {
        let reply = tokio::time::timeout(DEADLINE, self.task).await;
        reply.expect("in time").expect("no panic")
    }

    /// Closes the connection, as a client that leaves.
    fn leave(self) {
        self.task.abort();
    }

    fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

fn cached(reply: &Reply) -> u64 {
    let usage = &reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"];
    usage.as_u64().expect("cached tokens")
}

fn text_of(reply: &Reply) -> String {
    reply.json()["choices"][0]["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

#[track_caller]
fn check_failed(reply: &Reply) {
    let error = json!({"error": {
        "message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500,
    }});
    assert_eq!((reply.status.as_u16(), reply.json()), (500, error));
}

/// Returns a prompt of two full blocks and a bit, different for every `own`.
fn prompt(own: u32) -> Vec<u32> {
    (0..10).map(|at| own * 100 + at).collect()
}

/// Returns the answer of an engine on its own to a prompt.
async fn alone(prompt: &[u32]) -> String {
    text_of(&send(&start(instant()).await, &body(prompt)).await)
}
