//! Receiver of traces over OTLP/HTTP: keeps the spans that it is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use request_traces::otlp::{Message, Span, TraceRequest, Value};

/// Receiver on a port of its own.
#[derive(Debug)]
pub struct OtlpReceiver {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl OtlpReceiver {
    /// Starts a receiver.
    ///
    /// # Errors
    /// Where no port can be bound.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let kept = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || drop(serve(stream, &kept)));
            }
        });
        Ok(Self { address, spans })
    }

    /// Returns the `[traces]` table of a router that sends each trace at once.
    #[must_use]
    pub fn toml(&self, more: &str) -> String {
        let endpoint = format!("http://{}", self.address);
        format!("[traces]\nendpoint = \"{endpoint}\"\nevery = \"10ms\"\n{more}\n")
    }

    /// Returns the spans so far, each request's own before its others.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        lock(&self.spans).clone()
    }

    /// Returns the spans so far, and forgets them.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *lock(&self.spans))
    }
}

/// Returns an attribute of a span as text; empty where there is none.
#[must_use]
pub fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Flag(flag)) => flag.to_string(),
        Some(Value::Whole(number)) => number.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::List(_)) | None => String::new(),
    }
}

fn lock(spans: &Mutex<Vec<Span>>) -> MutexGuard<'_, Vec<Span>> {
    spans.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers requests until the connection ends.
fn serve(stream: TcpStream, kept: &Mutex<Vec<Span>>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().context("a length")?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        let mut plain = Vec::new();
        GzDecoder::new(&*body).read_to_end(&mut plain)?;
        let request = TraceRequest::decode(&*plain)?;
        let scopes = request
            .resource_spans
            .into_iter()
            .flat_map(|process| process.scope_spans);
        lock(kept).extend(scopes.flat_map(|scope| scope.spans));
        stream
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
    }
}
