//! The stream of a connection as hyper reads it: as it is, up to what can be read in two ways.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

use super::{Ambiguity, RequestReader};

/// Hyper refuses a head with it, wherever in the head it stands.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A stream of requests that ends where one is ambiguous.
#[derive(Debug)]
pub(in crate::edge) struct Guard<S> {
    stream: S,
    reader: RequestReader,
    broken: Option<Broken>,
    flags: GuardFlags,
}

/// What a connection and the guard of its stream let each other know.
#[derive(Debug, Clone, Default)]
pub(in crate::edge) struct GuardFlags {
    /// Whether the connection is switched to another protocol: its bytes are no requests then.
    pub(in crate::edge) is_switched: Arc<AtomicBool>,
    /// Whether a request was refused that can be read in two ways.
    pub(in crate::edge) is_ambiguous: Arc<AtomicBool>,
}

/// What is read after an ambiguity.
#[derive(Debug, Clone, Copy)]
enum Broken {
    /// Of a head: these bytes of [`POISON`].
    Head(&'static [u8]),
    /// Of a body: an error, as of any chunk that cannot be read.
    Body(Ambiguity),
}

impl<S> Guard<S> {
    pub(in crate::edge) fn new(stream: S, flags: GuardFlags) -> Self {
        Self {
            stream,
            reader: RequestReader::new(),
            broken: None,
            flags,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
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
            Some(Broken::Body(ambiguity)) => {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, *ambiguity)));
            }
            Some(Broken::Head(left)) => {
                let read = left.len().min(buffer.remaining());
                if read == 0 {
                    // Hyper has what makes it answer and close: nothing more is read.
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
            Broken::Head(POISON)
        } else {
            Broken::Body(ambiguity)
        });
        if kept > 0 {
            return Poll::Ready(Ok(()));
        }
        // Nothing read would be the end of the stream.
        self.poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
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
