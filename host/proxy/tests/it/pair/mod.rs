//! Tests of split requests: the claims of `host/adr/0009-prefill-decode.md`, between scripted workers.

pub(crate) mod concurrent;
mod detect;
pub(crate) mod engines;
mod faults;
mod placement;
mod predictions;
mod sequential;
mod sglang;

use bytes::Bytes;
use http::{Request, Response};
use routing::Dialect;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::post;
use crate::router::{Builder, router};
use crate::worker::{Pen, Received, Worker, WorkerBody, json, whole, written};

/// Prompt of more than one token, which any dialect can split.
const BODY: &str = r#"{"model":"m", "prompt":"hello, world","max_tokens":9}"#;
/// Handover parameters of a prefill worker, unusual in the parts that the router must not change.
const PARAMS: &str =
    r#"{"do_remote_prefill": true,"remote_engine_id":"e","remote_block_ids":[[1, 2]],"x":"\u00e9"}"#;

pub(crate) fn request() -> Request<Bytes> {
    post("/v1/completions", BODY)
}

fn with_header(mut request: Request<Bytes>, name: &'static str, value: &str) -> Request<Bytes> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// Creates the response of a prefill leg: 64 of 170 tokens were cached.
pub(crate) fn prefilled() -> Response<WorkerBody> {
    prefill_answer("length", PARAMS)
}

fn prefill_answer(finish_reason: &str, params: &str) -> Response<WorkerBody> {
    let usage = r#"{"prompt_tokens":170,"prompt_tokens_details":{"cached_tokens":64}}"#;
    let choice = format!(r#"{{"index":0,"text":"a","finish_reason":"{finish_reason}"}}"#);
    json(
        200,
        format!(r#"{{"choices":[{choice}],"usage":{usage},"kv_transfer_params":{params}}}"#),
    )
}

/// Starts a prefill worker that answers with [`prefilled`].
pub(crate) async fn prefilling() -> Worker {
    Worker::start(|_| async { prefilled() }).await
}

/// First event of a streaming worker.
const FIRST: &str = "data: {\"n\":1}\n\n";

/// Starts a worker whose streams have begun, with the pen of each.
async fn begun() -> (Worker, mpsc::Receiver<Pen>) {
    let (pens, taken) = mpsc::channel(16);
    let worker = Worker::start(move |_| {
        let pens = pens.clone();
        async move {
            let (pen, response) = written("text/event-stream");
            pen.send(Ok(FIRST.into())).await.unwrap();
            pens.send(pen).await.unwrap();
            response
        }
    })
    .await;
    (worker, taken)
}

/// Starts a worker that answers with this error status and a text of its own.
async fn troubled(status: u16) -> Worker {
    Worker::start(move |_| async move {
        let mut response = whole(status, "text/x-trouble", format!("trouble {status}"));
        response.headers_mut().insert("retry-after", 7.into());
        response
    })
    .await
}

pub(crate) fn one_pair(dialect: Dialect, prefill: &Worker, decode: &Worker) -> Builder {
    router()
        .pd(dialect)
        .prefill("p", &prefill.url())
        .decode("d", &decode.url())
}

fn parsed(received: &Received) -> Value {
    serde_json::from_slice(&received.body).unwrap()
}

fn header<'a>(received: &'a Received, name: &str) -> Option<&'a str> {
    received.headers.get(name).map(|value| value.to_str().unwrap())
}
