//! Listener: accepts connections, or refuses and closes them on command.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::gate::{Change, Gate};
use crate::serving::body::HttpResult;
use crate::serving::context::Context;
use crate::serving::realtime::ConversationSlot;
use crate::serving::{bootstrap, routes};
use crate::transfer::TransferEndpoint;

/// Further connections are closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// Connections that the system may queue.
const BACKLOG: u32 = 1024;
/// Pause before the next attempt if the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Service of a listener.
#[derive(Debug, Clone)]
pub(crate) enum ListenerService {
    /// The engine itself.
    Engine(Arc<Context>),
    /// Bootstrap server.
    Bootstrap(Arc<TransferEndpoint>),
}

impl ListenerService {
    async fn answer(self, request: Request<Incoming>) -> HttpResult {
        match self {
            Self::Engine(context) => routes::answer(context, request).await,
            Self::Bootstrap(side) => bootstrap::answer(&side, &request),
        }
    }
}

/// The accepting side.
#[derive(Debug)]
pub(crate) struct Listening {
    site: ListenerService,
    gate: Arc<Gate>,
    changes: mpsc::Receiver<Change>,
    address: SocketAddr,
    tasks: TaskTracker,
}

impl Listening {
    pub(crate) fn new(
        site: ListenerService,
        gate: Arc<Gate>,
        changes: mpsc::Receiver<Change>,
        address: SocketAddr,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            site,
            gate,
            changes,
            address,
            tasks,
        }
    }

    /// Runs until the gate's token is cancelled.
    pub(crate) async fn run(mut self, listener: TcpListener) {
        let stop = self.gate.stop.clone();
        stop.run_until_cancelled(self.open_and_closed(listener)).await;
    }

    async fn open_and_closed(&mut self, mut listener: TcpListener) {
        loop {
            let Some(closed) = self.accept_until_closed(&listener).await else {
                return;
            };
            drop(listener);
            self.gate.close_connections();
            match self.refuse_until_opened(closed).await {
                Ok(Some(reopened)) => listener = reopened,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(address = %self.address, error = &error as &dyn Error, "the mock engine lost its port");
                    return;
                }
            }
        }
    }

    /// Returns the sender to notify once the listener is closed; `None` if no further command can come.
    async fn accept_until_closed(&mut self, listener: &TcpListener) -> Option<oneshot::Sender<()>> {
        loop {
            tokio::select! {
                change = self.changes.recv() => match change? {
                    (false, done) => return Some(done),
                    (true, done) => _ = done.send(()),
                },
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream),
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn Error, "the mock engine failed to accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    /// Keeps the port without listening: connections are refused.
    async fn refuse_until_opened(
        &mut self,
        closed: oneshot::Sender<()>,
    ) -> std::io::Result<Option<TcpListener>> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        let _ = closed.send(());
        while let Some((open, done)) = self.changes.recv().await {
            if open {
                let listener = socket.listen(BACKLOG)?;
                let _ = done.send(());
                return Ok(Some(listener));
            }
            let _ = done.send(());
        }
        Ok(None)
    }

    fn serve(&self, stream: TcpStream) {
        if self.tasks.len() >= MAX_CONNECTIONS {
            return;
        }
        let closed = self.gate.connection();
        let site = self.site.clone();
        self.tasks.spawn(async move {
            closed.run_until_cancelled(serve_connection(stream, site)).await;
        });
    }
}

async fn serve_connection(stream: TcpStream, site: ListenerService) {
    // A failure only delays tokens.
    let _ = stream.set_nodelay(true);
    let opened = ConversationSlot::default();
    let service = service_fn(|request| async {
        let mut answer = site.clone().answer(request).await?;
        if let Some(conversation) = answer.extensions_mut().remove::<ConversationSlot>() {
            opened.fill(&conversation);
        }
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(
            error = &error as &dyn Error,
            "a connection to the mock engine broke off"
        );
    }
    // Runs in the connection's own task, and ends with it.
    if let Some(conversation) = opened.take() {
        conversation.run().await;
    }
}
