//! Client that returns the received bytes unchanged, and whether the response was complete.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use mock_engine::MockEngine;
use serde_json::Value;

/// An answer as far as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Set if the body ended, rather than broke off.
    pub(crate) complete: bool,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("json")
    }

    /// Returns the JSON of every `data:` line.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let data = self.text().lines().filter_map(|line| line.strip_prefix("data: "));
        let json = data.filter(|data| *data != "[DONE]");
        json.map(|data| serde_json::from_str(data).expect("json"))
            .collect()
    }
}

/// Sends a request on a connection of its own; the answer's body is still to come.
pub(crate) async fn open(
    engine: &MockEngine,
    method: Method,
    path: &str,
    body: impl Into<Bytes>,
) -> Result<http::Response<Incoming>, Error> {
    open_url(method, &format!("{}{path}", engine.url()), &[], body).await
}

/// Sends a request to any address, with more headers.
pub(crate) async fn open_url(
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<http::Response<Incoming>, Error> {
    let request = Request::builder()
        .method(method)
        .uri(url)
        .header("x-request-id", "my-req-1");
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value))
        .body(Full::new(body.into()))
        .expect("a request");
    Client::builder(TokioExecutor::new())
        .build_http()
        .request(request)
        .await
}

pub(crate) async fn whole(answer: http::Response<Incoming>) -> Reply {
    let (parts, mut incoming) = answer.into_parts();
    let (mut body, mut complete) = (BytesMut::new(), true);
    while let Some(frame) = incoming.frame().await {
        match frame {
            Ok(frame) => body.extend(frame.into_data().ok()),
            Err(_) => complete = false,
        }
    }
    Reply {
        status: parts.status,
        headers: parts.headers,
        body: body.freeze(),
        complete,
    }
}

pub(crate) async fn get(engine: &MockEngine, path: &str) -> Reply {
    whole(open(engine, Method::GET, path, "").await.expect("an answer")).await
}

pub(crate) async fn post(engine: &MockEngine, path: &str, body: &Value) -> Reply {
    post_text(engine, path, &body.to_string()).await
}

pub(crate) async fn post_text(engine: &MockEngine, path: &str, body: &str) -> Reply {
    whole(
        open(engine, Method::POST, path, body.to_owned())
            .await
            .expect("an answer"),
    )
    .await
}

/// Requests a completion of a prompt given as token ids. Returns its cached tokens.
pub(crate) async fn complete(engine: &MockEngine, prompt: &[u32], max_tokens: u32) -> u64 {
    let body = serde_json::json!({"prompt": prompt, "max_tokens": max_tokens});
    let answer = post(engine, "/v1/completions", &body).await.json();
    answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .expect("cached tokens")
}
