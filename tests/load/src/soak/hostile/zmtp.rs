//! ZMTP 3.0 of a hostile publisher: greeting, NULL, and frames of any shape (<https://rfc.zeromq.org/spec/23/>).

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const GREETING: usize = 64;
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Greets as PUB. What the peer subscribes to does not matter.
pub(super) async fn greet(stream: &mut TcpStream) -> io::Result<()> {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting).await?;
    let mut theirs = [0; GREETING];
    stream.read_exact(&mut theirs).await?;
    let ready = b"\x05READY\x0bSocket-Type\0\0\0\x03PUB";
    stream.write_all(&[COMMAND, ready.len() as u8]).await?;
    stream.write_all(ready).await?;
    // Theirs, of which nothing needs to be understood.
    let mut scratch = [0; 256];
    match stream.read(&mut scratch).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Returns the header of a frame.
pub(super) fn header(length: u64, has_more: bool) -> Vec<u8> {
    let mut header = vec![LONG | if has_more { MORE } else { 0 }];
    header.extend_from_slice(&length.to_be_bytes());
    header
}

/// Returns a message: topic, sequence number, payload.
pub(super) fn message(sequence: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(0, true);
    bytes.extend(header(8, true));
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.extend(header(payload.len() as u64, false));
    bytes.extend_from_slice(payload);
    bytes
}
