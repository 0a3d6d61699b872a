//! Clients: one request over a kept connection, as much of the answer as came, and an open loop of them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::Random;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::account::Account;
use crate::http::{Head, MessageReader, MessageSink};
use crate::loopback::Loopback;
use bench_vocabulary::Words;

/// Longer than the sum of the router's timeouts: such a request hangs.
const HUNG_AFTER: Duration = Duration::from_secs(40);
/// Requests under way at a time; more are not sent, and counted.
const MOST: usize = 4_000;
/// Prompts that there are; half of each is what the one before began with.
const PROMPTS: usize = 200;

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Complete,
    /// An error, or a stream with an error event.
    Reported(String),
    /// Cut off without an error, before or after it began.
    Torn(&'static str),
    /// The request did not end.
    Hung,
}

/// Clients and their target.
pub(super) struct Clients {
    pub(super) target: Loopback,
    /// Connections are reused.
    pub(super) keep: bool,
    pub(super) rate: f64,
    pub(super) account: Arc<Account>,
    /// API key, if any.
    pub(super) key: Option<&'static str>,
    idle: Mutex<Vec<TcpStream>>,
    prompts: Vec<String>,
}

impl Clients {
    pub(super) fn new(target: Loopback, keep: bool, rate: f64, seed: u64, account: Arc<Account>) -> Self {
        let mut words = Words::of(seed);
        let mut prompts: Vec<String> = Vec::new();
        for number in 0..PROMPTS {
            let before = if number % 4 == 0 { None } else { prompts.last() };
            let prompt = before.map_or_else(String::new, |before| before.clone() + " ")
                + &words.text(200 + 40 * (number % 13));
            prompts.push(prompt);
        }
        Self {
            target,
            keep,
            rate,
            account,
            key: None,
            idle: Mutex::default(),
            prompts,
        }
    }

    /// Sends requests at a steady rate, independent of their answers, until `over`. Returns when the last has ended.
    pub(super) async fn run(self: Arc<Self>, seed: u64, over: impl Fn() -> bool) {
        let mut random = Random::new(seed);
        let mut requests = JoinSet::new();
        let started = Instant::now();
        for number in 0_u64.. {
            let due = started + Duration::from_secs_f64(number as f64 / self.rate);
            tokio::time::sleep_until(due.into()).await;
            if over() {
                break;
            }
            while requests.try_join_next().is_some() {}
            if requests.len() >= MOST {
                self.account.not_sent();
                continue;
            }
            let (clients, body) = (Arc::clone(&self), self.body(&mut random));
            requests.spawn(async move { clients.exchange(&body, due).await });
        }
        requests.join_all().await;
    }

    fn body(&self, random: &mut Random) -> String {
        let prompt = &self.prompts[random.below(self.prompts.len())];
        json!({
            "model": "mock",
            "max_tokens": 1 + random.below(40),
            "stream": random.once_in(2),
            "messages": [{ "role": "user", "content": prompt }],
        })
        .to_string()
    }

