//! Small scripted worker that records its requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Body that may break off.
pub(crate) type WorkerBody = BoxBody<Bytes, BrokenOff>;

#[derive(Debug)]
pub(crate) struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off")
    }
}

impl std::error::Error for BrokenOff {}

/// Response extension: the connection is closed instead of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HangUp;

impl std::fmt::Display for HangUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hung up")
    }
}

impl std::error::Error for HangUp {}

/// Received request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Received {
    /// Returns `true` if it has this key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        let value = self.headers.get("authorization");
        value.is_some_and(|value| value == format!("Bearer {key}").as_str())
    }
}

type Script = Arc<dyn Fn(Received) -> BoxFuture<'static, Response<WorkerBody>> + Send + Sync>;

pub(crate) struct Worker {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    /// Responses in progress, from the request's arrival until the body was sent or dropped.
    busy: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Worker {
    pub(crate) async fn start<F>(script: impl Fn(Received) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<WorkerBody>> + Send + 'static,
    {
        Self::run(script, Wire::Http1 { keep_alive: true }).await
    }

    /// Starts a worker that closes every connection after its first response, without announcing that.
    pub(crate) async fn start_closing<F>(script: impl Fn(Received) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Response<WorkerBody>> + Send + 'static,
    {
        Self::run(script, Wire::Http1 { keep_alive: false }).await
    }

    /// Starts a worker that speaks HTTP/2 only, behind TLS or with prior knowledge.
    pub(crate) async fn start_http2<F>(
        tls: Option<TlsAcceptor>,
        script: impl Fn(Received) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<WorkerBody>> + Send + 'static,
    {
        Self::run(script, Wire::Http2 { tls }).await
    }

    async fn run<F>(script: impl Fn(Received) -> F + Send + Sync + 'static, wire: Wire) -> Self
    where
        F: Future<Output = Response<WorkerBody>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, busy) = (Arc::default(), Arc::<AtomicUsize>::default());
        let connections = Arc::<AtomicUsize>::default();
        let script: Script = Arc::new(move |request| script(request).boxed());
        let mut tasks = JoinSet::new();
        let scene = Scene {
            script,
            received: Arc::clone(&received),
            busy: Arc::clone(&busy),
        };
        tasks.spawn(accept(listener, scene, Arc::clone(&connections), wire));
        Self {
            address,
            received,
            busy,
            connections,
            _tasks: tasks,
        }
    }

    /// Starts a worker that answers 200 with its name.
    pub(crate) async fn named(name: &'static str) -> Self {
        Self::start(move |_| async move { json(200, name) }).await
    }

    /// Returns a URL without a listener.
    pub(crate) fn unreachable() -> String {
        format!("http://{}", kept_address())
    }

    /// Starts a worker that accepts connections and requests, and hangs up on them.
    pub(crate) async fn hanging_up() -> Self {
        Self::writing_bytes(b"").await
    }

    async fn writing_bytes(words: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut some = [0; 64];
                if stream.peek(&mut some).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, Ordering::SeqCst);
                }
                let _ = stream.try_read(&mut some);
                let _ = stream.try_write(words);
            }
        });
        Self {
            address,
            received: Arc::default(),
            busy: Arc::default(),
            connections,
            _tasks: tasks,
        }
    }

    /// Starts a worker that answers the first request on each connection with bytes that are not HTTP.
    pub(crate) async fn babbling() -> Self {
        Self::writing_bytes(b"what?\r\n\r\n").await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.received()
            .iter()
            .map(|request| request.uri.path().to_owned())
            .collect()
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    /// Returns the connections that carried any data; the router's connection checks carry none.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Returns an address that refuses connections until its test listens on it. A socket keeps the port until the process
/// ends, so that no other test listens there.
pub(crate) fn kept_address() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    // Else the test itself could not listen on it.
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    Box::leak(Box::new(socket)).local_addr().unwrap()
}

/// Worker that is reachable until it leaves; then its URL has no listener.
pub(crate) struct Leaving {
    pub(crate) url: String,
    listening: JoinSet<()>,
}

impl Leaving {
    pub(crate) async fn start() -> Self {
        let address = kept_address();
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{address}");
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            loop {
                drop(listener.accept().await);
            }
        });
        Self { url, listening }
    }

    /// Closes the listener.
    pub(crate) async fn leave(mut self) {
        self.listening.shutdown().await;
    }
}

/// Transport of a worker's connections.
#[derive(Clone)]
enum Wire {
    Http1 { keep_alive: bool },
    Http2 { tls: Option<TlsAcceptor> },
}

#[derive(Clone)]
struct Scene {
    script: Script,
    received: Arc<Mutex<Vec<Received>>>,
    busy: Arc<AtomicUsize>,
}

struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, scene: Scene, connections: Arc<AtomicUsize>, wire: Wire) {
    let mut tasks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let (scene, connections, wire) = (scene.clone(), Arc::clone(&connections), wire.clone());
        tasks.spawn(async move {
            if stream.peek(&mut [0]).await.is_ok_and(|read| read > 0) {
                connections.fetch_add(1, Ordering::SeqCst);
            }
            let done = Arc::new(tokio::sync::Notify::new());
            let signal = Arc::clone(&done);
            let service = service_fn(move |request| {
                let (scene, signal) = (scene.clone(), Arc::clone(&signal));
                async move {
                    let response = answer(scene, request, signal).await;
                    match response.extensions().get() {
                        Some(HangUp) => Err(HangUp),
                        None => Ok(response),
                    }
                }
            });
            let keep_alive = match wire {
                Wire::Http1 { keep_alive } => keep_alive,
                Wire::Http2 { tls: None } => {
                    let builder = http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    return;
                }
                Wire::Http2 { tls: Some(tls) } => {
                    let Ok(stream) = tls.accept(stream).await else {
                        return;
                    };
                    let builder = http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    return;
                }
            };
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            if keep_alive {
                let _ = connection.await;
            } else {
                let mut connection = std::pin::pin!(connection);
                tokio::select! {
                    _ = connection.as_mut() => {}
                    () = done.notified() => {
                        // The response is handed over; a few more polls send it.
                        let _ = tokio::time::timeout(std::time::Duration::from_millis(20), connection).await;
                    }
                }
            }
        });
    }
}

async fn answer(
    scene: Scene,
    request: Request<Incoming>,
    done: Arc<tokio::sync::Notify>,
) -> Response<WorkerBody> {
    scene.busy.fetch_add(1, Ordering::SeqCst);
    let busy = Busy(Arc::clone(&scene.busy));
    let (head, body) = request.into_parts();
    let received = Received {
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    };
    scene.received.lock().unwrap().push(received.clone());
    let response = (scene.script)(received).await;
    done.notify_one();
    response.map(|body| {
        BodyExt::boxed(body.map_frame(move |frame| {
            let _ = &busy;
            frame
        }))
    })
}

pub(crate) fn whole(status: u16, content_type: &str, body: impl Into<Bytes>) -> Response<WorkerBody> {
    let body = body.into();
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .header("content-length", body.len())
        .body(Full::new(body).map_err(|never| match never {}).boxed())
        .unwrap()
}

pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> Response<WorkerBody> {
    whole(status, "application/json", body)
}

/// Sender of a response's pieces. The response ends when all senders are dropped.
pub(crate) type Pen = mpsc::Sender<Result<Bytes, BrokenOff>>;

/// Creates a response written piece by piece.
pub(crate) fn written(content_type: &str) -> (Pen, Response<WorkerBody>) {
    let (pen, paper) = mpsc::channel::<Result<Bytes, BrokenOff>>(16);
    let pieces = stream::unfold(paper, async |mut paper| Some((paper.recv().await?, paper)));
    let body = StreamBody::new(pieces.map(|piece| piece.map(Frame::data)));
    let response = Response::builder()
        .header("content-type", content_type)
        .body(BodyExt::boxed(body))
        .unwrap();
    (pen, response)
}

/// Returns `true` if the worker has written everything that the pen sent.
pub(crate) fn is_taken(pen: &Pen) -> bool {
    pen.capacity() == pen.max_capacity()
}

/// Starts a worker that streams events, with the pen of each response.
pub(crate) async fn streaming() -> (Worker, mpsc::Receiver<Pen>) {
    writing("text/event-stream; charset=utf-8").await
}

/// Starts a worker whose responses are written by the test.
pub(crate) async fn writing(content_type: &'static str) -> (Worker, mpsc::Receiver<Pen>) {
    let (pens, taken) = mpsc::channel(16);
    let worker = Worker::start(move |_| {
        let pens = pens.clone();
        async move {
            let (pen, response) = written(content_type);
            pens.send(pen).await.unwrap();
            response
        }
    })
    .await;
    (worker, taken)
}

/// Sender of the response to a waiting request.
pub(crate) type ResponseSender = oneshot::Sender<Response<WorkerBody>>;

/// Starts a worker whose whole responses are given by the test. A request without one is never answered.
pub(crate) async fn answered_by_hand() -> (Worker, mpsc::Receiver<ResponseSender>) {
    let (arrivals, answers) = mpsc::channel(16);
    let worker = Worker::start(move |_| {
        let arrivals = arrivals.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            arrivals.send(answer).await.unwrap();
            match answered.await {
                Ok(response) => response,
                Err(_) => std::future::pending().await,
            }
        }
    })
    .await;
    (worker, answers)
}

/// Starts a worker with a tokenizer that accepts one prompt.
pub(crate) async fn tokenizing() -> Worker {
    Worker::start(|request| async move {
        if request.uri.path() == "/tokenize" {
            json(
                200,
                r#"{"count":9,"max_model_len":512,"tokens":[1,2,3,4,5,6,7,8,9]}"#,
            )
        } else {
            json(200, "a")
        }
    })
    .await
}
