//! Stream of a connection with or without TLS. One enum, so that plain connections need no dynamic dispatch.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// Longest write whose parts are copied into one, in bytes. Up to there a copy and a `send` take less time than a
/// `writev`: 2.3 against 2.45 us for a token, 2.3 against 2.7 for a head and 1 KiB.
const LONGEST_COPY: usize = 2048;

/// Byte stream of a connection.
#[derive(Debug)]
pub enum Stream {
    /// Plain connection, without TLS.
    Plain(TcpStream),
    /// Connection with TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => {
                let stream = Pin::new(stream);
                let mut copy = [0; LONGEST_COPY];
                match joined(bytes, &mut copy) {
                    Some(bytes) => stream.poll_write(cx, bytes),
                    None => stream.poll_write_vectored(cx, bytes),
                }
            }
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

/// Returns the bytes of all parts as one part, copied if there are several. Returns `None` if they are longer than the
/// copy may be.
fn joined<'a>(parts: &'a [IoSlice<'_>], copy: &'a mut [u8; LONGEST_COPY]) -> Option<&'a [u8]> {
    if let [only] = parts {
        return Some(only);
    }
    let mut length = 0;
    for part in parts {
        copy.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    Some(&copy[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_parts_are_written_as_one_and_long_ones_are_not_copied() {
        let mut copy = [0; LONGEST_COPY];
        let parts = [b"5\r\n".as_slice(), b"hello", b"", b"\r\n"].map(IoSlice::new);
        assert_eq!(joined(&parts, &mut copy), Some(b"5\r\nhello\r\n".as_slice()));
        let long = vec![7; LONGEST_COPY];
        assert_eq!(joined(&[IoSlice::new(&long)], &mut copy), Some(&*long));
        let parts = [b"".as_slice(), &long].map(IoSlice::new);
        assert_eq!(joined(&parts, &mut copy), Some(&*long));
        let parts = [b"x".as_slice(), &long].map(IoSlice::new);
        assert_eq!(joined(&parts, &mut copy), None);
        assert_eq!(joined(&[], &mut copy), Some([].as_slice()));
    }
}
