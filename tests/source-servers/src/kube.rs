//! API server of Kubernetes with one list of objects: pages, watches, bookmarks, expired versions and cut streams.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use serde_json::{Value, json};

use crate::http::{ServedRequest, ServedStream, TlsCell, reply, serve};

/// Objects of a page, below what a client requests, so that lists have several pages.
const PAGE: usize = 10;
/// Interval at which a watch looks for the end of its client.
const LOOK: Duration = Duration::from_millis(200);

/// API server on a port of its own. Every path has the same objects.
#[derive(Debug)]
pub struct KubeApi {
    address: SocketAddr,
    tls: TlsCell,
    shared: Arc<KubeShared>,
}

#[derive(Debug, Default)]
struct KubeShared {
    state: Mutex<KubeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct KubeState {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Lines of the watch with their versions, in order.
    events: Vec<(u64, String)>,
    /// Versions below this one have expired.
    oldest: u64,
    token: Option<String>,
    failure: Option<u16>,
    /// Lists that are empty by mistake.
    empty_lists: usize,
    /// Set if the next line is cut in its middle.
    cuts_line: bool,
    /// Largest version whose line was sent.
    sent: u64,
    /// Number of times that all watches were ended.
    ended: usize,
    paths: Vec<String>,
    lists: usize,
    watches: usize,
}

impl KubeApi {
    /// Starts a server without objects.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::<KubeShared>::default();
        let served = Arc::clone(&shared);
        let tls = TlsCell::default();
        let address = serve(Arc::clone(&tls), move |request, stream| {
            served.answer(request, stream)
        })?;
        Ok(Self { address, tls, shared })
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        let scheme = if tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Speaks TLS from the next connection on, and ends the watches.
    pub fn secure(&self, tls: ServerConfig) {
        *self.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(tls));
        self.end_watches();
    }

