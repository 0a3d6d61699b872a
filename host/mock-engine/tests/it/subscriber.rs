//! The router's side of the ZMQ sockets.

use mock_engine::MockEngine;
use rmpv::Value;

use crate::DEADLINE;
use crate::client::complete;

/// Returns a socket with a timeout.
fn socket(kind: zmq::SocketType, endpoint: &str) -> zmq::Socket {
    let socket = zmq::Context::new().socket(kind).expect("a socket");
    socket.set_linger(0).expect("linger");
    let deadline = i32::try_from(DEADLINE.as_millis()).expect("a short time");
    socket.set_rcvtimeo(deadline).expect("timeout");
    socket.connect(endpoint).expect("connected");
    socket
}

/// Returns a subscription that works, and every message it got so far. A subscription takes a moment, so requests are
/// made until an event of one arrives.
pub(crate) async fn subscribe(engine: &MockEngine) -> (zmq::Socket, Vec<Vec<Vec<u8>>>) {
    let socket = socket(zmq::SUB, engine.kv_events());
    socket.set_subscribe(b"").expect("subscribed");
    for token in 10_000.. {
        complete(engine, &[token; 14], 1).await;
        if socket.poll(zmq::POLLIN, 5).expect("polled") > 0 {
            break;
        }
        assert!(token < 12_000, "nothing arrives");
    }
    let messages = receive(engine, &socket);
    (socket, messages)
}

/// Receives all messages up to the last published batch.
pub(crate) fn receive(engine: &MockEngine, socket: &zmq::Socket) -> Vec<Vec<Vec<u8>>> {
    let last = (engine.stats().batches - 1).to_be_bytes();
    let mut messages = Vec::new();
    loop {
        messages.push(socket.recv_multipart(0).expect("a message in time"));
        if messages.last().is_some_and(|message| message[1] == last) {
            return messages;
        }
    }
}

/// Requests a replay.
pub(crate) fn request_replay(engine: &MockEngine, start: u64) -> zmq::Socket {
    let socket = socket(zmq::DEALER, engine.kv_replay());
    socket
        .send_multipart([&b""[..], &start.to_be_bytes()], 0)
        .expect("sent");
    socket
}

/// Returns every message of a replay, the end marker included.
pub(crate) fn replay_messages(engine: &MockEngine, start: u64) -> Vec<Vec<Vec<u8>>> {
    let socket = request_replay(engine, start);
    let mut messages = Vec::new();
    loop {
        messages.push(socket.recv_multipart(0).expect("a reply in time"));
        if messages
            .last()
            .is_some_and(|message| message[message.len() - 2] == [0xff; 8])
        {
            return messages;
        }
    }
}

/// Numbers and payloads of a replay, counted from the end of the frames.
pub(crate) fn replay(engine: &MockEngine, start: u64) -> Vec<(u64, Vec<u8>)> {
    let mut messages = replay_messages(engine, start);
    messages.pop();
    let numbered = |message: Vec<Vec<u8>>| {
        let [.., seq, payload] = &message[..] else {
            unreachable!("a message of at least three frames")
        };
        (
            u64::from_be_bytes(seq[..].try_into().expect("8 bytes")),
            payload.clone(),
        )
    };
    messages.into_iter().map(numbered).collect()
}

/// Returns the events of a payload.
pub(crate) fn events(payload: &[u8]) -> Vec<Value> {
    let batch = rmpv::decode::read_value(&mut &payload[..]).expect("msgpack");
    batch[1].as_array().expect("events").clone()
}

/// Returns the kind of each event.
pub(crate) fn kinds(payload: &[u8]) -> Vec<String> {
    let kind = |event: &Value| event["type"].as_str().expect("a type").to_owned();
    events(payload).iter().map(kind).collect()
}
