//! A publisher that speaks ZMTP byte by byte, to send what no library sends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use kv_feed::{Endpoint, FeedSpec};
use routing::WorkerId;

pub(crate) struct RawPublisher(TcpListener);

impl RawPublisher {
    pub(crate) fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub(crate) fn spec(&self) -> FeedSpec {
        FeedSpec {
            worker: WorkerId(1),
            name: "worker".into(),
            endpoint: Endpoint::Connect(format!("tcp://{}", self.0.local_addr().unwrap())),
            replay: None,
            topic: String::new(),
            rank: None,
            adapter: None,
            curve: None,
        }
    }

    /// Takes a subscriber, up to its subscription.
    pub(crate) fn accept(&self) -> RawConnection {
        let (mut stream, _) = self.0.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let greeting = [&b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL"[..], &[0; 48]].concat();
        stream.write_all(&greeting).unwrap();
        stream
            .write_all(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB")
            .unwrap();
        // Greeting, READY, and the subscription to everything.
        stream.read_exact(&mut [0; 64 + 27 + 3]).unwrap();
        RawConnection(stream)
    }
}

pub(crate) struct RawConnection(TcpStream);

impl RawConnection {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends the same again and again until the subscriber closes the connection.
    pub(crate) fn send_until_closed(&mut self, bytes: &[u8]) {
        while self.0.write_all(bytes).is_ok() {}
    }
}

/// Returns a frame of a message.
pub(crate) fn frame(has_more: bool, body: &[u8]) -> Vec<u8> {
    let length = u64::try_from(body.len()).unwrap().to_be_bytes();
    [&[2 | u8::from(has_more)][..], &length, body].concat()
}

/// Returns an event message.
pub(crate) fn message(sequence: u64, payload: &[u8]) -> Vec<u8> {
    let frames = [
        frame(true, b"kv"),
        frame(true, &sequence.to_be_bytes()),
        frame(false, payload),
    ];
    frames.concat()
}

/// Returns the payload of a store of one block, padded with a field that means nothing.
pub(crate) fn payload(hash: u64, padding: usize) -> Vec<u8> {
    let event = ("BlockStored", [hash], None::<u64>, [7], 1, None::<u64>);
    rmp_serde::to_vec(&(1.5, [event], None::<u16>, "x".repeat(padding))).unwrap()
}
