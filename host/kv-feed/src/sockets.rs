//! How the sockets are set up, and how messages are received within bounds. The only file that names socket options.

use std::sync::Arc;

use zmq::{Context, DONTWAIT, Message, SNDMORE, Socket, SocketEvent, SocketType};

use crate::spec::Endpoint;

/// Messages queued in a live socket. Beyond it libzmq drops, which shows as a gap and is replayed.
pub(crate) const LIVE_QUEUE: u16 = 10_000;
/// Messages queued of a replay: more than publishers keep (vLLM: 10,000), as they drop what does not fit.
const REPLAY_QUEUE: i32 = 100_000;
/// Larger frames close the connection.
const MAX_FRAME_BYTES: i64 = 64 << 20;
/// No message of the wire has more; further frames are read and dropped.
const MAX_FRAMES: usize = 8;
/// First and longest wait before a lost connection is tried again, doubling in between.
const RECONNECT_MS: (i32, i32) = (100, 500);
/// An attempt to connect that is not answered is given up after this, and made again.
const CONNECT_TIMEOUT_MS: i32 = 2_000;
/// A peer that does not answer pings for so long is reconnected to. Publishers are silent while idle, so only pings
/// tell a dead connection.
const HEARTBEAT_MS: (i32, i32) = (5_000, 15_000);
/// libzmq allows 1,023 sockets a context. A feed has up to four: the live one, both ends of its monitor, a replay.
const FEEDS_A_CONTEXT: usize = 250;

/// libzmq's contexts: a few for all feeds, as each has two threads of its own.
#[derive(Default)]
pub(crate) struct Contexts(Vec<Arc<Context>>);

impl Contexts {
    /// One with room for a feed. Whoever holds it counts as one.
    pub(crate) fn with_room(&mut self) -> Arc<Context> {
        // The list's own, and the feeds'.
        let has_room = |context: &&Arc<Context>| Arc::strong_count(context) <= FEEDS_A_CONTEXT;
        if let Some(context) = self.0.iter().find(has_room) {
            return Arc::clone(context);
        }
        let context = Arc::new(Context::new());
        self.0.push(Arc::clone(&context));
        context
    }

    /// Ends those that no feed uses any more.
    pub(crate) fn tidy(&mut self) {
        self.0.retain(|context| Arc::strong_count(context) > 1);
    }
}

fn socket(context: &Context, kind: SocketType, queue: i32) -> zmq::Result<Socket> {
    let socket = context.socket(kind)?;
    socket.set_linger(0)?;
    socket.set_rcvhwm(queue)?;
    socket.set_maxmsgsize(MAX_FRAME_BYTES)?;
    socket.set_ipv6(true)?;
    socket.set_reconnect_ivl(RECONNECT_MS.0)?;
    socket.set_reconnect_ivl_max(RECONNECT_MS.1)?;
    socket.set_connect_timeout(CONNECT_TIMEOUT_MS)?;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(30)?;
    socket.set_tcp_keepalive_intvl(10)?;
    socket.set_tcp_keepalive_cnt(3)?;
    socket.set_heartbeat_ivl(HEARTBEAT_MS.0)?;
    socket.set_heartbeat_timeout(HEARTBEAT_MS.1)?;
    Ok(socket)
}

/// A subscription, and what tells of its connections.
pub(crate) struct Live {
    pub(crate) messages: Socket,
    monitor: Socket,
    /// The connections there are, by file descriptor: one, but for publishers that connect.
    open: Vec<u32>,
}

/// What happened to the connections of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// One stands now. Whether another did before, and does still.
    Connected { beside: bool },
    /// The last one is gone.
    Disconnected,
}

impl Live {
    /// Subscribes to a publisher that is connected to, or that connects to us. Returns before a connection stands:
    /// libzmq connects in its own thread.
    pub(crate) fn open(context: &Context, endpoint: &Endpoint, topic: &str) -> zmq::Result<Self> {
        let messages = socket(context, SocketType::SUB, LIVE_QUEUE.into())?;
        // Any number that no other socket of this process has.
        let address = format!("inproc://kv-feed-{}", messages.get_fd()?);
        let events = [
            SocketEvent::CONNECTED,
            SocketEvent::ACCEPTED,
            SocketEvent::HANDSHAKE_SUCCEEDED,
            SocketEvent::DISCONNECTED,
        ];
        let events = events.map(SocketEvent::to_raw).map(i32::from);
        messages.monitor(&address, events.into_iter().sum())?;
        let monitor = context.socket(SocketType::PAIR)?;
        monitor.set_linger(0)?;
        monitor.connect(&address)?;
        // Before connecting: a subscription that comes later could miss what is sent in between.
        messages.set_subscribe(topic.as_bytes())?;
        match endpoint {
            Endpoint::Connect(address) => messages.connect(address)?,
            Endpoint::Bind(address) => messages.bind(address)?,
        }
        Ok(Self {
            messages,
            monitor,
            open: Vec::new(),
        })
    }