    /// Adds or changes an object.
    pub fn put(&self, mut object: Value) {
        self.change(|state| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            let before = state.objects.insert(name, object.clone());
            let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
            json!({ "type": kind, "object": object })
        });
    }

    /// Removes an object.
    pub fn delete(&self, name: &str) {
        self.change(|state| {
            let mut object = state.objects.remove(name).unwrap_or_default();
            object["metadata"]["resourceVersion"] = json!(state.version.to_string());
            json!({ "type": "DELETED", "object": object })
        });
    }

    /// Sends a bookmark with a new version.
    pub fn bookmark(&self) {
        self.change(|state| {
            let metadata = json!({ "resourceVersion": state.version.to_string() });
            json!({ "type": "BOOKMARK", "object": { "metadata": metadata } })
        });
    }

    /// Sends the last line again.
    pub fn repeat_last(&self) {
        let mut state = self.shared.lock();
        if let Some((_, line)) = state.events.last().cloned() {
            state.version += 1;
            let version = state.version;
            state.events.push((version, line));
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Forgets all versions up to now, and ends the watches with 410 Gone.
    pub fn expire(&self) {
        self.change(|state| {
            state.oldest = state.version;
            json!({ "type": "ERROR", "object": { "kind": "Status", "code": 410, "message": "too old" } })
        });
    }

    /// Cuts the next line in its middle.
    pub fn cut_next_line(&self) {
        self.shared.lock().cuts_line = true;
    }

    /// Ends all watches.
    pub fn end_watches(&self) {
        self.shared.lock().ended += 1;
        self.shared.changed.notify_all();
    }

    /// Requires this token from now on, and ends the watches.
    pub fn require(&self, token: &str) {
        self.shared.lock().token = Some(token.to_owned());
        self.end_watches();
    }

    /// Answers every request with this status, and ends the watches.
    pub fn fail_with(&self, status: Option<u16>) {
        self.shared.lock().failure = status;
        self.end_watches();
    }

    /// Answers the next lists without objects, by mistake.
    pub fn empty_lists(&self, count: usize) {
        self.shared.lock().empty_lists = count;
    }

    /// Returns the numbers of lists and of watches so far.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.lists, state.watches)
    }

    /// Returns the paths with their queries so far.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        self.shared.lock().paths.clone()
    }

    /// Returns the largest version whose line a watch has sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.shared.lock().sent
    }

    /// Makes a change under a new version, and sends its line.
    fn change(&self, make: impl FnOnce(&mut KubeState) -> Value) {
        let mut state = self.shared.lock();
        state.version += 1;
        let line = make(&mut state).to_string();
        let version = state.version;
        state.events.push((version, line));
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl KubeShared {
    fn lock(&self) -> MutexGuard<'_, KubeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &ServedRequest, stream: &mut ServedStream) -> io::Result<bool> {
        let is_watch = request.parameter("watch").is_some();
        let (refused, ended) = {
            let mut state = self.lock();
            state.paths.push(format!("{}?{}", request.path, request.query));
            match is_watch {
                true => state.watches += 1,
                false => state.lists += 1,
            }
            let expected = state.token.as_ref().map(|token| format!("Bearer {token}"));
            let is_known = expected.is_none() || expected == request.authorization;
            let refused = state.failure.or((!is_known).then_some(401));
            (refused, state.ended)
        };
        if let Some(status) = refused {
            return reply(stream, status, r#"{"kind": "Status"}"#);
        }
        match is_watch {
            true => self.watch(request, stream, ended).map(|()| false),
            false => self.list(request, stream),
        }
    }

    fn list(&self, request: &ServedRequest, stream: &mut ServedStream) -> io::Result<bool> {
        let page = {
            let mut state = self.lock();
            let from = request
                .parameter("continue")
                .and_then(|token| token.parse().ok())
                .unwrap_or(0);
            let is_empty = state.empty_lists > 0;
            state.empty_lists = state.empty_lists.saturating_sub(1);
            let objects: Vec<&Value> = match is_empty {
                true => Vec::new(),
                false => state.objects.values().collect(),
            };
            let items: Vec<&&Value> = objects.iter().skip(from).take(PAGE).collect();
            let next = from + PAGE;
            let next = (next < objects.len()).then(|| next.to_string());
            let metadata = json!({ "resourceVersion": state.version.to_string(), "continue": next });
            json!({ "kind": "List", "metadata": metadata, "items": items }).to_string()
        };
        reply(stream, 200, &page)
    }

    /// Sends the events since a version, until the watches that were open at `ended` are ended.
    fn watch(&self, request: &ServedRequest, stream: &mut ServedStream, ended: usize) -> io::Result<()> {
        let from = request
            .parameter("resourceVersion")
            .and_then(|version| version.parse().ok());
        let mut from: u64 = from.unwrap_or(0);
        if from < self.lock().oldest {
            reply(stream, 410, r#"{"kind": "Status", "code": 410}"#)?;
            return Ok(());
        }
        write!(stream, "HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n")?;
        stream.set_nodelay()?;
        stream.flush()?;
        loop {
            let mut state = self.lock();
            let next = |state: &KubeState| state.events.iter().find(|(version, _)| *version > from).cloned();
            while next(&state).is_none() && state.ended == ended {
                let waited = self.changed.wait_timeout(state, LOOK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.ended != ended {
                stream.write_all(b"0\r\n\r\n")?;
                return Ok(());
            }
            let Some((version, line)) = next(&state) else {
                continue;
            };
            let is_cut = std::mem::take(&mut state.cuts_line);
            drop(state);
            if is_cut {
                chunk(stream, &line[..line.len() / 2])?;
                return stream.cut();
            }
            chunk(stream, &format!("{line}\n"))?;
            from = version;
            let mut state = self.lock();
            state.sent = state.sent.max(version);
        }
    }
}

fn chunk(stream: &mut ServedStream, text: &str) -> io::Result<()> {
    write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
    stream.flush()
}

/// Returns an EndpointSlice of ready endpoints at one port.
#[must_use]
pub fn endpoint_slice(name: &str, addresses: &[&str], port: u16) -> Value {
    let endpoint = |address: &&str| json!({ "addresses": [address], "conditions": { "ready": true, "serving": true, "terminating": false } });
    json!({
        "metadata": { "name": name },
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
    })
}

/// Returns a ready pod with a container at one port.
#[must_use]
pub fn pod(name: &str, address: &str, port: u16) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "ports": [{ "name": "http", "containerPort": port }] }] },
        "status": { "podIP": address, "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
