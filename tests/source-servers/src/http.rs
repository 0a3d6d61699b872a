//! HTTP/1.1 server, as small as the tests need: one thread a connection, requests without bodies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// TLS settings of a server, which may change while it runs. `None`: no TLS.
pub(crate) type TlsCell = Arc<Mutex<Option<Arc<ServerConfig>>>>;

/// Connection of a client.
pub(crate) enum ServedStream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl ServedStream {
    fn accept(stream: TcpStream, tls: &TlsCell) -> io::Result<Self> {
        let tls = tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(tls) = tls else {
            return Ok(Self::Plain(stream));
        };
        let connection = ServerConnection::new(tls).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Ends the connection at once.
    pub(crate) fn cut(&self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Both)
    }

    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        self.socket().set_nodelay(true)
    }
}

impl Read for ServedStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for ServedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Request without a body.
#[derive(Debug, Default)]
pub(crate) struct ServedRequest {
    /// Path without the query.
    pub(crate) path: String,
    /// Query, with `%XX` as it came.
    pub(crate) query: String,
    /// Value of `Authorization`.
    pub(crate) authorization: Option<String>,
}

impl ServedRequest {
    /// Returns a parameter of the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.query.split('&').filter_map(|pair| pair.split_once('='));
        parameters.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// Starts a server whose requests `answer` writes the answers of. The connection ends when it returns `false`.
pub(crate) fn serve<F>(tls: TlsCell, answer: F) -> io::Result<SocketAddr>
where
    F: Fn(&ServedRequest, &mut ServedStream) -> io::Result<bool> + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, tls) = (Arc::clone(&answer), Arc::clone(&tls));
            std::thread::spawn(move || {
                // A client that leaves ends its thread.
                let _ = converse(stream, &tls, &*answer);
            });
        }
    });
    Ok(address)
}

/// Writes a whole answer of JSON.
pub(crate) fn reply(stream: &mut ServedStream, status: u16, body: &str) -> io::Result<bool> {
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    Ok(true)
}

fn converse(
    stream: TcpStream,
    tls: &TlsCell,
    answer: &impl Fn(&ServedRequest, &mut ServedStream) -> io::Result<bool>,
) -> io::Result<()> {
    let mut reader = BufReader::new(ServedStream::accept(stream, tls)?);
    while let Some(request) = read(&mut reader)? {
        if !answer(&request, reader.get_mut())? {
            break;
        }
    }
    Ok(())
}

fn read(reader: &mut BufReader<ServedStream>) -> io::Result<Option<ServedRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = ServedRequest {
        path: path.to_owned(),
        query: query.to_owned(),
        authorization: None,
    };
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            return Ok(Some(request));
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            request.authorization = Some(value.trim().to_owned());
        }
    }
}
