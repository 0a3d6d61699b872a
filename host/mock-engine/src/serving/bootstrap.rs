//! Bootstrap server of a prefill engine.

use http::{Method, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};

use crate::serving::body::{HttpResult, empty_reply, json_reply};
use crate::transfer::{PdDialect, TransferEndpoint};

/// Answers `GET /query` of mooncake and `GET /health` of sglang.
pub(crate) fn answer(side: &TransferEndpoint, request: &Request<Incoming>) -> HttpResult {
    let is_get = request.method() == Method::GET;
    Ok(match (side.config().dialect, request.uri().path()) {
        (PdDialect::Mooncake, "/query") if is_get => json_reply(StatusCode::OK, &directory(side)),
        (PdDialect::Sglang, "/health") if is_get => empty_reply(StatusCode::OK),
        (PdDialect::Mooncake, "/query") | (PdDialect::Sglang, "/health") => json_reply(
            StatusCode::METHOD_NOT_ALLOWED,
            &json!({"detail": "Method Not Allowed"}),
        ),
        _ => json_reply(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})),
    })
}

/// Returns the directory as recorded: by data-parallel rank, then tensor-parallel and pipeline-parallel rank.
fn directory(side: &TransferEndpoint) -> Value {
    let address = format!("tcp://127.0.0.1:{}", side.port());
    let entry = |(rank, engine_id): (usize, String)| {
        let entry = json!({"engine_id": engine_id, "worker_addr": {"0": {"0": address}}});
        (rank.to_string(), entry)
    };
    Value::Object(
        side.engine_ids()
            .into_iter()
            .enumerate()
            .map(entry)
            .collect::<Map<_, _>>(),
    )
}