    async fn exchange(&self, body: &str, due: Instant) {
        let key = self.key.map(|key| format!("authorization: Bearer {key}\r\n"));
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: load\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            key.unwrap_or_default(),
            body.len()
        );
        let request = [head.as_bytes(), body.as_bytes()].concat();
        let outcome = match tokio::time::timeout(HUNG_AFTER, self.send(&request)).await {
            Ok(answer) => answer.outcome(),
            Err(_) => Outcome::Hung,
        };
        self.account.enter(&outcome, due);
    }

    /// Sends a request over an idle connection, or a new one. If the idle one had been closed, a new one is used.
    async fn send(&self, request: &[u8]) -> Answer {
        let kept = self.keep.then(|| lock(&self.idle).pop()).flatten();
        if let Some(stream) = kept {
            let (answer, stream) = exchange(stream, request).await;
            if answer.status != 0 {
                self.put_back(stream);
                return answer;
            }
        }
        let Ok(stream) = TcpStream::connect(self.target.address()).await else {
            return Answer::default();
        };
        let (answer, stream) = exchange(stream, request).await;
        self.put_back(stream);
        answer
    }

    fn put_back(&self, stream: Option<TcpStream>) {
        if self.keep {
            lock(&self.idle).extend(stream);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The received part of an answer.
#[derive(Debug, Default)]
struct Answer {
    /// 0 where not even the head came.
    status: u16,
    events: bool,
    close: bool,
    body: Vec<u8>,
    complete: bool,
}

impl MessageSink for Answer {
    fn head(&mut self, head: &Head<'_>) {
        let status = head
            .start
            .get(9..12)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        self.status = status.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        self.close = head.close;
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.events |= self.body.starts_with(b"data:") || self.body.starts_with(b":");
    }
}

impl Answer {
    fn outcome(&self) -> Outcome {
        let code = |value: &Value| match &value["error"]["code"] {
            Value::String(code) => code.clone(),
            other => other.to_string(),
        };
        match (self.status, self.complete) {
            (0, _) => Outcome::Torn("no answer"),
            (_, false) if self.events => Outcome::Torn("stream torn"),
            (_, false) => Outcome::Torn("answer torn"),
            (200, true) if !self.events => Outcome::Complete,
            (200, true) => {
                let text = String::from_utf8_lossy(&self.body);
                let last = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("data: "))
                    .next_back();
                match last {
                    Some("[DONE]") if !text.contains("\ndata: {\"error\"") => Outcome::Complete,
                    last => {
                        let event = last
                            .and_then(|last| serde_json::from_str(last).ok())
                            .unwrap_or_default();
                        Outcome::Reported(format!("stream ended by an error event, {}", code(&event)))
                    }
                }
            }
            (status, true) => {
                let body = serde_json::from_slice(&self.body).unwrap_or_default();
                Outcome::Reported(format!("{status} {}", code(&body)))
            }
        }
    }
}

/// Sends a request and reads its answer; the connection too, where it can be used again.
async fn exchange(mut stream: TcpStream, request: &[u8]) -> (Answer, Option<TcpStream>) {
    let mut answer = Answer::default();
    let whole = read(&mut stream, request, &mut answer).await.is_ok() && answer.complete && !answer.close;
    (answer, whole.then_some(stream))
}

async fn read(stream: &mut TcpStream, request: &[u8], answer: &mut Answer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(request).await?;
    let mut reader = MessageReader::default();
    let mut scratch = [0; 8 * 1024];
    while !answer.complete {
        let received = stream.read(&mut scratch).await?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let fed = reader
            .feed(&scratch[..received], answer)
            .map_err(io::Error::other)?;
        answer.complete = fed.1;
    }
    Ok(())
}

/// Returns a page.
pub(super) async fn get(target: Loopback, path: &str) -> Result<String> {
    let stream = TcpStream::connect(target.address())
        .await
        .context("failed to connect to the router")?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    let (answer, _) = exchange(stream, request.as_bytes()).await;
    anyhow::ensure!(
        answer.complete && answer.status == 200,
        "{path}: {}",
        answer.status
    );
    String::from_utf8(answer.body).context("a page is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, complete: bool, body: &str, expected: Outcome) {
        let mut answer = Answer {
            status,
            complete,
            ..Answer::default()
        };
        answer.body(body.as_bytes());
        assert_eq!(answer.outcome(), expected, "{body}");
    }

    #[test]
    fn an_answer_is_distinguished_from_what_is_none() {
        check(0, false, "", Outcome::Torn("no answer"));
        check(200, true, "{}", Outcome::Complete);
        check(200, false, "{", Outcome::Torn("answer torn"));
        check(200, false, "data: {}\n\n", Outcome::Torn("stream torn"));
        check(200, true, "data: {}\n\ndata: [DONE]\n\n", Outcome::Complete);
        check(
            200,
            true,
            "data: {}\n\ndata: {\"error\":{\"code\":\"worker_broke_off\"}}\n\n",
            Outcome::Reported("stream ended by an error event, worker_broke_off".to_owned()),
        );
        check(
            503,
            true,
            r#"{"error":{"code":"overloaded"}}"#,
            Outcome::Reported("503 overloaded".to_owned()),
        );
    }
}
