//! `/v1/realtime`: a WebSocket with the events of vLLM 0.32. Each piece of audio becomes a word with its length.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::serving::body::{ReplyBody, empty_reply, json_reply};
use crate::serving::context::{Context, unix_now};

/// Slot of a conversation in the extensions of the upgrade response; the connection runs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConversationSlot(Arc<Mutex<Option<RealtimeConversation>>>);

/// A WebSocket to be opened.
#[derive(Debug)]
pub(crate) struct RealtimeConversation {
    upgrade: OnUpgrade,
    context: Arc<Context>,
    /// Number of words after which it breaks off.
    cut_after: Option<u32>,
}

/// State of a conversation.
#[derive(Debug, Default)]
struct RealtimeSession {
    is_validated: bool,
    is_running: bool,
    /// Words of audio received before it ran.
    waiting: Vec<String>,
    text: String,
    words: u64,
    /// Words of all utterances.
    received: u32,
}

impl ConversationSlot {
    /// Moves the conversation of another slot here.
    pub(crate) fn fill(&self, other: &Self) {
        let conversation = other.take();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = conversation;
    }

    /// Returns the conversation, once.
    pub(crate) fn take(&self) -> Option<RealtimeConversation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Upgrades to a WebSocket. Other requests get 404, as in vLLM.
pub(crate) fn open(
    context: &Arc<Context>,
    mut request: Request<Incoming>,
    cut_after: Option<u32>,
) -> Response<ReplyBody> {
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let accept = key.map(|key| derive_accept_key(key.as_bytes()));
    let accept = accept.and_then(|accept| HeaderValue::try_from(accept).ok());
    let Some(accept) = accept.filter(|_| request.headers().contains_key(UPGRADE)) else {
        return json_reply(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"}));
    };
    let conversation = RealtimeConversation {
        upgrade: hyper::upgrade::on(&mut request),
        context: Arc::clone(context),
        cut_after,
    };
    let mut reply = empty_reply(StatusCode::SWITCHING_PROTOCOLS);
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    let slot = ConversationSlot(Arc::new(Mutex::new(Some(conversation))));
    reply.extensions_mut().insert(slot);
    reply
}

impl RealtimeConversation {
    /// Runs until the client disconnects.
    pub(crate) async fn run(self) {
        if let Ok(upgraded) = self.upgrade.await {
            converse(&self.context, upgraded, self.cut_after).await;
        }
    }
}

async fn converse(context: &Context, upgraded: Upgraded, cut_after: Option<u32>) {
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let id = format!("sess-{}", context.request_id());
    let mut events = vec![json!({"type": "session.created", "id": id, "created": unix_now()})];
    let mut session = RealtimeSession::default();
    loop {
        for event in events.drain(..) {
            if socket.send(Message::text(event.to_string())).await.is_err() {
                return;
            }
        }
        if cut_after.is_some_and(|most| session.received >= most) {
            return;
        }
        match socket.next().await {
            Some(Ok(Message::Text(text))) => events = session.handle_event(context, &text),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}

impl RealtimeSession {
    /// Handles one event.
    fn handle_event(&mut self, context: &Context, text: &str) -> Vec<Value> {
        let Ok(event) = serde_json::from_str::<Value>(text) else {
            return vec![error("Invalid JSON", "invalid_json")];
        };
        match event["type"].as_str().unwrap_or_default() {
            "session.update" => self.update(context, &event),
            "input_audio_buffer.append" => self.append(&event),
            "input_audio_buffer.commit" => self.commit(&event),
            other => vec![error(&format!("Unknown event type: {other}"), "unknown_event")],
        }
    }

    fn update(&mut self, context: &Context, event: &Value) -> Vec<Value> {
        let Some(model) = event["model"].as_str() else {
            return vec![error("Missing required field: model", "invalid_event")];
        };
        let is_known =
            model == &*context.config.model || context.adapters.names().iter().any(|name| **name == *model);
        if !is_known {
            let message = format!("The model `{model}` does not exist.");
            return vec![error(&message, "model_not_found")];
        }
        self.is_validated = true;
        vec![]
    }

    fn append(&mut self, event: &Value) -> Vec<Value> {
        let audio = event["audio"].as_str().unwrap_or_default();
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        if audio.is_empty() || !audio.len().is_multiple_of(4) || !audio.bytes().all(is_base64) {
            return vec![error("Invalid audio data", "invalid_audio")];
        }
        self.waiting.push(format!("{} ", audio.len() / 4 * 3));
        self.flush()
    }

    fn commit(&mut self, event: &Value) -> Vec<Value> {
        if !self.is_validated {
            let message =
                "Model not validated. Make sure to validate the model by sending a session.update event.";
            return vec![error(message, "model_not_validated")];
        }
        let is_final = event["final"].as_bool().unwrap_or_default();
        if !is_final {
            self.is_running = true;
            return self.flush();
        }
        let mut events = self.flush();
        if std::mem::take(&mut self.is_running) {
            let (text, words) = (std::mem::take(&mut self.text), std::mem::take(&mut self.words));
            let usage =
                json!({"prompt_tokens": words, "completion_tokens": words, "total_tokens": 2 * words});
            events.push(json!({"type": "transcription.done", "text": text, "usage": usage}));
        }
        events
    }

    /// Transcribes queued audio, once it runs.
    fn flush(&mut self) -> Vec<Value> {
        if !self.is_running {
            return vec![];
        }
        let words: Vec<String> = self.waiting.drain(..).collect();
        self.words += words.len() as u64;
        self.received += u32::try_from(words.len()).unwrap_or(u32::MAX);
        self.text.extend(words.iter().map(String::as_str));
        let delta = |word| json!({"type": "transcription.delta", "delta": word});
        words.into_iter().map(delta).collect()
    }
}

fn error(message: &str, code: &str) -> Value {
    json!({"type": "error", "error": message, "code": code})
}
