//! Path table of the engine.

use http::Method;
use serde_json::{Map, Value};

use crate::serving::pooling::Pooling;
use crate::serving::shapes::Dialect;

const RESPONSES: &str = "/v1/responses/";
const CANCEL: &str = "/cancel";

/// Service of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Health,
    Version,
    Metrics,
    Models,
    KvEventSources,
    ServerInfo,
    Tokenize,
    Detokenize,
    CountTokens,
    /// A WebSocket.
    Realtime,
    LoadAdapter,
    UnloadAdapter,
    /// A stored response, by id.
    KeptResponse(&'a str),
    CancelResponse(&'a str),
    ResetPrefixCache,
    /// An inference path, as kept by the recorder.
    Inference(&'static str, Inference),
}

/// Kind of an inference request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inference {
    Chat,
    Completion,
    Responses,
    Messages,
    /// A prompt of token ids.
    Generate,
    /// A recording to transcribe or translate.
    Audio(Dialect),
    /// A model without text output.
    Pooling(Pooling),
    /// A body of several of the other kinds.
    Any,
}

impl Inference {
    /// Returns the kind of a body by its fields; `Any` if no kind matches.
    pub(super) fn of_body(fields: &Map<String, Value>) -> Self {
        let found = BODIES.iter().find(|(field, _)| fields.contains_key(*field));
        found.map_or(Self::Any, |(_, kind)| *kind)
    }
}

/// Kind of a body that has this field; the first match counts.
const BODIES: [(&str, Inference); 6] = [
    ("messages", Inference::Chat),
    ("prompt", Inference::Completion),
    ("query", Inference::Pooling(Pooling::Rerank)),
    ("queries", Inference::Pooling(Pooling::Score)),
    ("text_1", Inference::Pooling(Pooling::Score)),
    ("input", Inference::Pooling(Pooling::Embed)),
];

const INFERENCE: [(&str, Inference); 16] = [
    ("/v1/chat/completions", Inference::Chat),
    ("/v1/completions", Inference::Completion),
    ("/v1/responses", Inference::Responses),
    ("/v1/messages", Inference::Messages),
    ("/inference/v1/generate", Inference::Generate),
    (
        "/v1/audio/transcriptions",
        Inference::Audio(Dialect::Transcription),
    ),
    ("/v1/audio/translations", Inference::Audio(Dialect::Translation)),
    ("/v1/embeddings", Inference::Pooling(Pooling::Embed)),
    ("/pooling", Inference::Pooling(Pooling::Pool)),
    ("/classify", Inference::Pooling(Pooling::Classify)),
    ("/score", Inference::Pooling(Pooling::Score)),
    ("/v1/score", Inference::Pooling(Pooling::Score)),
    ("/rerank", Inference::Pooling(Pooling::Rerank)),
    ("/v1/rerank", Inference::Pooling(Pooling::Rerank)),
    ("/v2/rerank", Inference::Pooling(Pooling::Rerank)),
    ("/invocations", Inference::Any),
];

/// Returns the service of a path, and its method.
pub(super) fn route(path: &str) -> Option<(Method, Route<'_>)> {
    if let Some((path, inference)) = INFERENCE.iter().find(|(known, _)| *known == path) {
        return Some((Method::POST, Route::Inference(path, *inference)));
    }
    if let Some(id) = path.strip_prefix(RESPONSES) {
        return Some(match id.strip_suffix(CANCEL) {
            Some(id) => (Method::POST, Route::CancelResponse(id)),
            None => (Method::GET, Route::KeptResponse(id)),
        });
    }
    Some(match path {
        "/health" | "/ping" => (Method::GET, Route::Health),
        "/version" => (Method::GET, Route::Version),
        "/metrics" => (Method::GET, Route::Metrics),
        "/v1/models" => (Method::GET, Route::Models),
        "/kv_event_sources" => (Method::GET, Route::KvEventSources),
        "/server_info" => (Method::GET, Route::ServerInfo),
        "/tokenize" => (Method::POST, Route::Tokenize),
        "/detokenize" => (Method::POST, Route::Detokenize),
        "/v1/messages/count_tokens" => (Method::POST, Route::CountTokens),
        "/v1/realtime" => (Method::GET, Route::Realtime),
        "/v1/load_lora_adapter" => (Method::POST, Route::LoadAdapter),
        "/v1/unload_lora_adapter" => (Method::POST, Route::UnloadAdapter),
        "/reset_prefix_cache" => (Method::POST, Route::ResetPrefixCache),
        _ => return None,
    })
}
