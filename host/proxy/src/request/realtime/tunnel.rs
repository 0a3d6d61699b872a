//! Tunnel of a switched connection: relays bytes both ways, until one side ends it, both are idle for too long, or the
//! router stops.

use std::error::Error;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use worker_client::UpgradedStream;

use super::flow::{Flow, Progress, PumpError};
use super::metrics::TunnelMetrics;
use crate::base::label::{FailureKind, Outcome};
use crate::base::request_id::RequestId;
use crate::dispatch::load_guard::LoadGuard;
use crate::request::lifecycle::RequestLifecycle;

/// Worker's side of a connection that was switched, and what lasts as long as it.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(super) worker: UpgradedStream,
    pub(super) lifecycle: Box<RequestLifecycle>,
    pub(super) lease: LoadGuard,
    /// Index into the pool's members.
    pub(super) member: usize,
    /// Longest silence of both sides.
    pub(super) idle: Duration,
    /// Deadline of the whole request.
    pub(super) deadline: Option<Instant>,
}

/// Holder of a tunnel in the extensions of the answer that switches protocols.
#[derive(Debug, Clone)]
pub(crate) struct TunnelSlot(Arc<Mutex<Option<Tunnel>>>);

/// Tunnel of a client's connection, once an answer on it switches protocols.
#[derive(Debug, Default)]
pub(crate) struct OpenedTunnel {
    /// On the heap: every connection would reserve its size.
    tunnel: Mutex<Option<Box<JoinedTunnel>>>,
    /// `true` once there is a tunnel: the connection's bytes are no requests any more.
    is_switched: Arc<AtomicBool>,
}

/// Tunnel with the client's side and its metrics.
#[derive(Debug)]
struct JoinedTunnel {
    tunnel: Tunnel,
    client: OnUpgrade,
    metrics: TunnelMetrics,
}

/// Side of a tunnel that broke off.
#[derive(Debug)]
enum Broken {
    Client(io::Error),
    Worker(io::Error),
}

impl TunnelSlot {
    pub(super) fn of(tunnel: Tunnel) -> Self {
        Self(Arc::new(Mutex::new(Some(tunnel))))
    }

    fn take(&self) -> Option<Tunnel> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl OpenedTunnel {
    /// Joins the worker's side and the client's.
    pub(crate) fn fill(&self, worker: &TunnelSlot, client: OnUpgrade, metrics: TunnelMetrics) {
        let tunnel = worker.take().map(|tunnel| {
            Box::new(JoinedTunnel {
                tunnel,
                client,
                metrics,
            })
        });
        self.is_switched.store(tunnel.is_some(), Ordering::Release);
        *self.lock() = tunnel;
    }

    /// Returns whether the connection is switched, for a reader of its bytes.
    pub(crate) fn switched(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_switched)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<JoinedTunnel>>> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the tunnel to its end, where there is one. `cut` ends it at once.
    pub(crate) async fn run(&self, cut: CancellationToken) {
        let opened = self.lock().take();
        if let Some(joined) = opened {
            let JoinedTunnel {
                tunnel,
                client,
                metrics,
            } = *joined;
            tunnel.run(client, cut, &metrics).await;
        }
    }

    /// Returns `true` if there is a tunnel to run.
    pub(crate) fn is_there(&self) -> bool {
        self.lock().is_some()
    }
}

impl Tunnel {
    async fn run(mut self, client: OnUpgrade, cut: CancellationToken, metrics: &TunnelMetrics) {
        let _open = metrics.opened();
        // There is no prompt to wait for.
        self.lease.take_for_computed();
        let outcome = match client.await {
            Ok(client) => self.relay(TokioIo::new(client), cut, metrics).await,
            Err(error) => {
                let error = &error as &dyn Error;
                debug!(error, "a client left before its connection was switched");
                Outcome::ClientLeft
            }
        };
        match outcome {
            Outcome::Complete => self.lease.finished(),
            Outcome::UpstreamError => self.lease.failed(),
            _ => {}
        }
        self.lifecycle.finish(outcome);
    }

    async fn relay(
        &mut self,
        client: impl AsyncRead + AsyncWrite,
        cut: CancellationToken,
        metrics: &TunnelMetrics,
    ) -> Outcome {
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let (ahead, stream) = self.worker.parts();
        let (mut from_worker, mut to_worker) = tokio::io::split(stream);
        let progress = Progress::new();
        let up = async {
            let flow = Flow::new(&progress, &metrics.sent);
            flow.pump(&mut from_client, &mut to_worker).await?;
            progress.end(Outcome::ClientLeft);
            // Where this fails, the other direction shows why.
            let _ = to_worker.shutdown().await;
            Ok(())
        };
        let down = async {
            let flow = Flow::new(&progress, &metrics.received);
            flow.write(&mut to_client, &ahead)
                .await
                .map_err(PumpError::Write)?;
            flow.pump(&mut from_worker, &mut to_client).await?;
            progress.end(Outcome::Complete);
            let _ = to_client.shutdown().await;
            Ok(())
        };
        let both = async {
            let up = async { up.await.map_err(Broken::upwards) };
            let down = async { down.await.map_err(Broken::downwards) };
            tokio::try_join!(up, down)
        };
        tokio::select! {
            ended = both => match (progress.first(), ended) {
                (Some(first), _) => first,
                (None, Err(broken)) => self.broken(&broken),
                (None, Ok(_)) => Outcome::Complete,
            },
            first = progress.over() => first,
            () = progress.silent(self.idle) => Outcome::IdleTimeout,
            () = until(self.deadline) => Outcome::RequestTimeout,
            () = cut.cancelled() => Outcome::ShutDown,
        }
    }

    /// Reports the side that broke off.
    fn broken(&self, broken: &Broken) -> Outcome {
        let id = RequestId(self.lifecycle.id());
        match broken {
            Broken::Client(error) => {
                let error = error as &dyn Error;
                debug!(request = %id, error, "a client broke off its WebSocket");
                Outcome::ClientLeft
            }
            Broken::Worker(error) => {
                let member = self.lifecycle.member(self.member);
                member.link.metrics.failed(FailureKind::BrokenOff);
                if let Some(held_back) = member.link.failure_log.pass() {
                    let (worker, error) = (&*member.worker.spec().name, error as &dyn Error);
                    warn!(worker, request = %id, error, held_back, "a worker broke off a WebSocket");
                }
                Outcome::UpstreamError
            }
        }
    }
}

impl Broken {
    fn upwards(error: PumpError) -> Self {
        match error {
            PumpError::Read(error) => Self::Client(error),
            PumpError::Write(error) => Self::Worker(error),
        }
    }

    fn downwards(error: PumpError) -> Self {
        match error {
            PumpError::Read(error) => Self::Worker(error),
            PumpError::Write(error) => Self::Client(error),
        }
    }
}

/// Waits for a request's deadline. Never resolves where there is none.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}
