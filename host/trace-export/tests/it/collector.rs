//! Scripted collector: answers each request with the next status, and hands the request to the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use flate2::read::GzDecoder;
use request_traces::otlp::{Message, TraceRequest};

/// Collector on a port of its own.
pub(crate) struct ScriptedCollector {
    url: String,
    received: Receiver<ReceivedExport>,
}

/// Request that was received.
pub(crate) struct ReceivedExport {
    pub(crate) head: String,
    pub(crate) request: TraceRequest,
}

impl ScriptedCollector {
    /// Starts a collector that answers with these statuses.
    pub(crate) fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = sync_channel(64);
        std::thread::spawn(move || serve(&listener, statuses, &sender));
        Self { url, received }
    }

    /// Returns the URL of a port that no one listens on.
    pub(crate) fn url_of_none() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Waits for the next request.
    pub(crate) fn next(&self) -> ReceivedExport {
        self.received.recv().unwrap()
    }
}

fn serve(listener: &TcpListener, statuses: &[u16], sender: &SyncSender<ReceivedExport>) {
    let mut statuses = statuses.iter();
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.unwrap());
        while let Some(received) = read(&mut stream) {
            let Some(status) = statuses.next() else { return };
            let after = if *status == 503 { "retry-after: 0\r\n" } else { "" };
            let answer = format!("HTTP/1.1 {status} x\r\n{after}content-length: 0\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            sender.send(received).unwrap();
        }
    }
}

fn read(stream: &mut BufReader<TcpStream>) -> Option<ReceivedExport> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let mut plain = Vec::new();
    GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
    let request = TraceRequest::decode(&*plain).unwrap();
    Some(ReceivedExport { head, request })
}
