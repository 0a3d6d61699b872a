//! How the sockets are set up, and how messages are received within bounds. The only file that names socket options.

use zmq::{Context, DONTWAIT, Message, SNDMORE, Socket, SocketType};

/// Messages queued in a live socket. Beyond it libzmq drops, which shows as a gap and is replayed.
const LIVE_QUEUE: i32 = 10_000;
/// Messages queued of a replay: more than publishers keep (vLLM: 10,000), as they drop what does not fit.
const REPLAY_QUEUE: i32 = 100_000;
/// Larger frames close the connection.
const MAX_FRAME_BYTES: i64 = 64 << 20;
/// No message of the wire has more; further frames are read and dropped.
const MAX_FRAMES: usize = 8;
/// First and longest wait before a lost connection is tried again, doubling in between.
const RECONNECT_MS: (i32, i32) = (100, 10_000);
/// A peer that does not answer pings for so long is reconnected to. Publishers are silent while idle, so only pings
/// tell a dead connection.
const HEARTBEAT_MS: (i32, i32) = (10_000, 30_000);

/// libzmq allows 1,023 sockets a context: one for the live sockets, one for the replays, so that every feed can have both.
#[derive(Clone)]
pub(crate) struct Contexts {
    pub(crate) live: Context,
    pub(crate) replay: Context,
}

fn socket(context: &Context, kind: SocketType, queue: i32) -> zmq::Result<Socket> {
    let socket = context.socket(kind)?;
    socket.set_linger(0)?;
    socket.set_rcvhwm(queue)?;
    socket.set_maxmsgsize(MAX_FRAME_BYTES)?;
    socket.set_ipv6(true)?;
    socket.set_reconnect_ivl(RECONNECT_MS.0)?;
    socket.set_reconnect_ivl_max(RECONNECT_MS.1)?;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(30)?;
    socket.set_tcp_keepalive_intvl(10)?;
    socket.set_tcp_keepalive_cnt(3)?;
    socket.set_heartbeat_ivl(HEARTBEAT_MS.0)?;
    socket.set_heartbeat_timeout(HEARTBEAT_MS.1)?;
    Ok(socket)
}

/// Subscribes to a publisher. Returns before the connection stands: libzmq connects in its own thread.
pub(crate) fn subscribe(contexts: &Contexts, endpoint: &str, topic: &str) -> zmq::Result<Socket> {
    let socket = socket(&contexts.live, SocketType::SUB, LIVE_QUEUE)?;
    // Before connecting: a subscription that comes later could miss what is sent in between.
    socket.set_subscribe(topic.as_bytes())?;
    socket.connect(endpoint)?;
    Ok(socket)
}

/// Asks for a replay from a number: `["", number as u64 big endian]`, for a ROUTER to see three frames. Sent once the
/// connection stands.
pub(crate) fn ask(contexts: &Contexts, endpoint: &str, from: u64) -> zmq::Result<Socket> {
    let socket = socket(&contexts.replay, SocketType::DEALER, REPLAY_QUEUE)?;
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
