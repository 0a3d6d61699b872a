//! Runs the table: one router for a dialect, a pool with engines of its own for each row, all rows at once; within a
//! row streamed and not, with clients that stay and clients that leave.

use std::time::Duration;

use harness::{Client, End, Seen, SplitFleet, TestRouter, eventually_ok};
use http::Method;
use mock_engine::MockConfig;
use serde_json::Value;

use super::fault::{Fault, RETRY_AFTER, reached};
use super::table::{Cell, LATE, See, TABLE, TORN};
use super::{ANSWER_TOKENS, CHAT, DIALECTS, chat_body, reference, seen};

/// The router's timeouts for both legs where a row waits for them: far above what a healthy leg takes.
const LEG_TIMEOUT: Duration = Duration::from_millis(2500);
/// Timeout where none is expected, however busy the machine is.
const NO_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that engines keep blocks that are not fetched: longer than the test. Where blocks may be kept, the test
/// ends this time.
const KEPT_FOR: Duration = Duration::from_secs(600);
const TIME_SCALE: f64 = 20.0;
/// Most repeats of a request without a fault that met the row's timeout.
const TRIES: usize = 5;
/// Room for prompt and answer, in tokens.
const CONTEXT: u32 = 1024;

/// A row in one dialect.
struct Row {
    fault: Fault,
    cell: Cell,
    pool: String,
    fleet: SplitFleet,
    client: Client,
    /// Engine for whole requests.
    reference: Client,
    /// Set once a busy machine made a healthy leg slower than the row's timeout: its engines may keep blocks.
    was_slow: std::cell::Cell<bool>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_nixl_pairs_match_the_table_and_leak_no_lease() {
    check(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_mooncake_pairs_match_the_table_and_leak_no_lease() {
    check(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_store_pairs_match_the_table_and_leak_no_lease() {
    check(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_sglang_pairs_match_the_table_and_leak_no_lease() {
    check(3).await;
}

async fn check(column: usize) {
    let (_engine, reference) = reference().await;
    let mut toml =
        format!("attempts = 3\nconnect-timeout = \"5s\"\nfirst-byte-timeout = \"{NO_TIMEOUT:?}\"\n");
    let timeouts =
        format!(", prefill-timeout = \"{LEG_TIMEOUT:?}\", first-token-timeout = \"{LEG_TIMEOUT:?}\"");
    let mut routes = String::new();
    let mut cells = Vec::new();
    for (fault, cells_of_fault) in TABLE {
        let Some(cell) = cells_of_fault[column] else {
            continue;
        };
        let pool = format!("{fault:?}").to_lowercase();
        let fleet = SplitFleet::start(DIALECTS[column], (1, 1), adjust).await.unwrap();
        toml += &fleet.pool_toml(&pool, if cell.see == LATE { &timeouts } else { "" });
        routes += &format!(
            "[[routes]]\nmatch = {{ header = {{ x-pool = \"{pool}\" }} }}\npool = \"{pool}\"\npolicy = \"round-robin\"\n"
        );
        cells.push((fault, cell, pool, fleet));
    }
    let router = TestRouter::start(&(toml + &routes)).await.unwrap();
    let rows = cells.into_iter().map(|(fault, cell, pool, fleet)| Row {
        fault,
        cell,
        pool,
        fleet,
        client: router.client.clone(),
        reference: reference.clone(),
        was_slow: std::cell::Cell::new(false),
    });
    futures_util::future::join_all(rows.map(|row| row.run(&router))).await;
}

fn adjust(config: &mut MockConfig) {
    config.time_scale = TIME_SCALE;
    config.max_model_len = Some(CONTEXT);
    let kept_for = KEPT_FOR.mul_f64(TIME_SCALE);
    if let Some(pd) = &mut config.pd {
        pd.lease = kept_for;
        pd.abort_timeout = kept_for;
    }
}

impl Row {
    async fn run(self, router: &TestRouter) {
        let mut number = 0;
        for stream in [true, false] {
            for stays in [true, false] {
                let what = format!("{}, stream: {stream}, the client stays: {stays}", self.pool);
                self.serves_pairs(&mut number, &what).await;
                self.fault.begin(&self.fleet).await;
                if self.cell.see == TORN {
                    // SGLang's engines answer side by side: the decode worker's whole answer could come first.
                    self.fleet.decode[0].faults().hold_answers();
                }
                let body = self.body(&mut number, stream);
                if stays {
                    self.stay(&body, &what).await;
                } else {
                    self.leave(&body, stream).await;
                    self.holds_no_lease(router, &what).await;
                }
                self.fault.end(&self.fleet).await;

                self.serves_next(&mut number, stream, &what).await;
                self.leaves_nothing(router, &what).await;
            }
        }
    }

    fn body(&self, number: &mut usize, stream: bool) -> Value {
        let mut body = chat_body(next(number), stream);
        if self.fault == Fault::PromptTooLong {
            let prompt = &mut body["messages"][0]["content"];
            *prompt = prompt.as_str().unwrap().repeat(10).into();
        }
        body
    }

    /// Waits until a pair of workers answers, after any earlier fault.
    async fn serves_pairs(&self, number: &mut usize, what: &str) {
        eventually_ok(&format!("a pair answers before {what}"), || {
            let body = chat_body(next(number), false);
            async move {
                let answer = self.send(&body).await;
                self.note_slow(&answer);
                if answer.end == End::Complete && !answer.header("x-conductor-prefill-worker").is_empty() {
                    return Ok(());
                }
                Err(format!("{answer:?}"))
            }
        })
        .await;
    }

    /// Checks that the request after a fault is served.
    async fn serves_next(&self, number: &mut usize, stream: bool, what: &str) {
        let mut after = self.send(&chat_body(next(number), stream)).await;
        for _ in 0..TRIES {
            if !self.note_slow(&after) {
                break;
            }
            after = self.send(&chat_body(next(number), stream)).await;
        }
        assert_eq!(
            (after.status.as_u16(), &after.end),
            (200, &End::Complete),
            "next after {what}"
        );
    }

    /// Records whether a request without a fault met the row's timeout. Returns `true` if it did.
    fn note_slow(&self, answer: &Seen) -> bool {
        let is_slow = self.cell.see == LATE && answer.end == End::Refused("worker_timeout".to_owned());
        self.was_slow.set(self.was_slow.get() || is_slow);
        is_slow
    }

    /// Checks the row for a client that waits for the end.
    async fn stay(&self, body: &Value, what: &str) {
        let strike = self
            .fault
            .strike(&self.fleet, reached(self.fault.place(&self.fleet)));
        let (answer, ()) = tokio::join!(self.try_send(body), strike);
        let stream = body["stream"] == true;
        if self.cell.see == See::CutOff && !stream {
            // The connection may take the partial answer with it.
            assert!(answer.is_none_or(|answer| answer.end == End::Torn), "{what}");
            return;
        }
        let answer = answer.expect("an answer");
        let expected = seen(&self.reference, CHAT, body).await;
        let what = format!("{what}: {answer:?}");
        let (status, end) = match self.cell.see {
            See::Pair | See::Alone | See::Served => (200, End::Complete),
            See::Worker(status) => (status, End::Refused(status.to_string())),
            See::Router(status, code) => (status, End::Refused(code.to_owned())),
            See::CutOff => (200, End::ErrorEvent("worker_broke_off".to_owned())),
        };
        assert_eq!((answer.status.as_u16(), &answer.end), (status, &end), "{what}");
        match self.cell.see {
            See::Pair | See::Alone | See::Served => {
                assert_eq!(answer.text, expected.text, "{what}");
                assert_eq!(
                    answer.text.split_whitespace().count(),
                    ANSWER_TOKENS as usize,
                    "{what}"
                );
                let pair = !answer.header("x-conductor-prefill-worker").is_empty();
                if self.cell.see != See::Served {
                    assert_eq!(pair, self.cell.see == See::Pair, "{what}");
                }
            }
            See::CutOff => {
                assert!(expected.text.starts_with(&answer.text), "{what}");
                assert!(!answer.text.is_empty(), "{what}");
            }
            See::Worker(503) => assert_eq!(answer.header("retry-after"), RETRY_AFTER.to_string(), "{what}"),
            See::Worker(_) | See::Router(..) => {}
        }
    }

    /// Checks the row for a client that disconnects once the engine in question works on the request. From a stream
    /// that begins, it disconnects after its first chunk.
    async fn leave(&self, body: &Value, stream: bool) {
        let engine = self.fault.place(&self.fleet);
        let begun = async {
            let Some(mut answer) = self.open(body).await else {
                return;
            };
            if stream {
                drop(answer.chunk().await);
            } else {
                drop(Seen::read(answer).await);
            }
        };
        let at_it = reached(engine);
        let at_it = async {
            at_it.await;
            if stream && !self.fault.keeps_waiting() {
                std::future::pending::<()>().await;
            }
        };
        let strike = self.fault.strike(&self.fleet, reached(engine));
        tokio::join!(
            async {
                tokio::select! {
                    () = begun => {}
                    () = at_it => {}
                }
            },
            strike
        );
    }

    /// Checks that the router has noticed that a client left, however the workers behave.
    async fn holds_no_lease(&self, router: &TestRouter, what: &str) {
        eventually_ok(&format!("no lease is held after {what}"), || async {
            match router.leases(&format!("{}-", self.pool)).await.unwrap() {
                0.0 => Ok(()),
                leases => Err(leases),
            }
        })
        .await;
    }

    /// Checks that no leg runs, no block is kept, no lease is held.
    async fn leaves_nothing(&self, router: &TestRouter, what: &str) {
        let may_keep = self.cell.keeps || self.was_slow.get();
        eventually_ok(&format!("nothing is left of {what}"), || async {
            if may_keep {
                self.fleet.expire();
            }
            let left = self.fleet.left();
            let leases = router.leases(&format!("{}-", self.pool)).await.unwrap();
            if left.is_empty() && leases == 0.0 {
                return Ok(());
            }
            Err(format!("{leases} leases, {left:?}"))
        })
        .await;
    }

    /// Sends a request. Returns `None` where the connection broke before an answer began.
    async fn open(&self, body: &Value) -> Option<harness::Stream> {
        let headers = [("x-pool", &*self.pool)];
        let body = body.to_string().into();
        self.client.stream(Method::POST, CHAT, &headers, body).await.ok()
    }

    async fn try_send(&self, body: &Value) -> Option<Seen> {
        Some(Seen::read(self.open(body).await?).await.unwrap())
    }

    async fn send(&self, body: &Value) -> Seen {
        self.try_send(body).await.expect("an answer")
    }
}

fn next(number: &mut usize) -> usize {
    *number += 1;
    *number
}
