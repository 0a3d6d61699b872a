//! Clients: their requests, timeouts and disconnections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use harness::{Client, Random, Seen};
use http::Method;
use mock_engine::{MockConfig, MockEngine};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::account::{Account, Outcome, SentRequest};
use crate::pool::Pool;

/// Longer than the sum of the router's and an engine's timeouts: such a request hangs.
pub(crate) const HUNG_AFTER: Duration = Duration::from_secs(30);
const QUESTIONS: usize = 200;
/// The longest answer, in tokens.
const LONGEST: usize = 60;

/// Possible requests, with a single engine's answers.
#[derive(Debug)]
pub(crate) struct Question {
    path: &'static str,
    body: Value,
    /// Full answer; shorter answers are its prefixes.
    answer: String,
}

/// Returns prompts of many lengths; every other one goes on where the one before ended. An engine of their own gives
/// the expected answers.
pub(crate) async fn questions(seed: u64) -> Result<Vec<Question>> {
    let engine = MockEngine::start(MockConfig {
        time_scale: 1000.0,
        ..MockConfig::default()
    })
    .await?;
    let client = Client::new(engine.url());
    let mut random = Random::new(seed);
    let mut questions: Vec<Question> = Vec::with_capacity(QUESTIONS);
    let mut prompt = String::new();
    for number in 0..QUESTIONS {
        if number % 2 == 0 {
            prompt.clear();
        }
        for word in 0..10 + random.below(300) {
            prompt += &format!("topic{number}word{word} ");
        }
        let (path, mut body) = if random.once_in(3) {
            ("/v1/completions", json!({ "model": "mock", "prompt": prompt }))
        } else {
            let messages = json!([{ "role": "user", "content": prompt }]);
            (
                "/v1/chat/completions",
                json!({ "model": "mock", "messages": messages }),
            )
        };
        body["max_tokens"] = LONGEST.into();
        let answer = Seen::read(client.open(path, &body).await?).await?.text;
        questions.push(Question { path, body, answer });
    }
    Ok(questions)
}

/// One client.
pub(crate) struct LoadClient {
    pub(crate) client: Client,
    pub(crate) pool: Arc<Pool>,
    pub(crate) questions: Arc<Vec<Question>>,
    pub(crate) account: Arc<Account>,
}

impl LoadClient {
    /// Sends one prompt after the other.
    pub(crate) async fn send_until(self, over: CancellationToken, seed: u64) {
        let mut random = Random::new(seed);
        while !over.is_cancelled() {
            let question = &self.questions[random.below(self.questions.len())];
            let tokens = 1 + random.below(LONGEST);
            let stream = random.once_in(2);
            let leaves_after = random.once_in(10).then(|| random.ms(0, 200));
            let mut body = question.body.clone();
            body["max_tokens"] = tokens.into();
            body["stream"] = stream.into();
            let sent = SentRequest {
                pool: &self.pool,
                stream,
                tokens,
                answer: &question.answer,
                since: Instant::now(),
            };
            let patience = leaves_after.unwrap_or(HUNG_AFTER);
            // Dropping the request is how a client leaves.
            let outcome = match tokio::time::timeout(patience, self.send(question.path, &body)).await {
                Ok(Some(seen)) => Outcome::Answer(seen),
                Ok(None) => Outcome::NoAnswer,
                Err(_) if leaves_after.is_some() => Outcome::Left,
                Err(_) => Outcome::Hung,
            };
            self.account.enter(&sent, outcome);
            tokio::time::sleep(random.ms(0, 60)).await;
        }
    }

    /// Sends a prompt. Returns `None` where the connection ended before an answer began.
    async fn send(&self, path: &str, body: &Value) -> Option<Seen> {
        let headers = [("x-pool", &*self.pool.name)];
        let body = body.to_string().into();
        let answer = self
            .client
            .stream(Method::POST, path, &headers, body)
            .await
            .ok()?;
        // Neither an answer nor an error: counted as one that is not explained.
        Seen::read(answer).await.ok()
    }
}
