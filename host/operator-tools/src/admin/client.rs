//! Client of one router's admin pages. Answers are made fit for a terminal.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::uri::{Parts, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use local_files::ADMIN_API_KEY;
use observability::error_chain;
use serde_json::Value;
use worker_client::tls::{WorkerTls, WorkerTlsParts};
use worker_client::{ConnectError, SendError, ServerClientError, WorkerClient, WorkerClientError, read_body};

use super::error::{ADDRESS, NOT_A_SERVER, RUNS, RemoteError, SECURE, TRUST};
use super::events::EventStream;
use super::printable::printable;
use crate::args::RouterArgs;

/// Timeout of one answer: a resumed policy may have to be compiled, which takes seconds for an interpreter.
const PATIENCE: Duration = Duration::from_mins(1);
/// Longest answer, in bytes.
const LONGEST: usize = 16 << 20;

/// Client of one router.
#[derive(Debug)]
pub struct AdminClient {
    /// Address of the admin listener, without an ending slash.
    url: String,
    /// Path of that address.
    base: String,
    http: WorkerClient,
    headers: HeaderMap,
    is_verbose: bool,
}

impl AdminClient {
    /// Creates the client of the router at `url`.
    ///
    /// # Errors
    /// [`RemoteError`], if the address is malformed or the key cannot be had.
    pub fn new(url: String, args: &RouterArgs) -> Result<Self, RemoteError> {
        let bad = |cause: String| RemoteError::Address {
            url: url.clone(),
            cause,
        };
        let (server, base) = split_url(&url).map_err(|error| bad(error_chain(&error)))?;
        let http = WorkerClient::of_server_with(&server, tls(&url, args)?, PATIENCE);
        let http = http.map_err(|error| match error {
            ServerClientError::Url(error) => bad(error_chain(&error)),
            ServerClientError::Tls(source) => RemoteError::Tls {
                url: url.clone(),
                source,
            },
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key(args)? {
            let mut key = HeaderValue::from_str(key.trim()).map_err(RemoteError::Key)?;
            key.set_sensitive(true);
            headers.insert("x-api-key", key);
        }
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            url,
            http: http.with_max_response(LONGEST),
            headers,
            is_verbose: args.verbose,
        })
    }

    /// Returns the address of the router.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Requests a page.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn get(&self, path: &str) -> Result<Value, RemoteError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Sends a body to a page, and returns the answer. Without a body, it is empty.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, RemoteError> {
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        self.send(Method::POST, path, body).await
    }

    /// Opens an event stream.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub async fn stream(&self, path: &str) -> Result<EventStream, RemoteError> {
        let (target, began) = (format!("{}{path}", self.base), Instant::now());
        let mut headers = self.headers.clone();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let opened = self.http.open(&target, headers).await;
        let opened = opened.map_err(|error| self.failed(path, error));
        let status = opened.as_ref().map(|response| response.status());
        self.report(&Method::GET, path, status.ok(), began);
        let (head, body) = opened?.into_parts();
        let url = format!("{}{path}", self.url);
        if head.status.is_success() {
            return Ok(EventStream::new(url, body));
        }
        let page = read_body(body, LONGEST, PATIENCE).await;
        Err(self.refused(head.status, &page.unwrap_or_default()))
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Value, RemoteError> {
        let (target, began) = (format!("{}{path}", self.base), Instant::now());
        let reply = self
            .http
            .send(method.clone(), &target, self.headers.clone(), body);
        let reply = reply.await.map_err(|error| self.failed(path, error));
        let status = reply.as_ref().map(|reply| reply.status);
        self.report(&method, path, status.ok(), began);
        let reply = reply?;
        if !reply.status.is_success() {
            return Err(self.refused(reply.status, &reply.body));
        }
        let page = serde_json::from_slice(&reply.body).map_err(|error| RemoteError::Answer {
            url: format!("{}{path}", self.url),
            cause: error.to_string(),
        })?;
        Ok(printable(page))
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> RemoteError {
        let page: Value = serde_json::from_slice(body).map(printable).unwrap_or_default();
        let message = page["error"]["message"].as_str();
        RemoteError::Refused {
            router: self.url.clone(),
            status,
            message: message.unwrap_or("it reports no details").to_owned(),
            page: Box::new(page),
        }
    }

    fn failed(&self, path: &str, error: WorkerClientError) -> RemoteError {
        let (cause, fix) = match error {
            WorkerClientError::Timeout { limit, .. } => {
                let url = format!("{}{path}", self.url);
                return RemoteError::Timeout { url, limit };
            }
            WorkerClientError::Forward { source, .. } => match source.downcast_ref::<SendError>() {
                Some(SendError::Connect(error @ ConnectError::Tls { .. })) => trust(error),
                Some(SendError::Connect(error)) => (error_chain(error), RUNS),
                Some(error @ SendError::BadAnswer(_)) if self.url.starts_with("http://") => {
                    (cause(error), SECURE)
                }
                Some(error) => (cause(error), ADDRESS),
                None => (error_chain(&*source), ADDRESS),
            },
            other => (error_chain(&other), ADDRESS),
        };
        RemoteError::Unreachable {
            url: self.url.clone(),
            cause,
            fix,
        }
    }

    fn report(&self, method: &Method, path: &str, status: Option<StatusCode>, began: Instant) {
        if self.is_verbose {
            let status = status.map_or_else(|| "no answer".to_owned(), |status| status.as_u16().to_string());
            let took = crate::units::time(began.elapsed());
            eprintln!("{method} {}{path}: {status} after {took}", self.url);
        }
    }
}

