//! The least proxy of hyper: what remains of a router without everything that makes it one. Each connection of a client
//! has one of its own to a backend, which take turns.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// Connection to a backend, to send on.
type Sender = client::SendRequest<Full<Bytes>>;

/// Serves on an address until the process ends.
///
/// # Errors
/// If the address cannot be bound, or there is no backend.
pub fn serve(listen: SocketAddr, backends: &[SocketAddr]) -> Result<Infallible> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("failed to start a runtime")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| format!("failed to listen on {listen}"))?;
        let mut backends = backends.iter().cycle();
        loop {
            let (stream, _) = listener.accept().await.context("failed to accept")?;
            let backend = *backends.next().context("there is no backend")?;
            begin(converse(stream, backend));
        }
    })
}

/// Serves a connection of a client. The bench sees what fails as failed requests.
async fn converse(stream: TcpStream, backend: SocketAddr) {
    let sender: Arc<Mutex<Option<Sender>>> = Arc::default();
    let service = service_fn(move |request| forward(request, backend, Arc::clone(&sender)));
    let _ = stream.set_nodelay(true);
    let _ = server::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Reads a body whole, as a router does that may send it again, and relays the answer.
async fn forward(
    request: Request<Incoming>,
    backend: SocketAddr,
    held: Arc<Mutex<Option<Sender>>>,
) -> Result<Response<Incoming>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let kept = held.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut sender = match kept.filter(|sender| !sender.is_closed()) {
        Some(sender) => sender,
        None => connect(backend).await?,
    };
    sender.ready().await?;
    let request = Request::from_parts(head, Full::new(body));
    let answer = sender.send_request(request).await?;
    *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    Ok(answer)
}

async fn connect(backend: SocketAddr) -> Result<Sender> {
    let stream = TcpStream::connect(backend).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    begin(async { drop(connection.await) });
    Ok(sender)
}

/// Runs a connection beside the others, until it ends by itself.
#[expect(clippy::disallowed_methods, reason = "the process ends with the bench")]
fn begin(connection: impl Future<Output = ()> + Send + 'static) {
    drop(tokio::spawn(connection));
}
