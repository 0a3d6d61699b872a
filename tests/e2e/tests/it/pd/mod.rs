//! Requests that two engines answer, in every dialect: what clients see, and what is left behind, whatever fails.

mod detect;
mod equality;
mod fault;
mod matrix;
mod messages;
mod placement;
mod table;
mod takeover;

use harness::{Client, Seen};
use mock_engine::{MockConfig, MockEngine, PdDialect};
use serde_json::{Value, json};

use crate::fast;

const DIALECTS: [PdDialect; 4] = [
    PdDialect::Nixl,
    PdDialect::Mooncake,
    PdDialect::Store,
    PdDialect::Sglang,
];

/// Tokens of every requested answer here.
const ANSWER_TOKENS: u32 = 24;

/// Returns a chat request whose prompt shares no block with that of any other `number`.
fn chat_body(number: usize, stream: bool) -> Value {
    let prompt: String = (0..60).map(|word| format!("topic{number}word{word} ")).collect();
    json!({
        "model": "mock", "stream": stream, "max_tokens": ANSWER_TOKENS,
        "messages": [{ "role": "user", "content": prompt }],
    })
}

const CHAT: &str = "/v1/chat/completions";

/// Starts an engine for whole requests.
async fn reference() -> (MockEngine, Client) {
    let mut config = MockConfig::default();
    fast(0, &mut config);
    let engine = MockEngine::start(config).await.unwrap();
    let client = Client::new(engine.url());
    (engine, client)
}

async fn seen(client: &Client, path: &str, body: &Value) -> Seen {
    Seen::read(client.open(path, body).await.unwrap()).await.unwrap()
}