    pub(crate) fn sockets(&self) -> [&Socket; 2] {
        [&self.messages, &self.monitor]
    }

    /// What happened to the connections since last asked, one by one.
    pub(crate) fn turn(&mut self, frames: &mut Vec<Message>) -> zmq::Result<Option<Turn>> {
        while receive(&self.monitor, frames)? {
            // The event and its value, as this machine writes numbers.
            let Some(&[kind_0, kind_1, ref value @ ..]) = frames.first().map(|frame| &frame[..]) else {
                continue;
            };
            let connection = value.try_into().map_or(0, u32::from_ne_bytes);
            match SocketEvent::from_raw(u16::from_ne_bytes([kind_0, kind_1])) {
                SocketEvent::CONNECTED | SocketEvent::ACCEPTED => self.open.push(connection),
                SocketEvent::HANDSHAKE_SUCCEEDED => {
                    let beside = self.open.len() > 1;
                    return Ok(Some(Turn::Connected { beside }));
                }
                SocketEvent::DISCONNECTED => {
                    self.open.retain(|open| *open != connection);
                    if self.open.is_empty() {
                        return Ok(Some(Turn::Disconnected));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// Asks for a replay from a number: `["", number as u64 big endian]`, for a ROUTER to see three frames. Sent once the
/// connection stands.
pub(crate) fn ask(context: &Context, endpoint: &str, from: u64) -> zmq::Result<Socket> {
    let socket = socket(context, SocketType::DEALER, REPLAY_QUEUE)?;
    socket.connect(endpoint)?;
    socket.send(&b""[..], DONTWAIT | SNDMORE)?;
    socket.send(&from.to_be_bytes()[..], DONTWAIT)?;
    Ok(socket)
}

/// The two ends of the channel that wakes the feeds' thread out of its poll.
pub(crate) fn wake_pair(context: &Context) -> zmq::Result<(Socket, Socket)> {
    const ADDRESS: &str = "inproc://kv-feed-wake";
    let (waker, woken) = (
        context.socket(SocketType::PAIR)?,
        context.socket(SocketType::PAIR)?,
    );
    for socket in [&waker, &woken] {
        socket.set_linger(0)?;
    }
    woken.bind(ADDRESS)?;
    waker.connect(ADDRESS)?;
    Ok((waker, woken))
}

/// Receives one message into `frames` if one is there; answers whether.
pub(crate) fn receive(socket: &Socket, frames: &mut Vec<Message>) -> zmq::Result<bool> {
    frames.clear();
    loop {
        let mut frame = Message::new();
        match socket.recv(&mut frame, DONTWAIT) {
            Ok(()) => {}
            Err(zmq::Error::EINTR) => continue,
            Err(zmq::Error::EAGAIN) => return Ok(false),
            Err(error) => return Err(error),
        }
        let more = frame.get_more();
        if frames.len() < MAX_FRAMES {
            frames.push(frame);
        }
        if !more {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_bounds_and_notices_a_dead_peer() {
        let context = Context::new();
        let endpoint = Endpoint::Connect("tcp://127.0.0.1:1".to_owned());
        let live = Live::open(&context, &endpoint, "kv").unwrap();
        let replay = ask(&context, "tcp://127.0.0.1:1", 0).unwrap();
        for (socket, queue) in [(&live.messages, i32::from(LIVE_QUEUE)), (&replay, REPLAY_QUEUE)] {
            assert_eq!(socket.get_rcvhwm(), Ok(queue));
            assert_eq!(socket.get_maxmsgsize(), Ok(MAX_FRAME_BYTES));
            assert_eq!(socket.get_tcp_keepalive(), Ok(1));
            assert_eq!(socket.get_heartbeat_ivl(), Ok(HEARTBEAT_MS.0));
            assert_eq!(socket.get_heartbeat_timeout(), Ok(HEARTBEAT_MS.1));
            assert_eq!(socket.get_connect_timeout(), Ok(CONNECT_TIMEOUT_MS));
            assert_eq!(socket.get_reconnect_ivl_max(), Ok(RECONNECT_MS.1));
        }
    }

    #[test]
    fn feeds_share_contexts_which_end_with_them() {
        let mut contexts = Contexts::default();
        let feeds: Vec<_> = (0..=FEEDS_A_CONTEXT).map(|_| contexts.with_room()).collect();
        assert_eq!(contexts.0.len(), 2);
        drop(feeds);
        contexts.tidy();
        assert!(contexts.0.is_empty());
    }
}
