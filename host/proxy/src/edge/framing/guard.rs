//! Stream adapter that breaks hyper's input off at ambiguous framing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

use super::{Ambiguity, RequestReader};

/// Bytes that make hyper refuse a head, wherever in the head they are.
const POISON: &[u8] = b"\0\r\n\r\n";

/// Stream of requests that ends at the first ambiguous one.
#[derive(Debug)]
pub(in crate::edge) struct FramingGuard<S> {
    stream: S,
    reader: RequestReader,
    broken: Option<BrokenFraming>,
    flags: GuardFlags,
}

/// Flags shared by a connection and the guard of its stream.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct GuardFlags {
    /// Set if the connection has switched to another protocol: its bytes are then not requests.
    pub(in crate::edge) is_switched: Arc<AtomicBool>,
    /// Set if an ambiguous request was refused.
    pub(in crate::edge) is_ambiguous: Arc<AtomicBool>,
}

/// Input that hyper reads after an ambiguity.
#[derive(Debug, Clone, Copy)]
enum BrokenFraming {
    /// In a head: these bytes of [`POISON`].
    Head(&'static [u8]),
    /// In a body: an error, as of any malformed chunk.
    Body(Ambiguity),
}

impl<S> FramingGuard<S> {
    pub(in crate::edge) fn new(stream: S, flags: GuardFlags) -> Self {
        Self {
            stream,
            reader: RequestReader::new(),
            broken: None,
            flags,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramingGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let guard = &mut *self;
        if guard.flags.is_switched.load(Ordering::Acquire) {
            return Pin::new(&mut guard.stream).poll_read(context, buffer);
        }
        match &mut guard.broken {
            None => {}
            Some(BrokenFraming::Body(ambiguity)) => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, *ambiguity)));
            }
            Some(BrokenFraming::Head(left)) => {
                let read = left.len().min(buffer.remaining());
                if read == 0 {
                    // Hyper has the bytes that make it answer and close, so nothing more is read.
                    return Poll::Pending;
                }
                buffer.put_slice(&left[..read]);
                *left = &left[read..];
                return Poll::Ready(Ok(()));
            }
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut guard.stream).poll_read(context, buffer))?;
        let Err((kept, ambiguity)) = guard.reader.read(&buffer.filled()[before..]) else {
            return Poll::Ready(Ok(()));
        };
        debug!(
            reason = %ambiguity,
            "a request can be read in two ways: it is refused and its connection closed"
        );
        buffer.set_filled(before + kept);
        guard.flags.is_ambiguous.store(true, Ordering::Relaxed);
        guard.broken = Some(if guard.reader.is_in_head() {
            BrokenFraming::Head(POISON)
        } else {
            BrokenFraming::Body(ambiguity)
        });
        if kept > 0 {
            return Poll::Ready(Ok(()));
        }
        // An empty read would mean the end of the stream.
        self.poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FramingGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }
}
