//! A plain HTTP client that shows everything: status, headers, bytes, and the chunks of a stream as they come.

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pooled;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Sends requests to one base URL.
#[derive(Debug, Clone)]
pub struct Client {
    http: Pooled<HttpConnector, Full<Bytes>>,
    base: String,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub struct Stream {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    body: Incoming,
}

impl Client {
    /// Returns a client of `http://host:port`.
    #[must_use]
    pub fn new(base: impl Into<String>) -> Self {
        Self {
            http: Pooled::builder(TokioExecutor::new()).build_http(),
            base: base.into(),
        }
    }

    /// Returns `http://host:port`.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Sends a `GET`.
    ///
    /// # Errors
    /// Where no answer came.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.stream(Method::GET, path, &[], Bytes::new())
            .await?
            .whole()
            .await
    }

    /// Sends a `POST` of JSON.
    ///
    /// # Errors
    /// Where no whole answer came.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.open(path, body).await?.whole().await
    }

    /// Sends a `POST` of JSON, without waiting for the body of the answer.
    ///
    /// # Errors
    /// Where no answer began.
    pub async fn open(&self, path: &str, body: &Value) -> Result<Stream> {
        self.stream(Method::POST, path, &[], Bytes::from(body.to_string()))
            .await
    }

    /// Sends any request, of JSON unless its headers name another type.
    ///
    /// # Errors
    /// Where no answer began.
    pub async fn stream(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Stream> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self
            .http
            .request(request.body(Full::new(body))?)
            .await
            .context(format!("request {path}"))?;
        let (parts, body) = answer.into_parts();
        Ok(Stream {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }
}

impl Stream {
    /// Returns a header's value; empty when it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        text_of(&self.headers, name)
    }

    /// Returns the next chunk as it came over the wire; none at the end.
    ///
    /// # Errors
    /// Where the answer was cut.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(chunk) = frame.context("read a chunk")?.into_data() {
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// Returns the rest of the body.
    ///
    /// # Errors
    /// Where the answer was cut.
    pub async fn whole(self) -> Result<Answer> {
        let body = self.body.collect().await.context("read the body")?.to_bytes();
        Ok(Answer {
            status: self.status,
            headers: self.headers,
            body,
        })
    }
}

impl Answer {
    /// Returns the body as JSON.
    ///
    /// # Errors
    /// Where it is none; the error shows the body.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{}: {}", self.status, self.text()))
    }

    /// Returns the body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns a header's value; empty when it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        text_of(&self.headers, name)
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}
