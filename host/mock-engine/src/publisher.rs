//! Event publisher: numbers, keeps and sends batches with a PUB socket and a ROUTER for replays. One OS thread runs
//! both, because a ZMQ socket belongs to one thread at a time. Other parts pass batches without waiting. Messages
//! follow vLLM's `ZmqEventPublisher`.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use thiserror::Error;

use crate::config::MockConfig;
use crate::event::CacheEvent;
use crate::fault_script::{BatchLoss, FaultScript};
use crate::journal::{Journal, replay_start};

/// Most queued batches; more are dropped with a warning, as in vLLM's bounded queue.
const QUEUE: usize = 10_000;
/// Messages queued for a slow subscriber before some are lost: vLLM's default `hwm`.
const SUBSCRIBER_LAG: i32 = 100_000;
const WAKE: &str = "inproc://wake";

/// Error of creating the sockets.
#[derive(Debug, Error)]
pub enum PublisherError {
    /// A socket cannot be created or configured.
    #[error("set up a ZMQ socket")]
    Socket(#[source] zmq::Error),
    /// The port is not available.
    #[error("bind the ZMQ socket `{endpoint}`")]
    Bind {
        /// The endpoint.
        endpoint: String,
        /// The cause.
        #[source]
        source: zmq::Error,
    },
    /// The thread cannot be started.
    #[error("start the publisher thread")]
    Thread(#[source] std::io::Error),
}

/// The engine's side of the thread.
pub(crate) struct Publisher {
    enabled: bool,
    orders: SyncSender<Order>,
    /// Wakes the thread for an order.
    wake: Mutex<Option<zmq::Socket>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    batches: AtomicU64,
    faults: Arc<FaultScript>,
    events: String,
    replay: String,
}

enum Order {
    /// A batch, and its loss if any.
    Publish(Vec<CacheEvent>, Option<BatchLoss>),
    Restart,
    Stop,
}

impl Publisher {
    /// Binds both sockets and starts the thread.
    pub(crate) fn start(config: &MockConfig, faults: Arc<FaultScript>) -> Result<Self, PublisherError> {
        let context = zmq::Context::new();
        let socket = |kind| context.socket(kind).map_err(PublisherError::Socket);
        let (events, replay) = (socket(zmq::PUB)?, socket(zmq::ROUTER)?);
        let (wake, woken) = (socket(zmq::PUSH)?, socket(zmq::PULL)?);
        let replay_lag = i32::try_from(config.replay_batches).map_or(i32::MAX, |kept| kept.saturating_add(2));
        for (socket, lag) in [(&events, SUBSCRIBER_LAG), (&replay, replay_lag)] {
            socket.set_sndhwm(lag).map_err(PublisherError::Socket)?;
        }
        for socket in [&events, &replay, &wake, &woken] {
            socket.set_linger(0).map_err(PublisherError::Socket)?;
        }
        bind(&woken, WAKE)?;
        wake.connect(WAKE).map_err(PublisherError::Socket)?;
        let (orders, queue) = sync_channel(QUEUE);
        let journal = Journal::new(config);
        let publisher = Self {
            enabled: config.publish_events,
            orders,
            wake: Mutex::new(Some(wake)),
            thread: Mutex::new(None),
            batches: AtomicU64::new(0),
            faults: Arc::clone(&faults),
            events: bind_tcp(&events, config.kv_events_port)?,
            replay: bind_tcp(&replay, config.kv_replay_port)?,
        };
        let work = PublisherThread {
            events,
            replay,
            woken,
            queue,
            journal,
            faults,
        };
        let thread = std::thread::Builder::new()
            .name("mock-engine-zmq".to_owned())
            .spawn(move || work.run())
            .map_err(PublisherError::Thread)?;
        *publisher.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(publisher)
    }

    /// Returns the endpoint of the PUB socket.
    pub(crate) fn events(&self) -> &str {
        &self.events
    }

    /// Returns the endpoint of the ROUTER socket.
    pub(crate) fn replay(&self) -> &str {
        &self.replay
    }

    /// Returns `true` if publishing is configured.
    pub(crate) fn enabled(&self) -> bool {
        self.enabled
    }

    /// Returns the number of batches so far.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Queues one batch.
    pub(crate) fn publish(&self, events: Vec<CacheEvent>) {
        if self.enabled {
            self.batches.fetch_add(1, Ordering::Relaxed);
            self.order(Order::Publish(events, self.faults.next_loss()));
        }
    }

    /// Restarts the numbers and clears the replay buffer.
    pub(crate) fn restart(&self) {
        self.batches.store(0, Ordering::Relaxed);
        self.order(Order::Restart);
    }

    /// Ends the thread and frees the ports, after the batches being processed.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else {
            return;
        };
        // Not `order`: this one may wait for room in the queue. An ended thread needs no order.
        let _ = self.orders.send(Order::Stop);
        self.wake();
        if thread.join().is_err() {
            tracing::error!("the mock engine's publisher thread panicked");
        }
        // The last socket ends the context, which waits until every port is free.
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn order(&self, order: Order) {
        if self.orders.try_send(order).is_err() {
            tracing::warn!("dropped an order to the mock engine's publisher: too many wait, or it ended");
        }
        self.wake();
    }

    fn wake(&self) {
        // A full pipe means that it was woken often enough.
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = &*wake {
            let _ = socket.send(zmq::Message::new(), zmq::DONTWAIT);
        }
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher")
            .field("events", &self.events)
            .field("replay", &self.replay)
            .finish_non_exhaustive()
    }
}

fn bind(socket: &zmq::Socket, endpoint: &str) -> Result<(), PublisherError> {
    socket.bind(endpoint).map_err(|source| PublisherError::Bind {
        endpoint: endpoint.to_owned(),
        source,
    })
}

/// Binds on 127.0.0.1 and returns the endpoint with its actual port.
fn bind_tcp(socket: &zmq::Socket, port: u16) -> Result<String, PublisherError> {
    let port = if port == 0 {
        "*".to_owned()
    } else {
        port.to_string()
    };
    bind(socket, &format!("tcp://127.0.0.1:{port}"))?;
    let endpoint = socket.get_last_endpoint().map_err(PublisherError::Socket)?;
    Ok(endpoint.expect("libzmq writes endpoints in ASCII"))
}

/// State of the thread.
struct PublisherThread {
    events: zmq::Socket,
    replay: zmq::Socket,
    woken: zmq::Socket,
    queue: Receiver<Order>,
    journal: Journal,
    faults: Arc<FaultScript>,
}

impl PublisherThread {
    fn run(mut self) {
        loop {
            let mut items = [
                self.woken.as_poll_item(zmq::POLLIN),
                self.replay.as_poll_item(zmq::POLLIN),
            ];
            match zmq::poll(&mut items, -1) {
                Ok(_) | Err(zmq::Error::EINTR) => {}
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn Error,
                        "the mock engine's publisher failed to wait"
                    );
                    return;
                }
            }
            while self.woken.recv_bytes(zmq::DONTWAIT).is_ok() {}
            if self.obey().is_break() {
                return;
            }
            while let Ok(request) = self.replay.recv_multipart(zmq::DONTWAIT) {
                // Orders from before the request: the answer has their batches, and none from before a restart.
                if self.obey().is_break() {
                    return;
                }
                self.answer(&request);
            }
        }
    }

    /// Executes the queued orders. Breaks if the thread is to end.
    fn obey(&mut self) -> ControlFlow<()> {
        while let Ok(order) = self.queue.try_recv() {
            match order {
                Order::Publish(events, loss) => self.publish(&events, loss),
                Order::Restart => self.journal.restart(),
                Order::Stop => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    fn publish(&mut self, events: &[CacheEvent], loss: Option<BatchLoss>) {
        let (seq, payload) = self.journal.number(now(), events, loss);
        if loss.is_none() {
            let frames = [self.journal.topic(), &seq.to_be_bytes(), &payload];
            send(&self.events, &frames);
        }
    }

    /// Answers a request. Other forms than `[identity, "", start]` are ignored, as in vLLM.
    fn answer(&self, request: &[Vec<u8>]) {
        let [identity, _, start] = request else {
            return;
        };
        if self.faults.muted() {
            return;
        }
        for reply in self.journal.replay(replay_start(start)) {
            let mut frames: Vec<&[u8]> = vec![identity];
            frames.extend(reply.iter().map(|frame| &frame[..]));
            send(&self.replay, &frames);
        }
    }
}

fn send(socket: &zmq::Socket, frames: &[&[u8]]) {
    if let Err(error) = socket.send_multipart(frames, zmq::DONTWAIT) {
        tracing::debug!(
            error = &error as &dyn Error,
            "the mock engine could not send to a ZMQ peer"
        );
    }
}

fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