/// Returns the cause of a failed TLS handshake, and its cure.
fn trust(error: &ConnectError) -> (String, &'static str) {
    let cause = error_chain(error);
    let fix = match error.is_of_authority() {
        true => NOT_A_SERVER,
        false => TRUST,
    };
    (cause, fix)
}

/// Returns the cause of a request without an answer. The texts of [`SendError`] speak of a worker.
fn cause(error: &SendError) -> String {
    match error {
        SendError::Connect(error) => error_chain(error),
        SendError::Closed(_) | SendError::KeptClosed(_) => {
            "it closed the connection without an answer".to_owned()
        }
        SendError::FirstByteTimeout(limit) => format!("no answer within {limit:?}"),
        SendError::BadAnswer(error) => format!("its answer is not HTTP: {}", error_chain(error)),
        SendError::UnexpectedUpgrade | SendError::TwoFramings => "its answer is not valid HTTP".to_owned(),
    }
}

/// Returns the TLS settings of the arguments. `None` means the system's authorities.
fn tls(url: &str, args: &RouterArgs) -> Result<Option<Arc<WorkerTls>>, RemoteError> {
    let read = |flag, path: &Option<PathBuf>| {
        let read = path.as_ref().map(|path| {
            std::fs::read(path).map_err(|source| RemoteError::TlsFile {
                flag,
                path: path.clone(),
                source,
            })
        });
        read.transpose()
    };
    let authorities = read("--admin-ca", &args.admin_ca)?;
    let identity = read("--admin-cert", &args.admin_cert)?;
    if authorities.is_none() && identity.is_none() {
        return Ok(None);
    }
    let tls = WorkerTls::new(WorkerTlsParts {
        authorities: authorities.as_deref(),
        // One file has both.
        identity: identity.as_deref().map(|pem| (pem, pem)),
        server_name: None,
    });
    let tls = tls.map_err(|source| RemoteError::Tls {
        url: url.to_owned(),
        source,
    })?;
    Ok(Some(Arc::new(tls)))
}

/// Returns the admin key of the arguments, or that of the environment.
fn key(args: &RouterArgs) -> Result<Option<String>, RemoteError> {
    let key = match &args.admin_key_file {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            Some(read.map_err(|source| RemoteError::KeyFile {
                path: path.clone(),
                source,
            })?)
        }
        None => std::env::var(ADMIN_API_KEY).ok(),
    };
    Ok(key.filter(|key| !key.trim().is_empty()))
}

/// Splits a URL into its server, `http://host:port`, and its path with the query.
fn split_url(url: &str) -> Result<(String, String), http::Error> {
    let mut parts: Parts = url.parse::<Uri>()?.into_parts();
    let target = parts.path_and_query.replace(PathAndQuery::from_static("/"));
    let server = Uri::from_parts(parts)?.to_string();
    Ok((
        server,
        target.map_or_else(String::new, |target| target.to_string()),
    ))
}

/// Escapes a text for the path or the query of a URL (RFC 3986, section 2.3).
#[must_use]
pub fn in_a_path(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_behind_its_port() {
        let (server, target) = split_url("http://127.0.0.1:9/base/admin?x=1").unwrap();
        assert_eq!((&*server, &*target), ("http://127.0.0.1:9/", "/base/admin?x=1"));
        assert!(split_url("127.0.0.1 9").is_err());
    }

    #[test]
    fn an_id_of_any_characters_is_one_part_of_a_path() {
        assert_eq!(in_a_path("req-1._~"), "req-1._~");
        assert_eq!(in_a_path("a/b?ä"), "a%2Fb%3F%C3%A4");
    }

    #[tokio::test]
    async fn a_router_that_does_not_run_is_named_with_cause_and_cure() {
        // The port is bound without a listener: it stays taken, and refuses.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let client = AdminClient::new(url.clone(), &RouterArgs::default()).unwrap();
        let error = client.get("/status").await.unwrap_err();
        let words = error.to_string();
        assert!(error.is_away(), "{words}");
        for part in [&*url, "refused", "admin-listen", "CONDUCTOR_ADMIN"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }

    #[test]
    fn a_malformed_address_is_an_error_with_an_example() {
        let error = AdminClient::new("http://a b".to_owned(), &RouterArgs::default()).unwrap_err();
        assert!(error.to_string().contains("http://127.0.0.1:8081"), "{error}");
    }
}
