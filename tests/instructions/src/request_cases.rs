//! Cases of a whole request: client, router and worker in one process.
//!
//! Client and worker are plain sockets that parse next to nothing, so nearly all of the count is the router's. Its
//! background queries are off. The exporter of traces has no room, so that its own thread has nothing to do.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use harness::TestRouter;
use load::vocabulary::Words;

use crate::cases::Outcome;

/// Length of the prompt of a request of 1 KiB.
const PROMPT_BYTES: usize = 900;
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":0,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":2,"total_tokens":202}}"#;
/// Collector that nothing listens on, behind a queue that is full after one trace.
const TRACES: &str =
    "[traces]\nendpoint = \"http://127.0.0.1:9\"\nqueue = 1\nbatch = 512\nevery = \"60s\"\nsample = ";

/// Sends requests through a router without traces.
pub(crate) fn plain(times: u32) -> Outcome {
    sent("", times)
}

/// Sends requests through a router that samples none of them.
pub(crate) fn unsampled(times: u32) -> Outcome {
    sent(&format!("{TRACES}0.0\n"), times)
}

/// Sends requests through a router that samples all of them.
pub(crate) fn sampled(times: u32) -> Outcome {
    sent(&format!("{TRACES}1.0\n"), times)
}

fn sent(traces: &str, times: u32) -> Outcome {
    let worker = start_worker()?;
    let toml = format!(
        "{traces}[pools.chat]\n[pools.chat.health]\npath = \"off\"\n[pools.chat.model-list]\npath = \"off\"\n\
         [pools.chat.scrape]\npath = \"off\"\n\
         [[pools.chat.workers]]\nname = \"w0\"\nurl = \"http://{worker}\"\n\
         [[routes]]\npool = \"chat\"\npolicy = \"round-robin\"\n"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let router = runtime.block_on(TestRouter::start_at_once(&toml))?;
    let address = router.client.base().trim_start_matches("http://").to_owned();
    let done = send(&address, times);
    drop(router);
    runtime.shutdown_background();
    done
}

/// Sends requests one after the other over one connection.
fn send(address: &str, times: u32) -> Outcome {
    let prompt = Words::of(1).text(PROMPT_BYTES);
    let body =
        format!(r#"{{"model":"bench","max_tokens":16,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#);
    let length = body.len();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    for _ in 0..times {
        stream.get_mut().write_all(request.as_bytes())?;
        let head = read_message(&mut stream)?.ok_or("the router closed the connection")?;
        if !head.starts_with("HTTP/1.1 200") {
            return Err(format!("the router answered {head}").into());
        }
    }
    Ok(())
}

/// Starts a worker that answers every request alike.
fn start_worker() -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || drop(answer(stream)));
        }
    });
    Ok(address)
}

fn answer(stream: TcpStream) -> Outcome {
    let length = ANSWER.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{ANSWER}"
    );
    let mut stream = BufReader::new(stream);
    while read_message(&mut stream)?.is_some() {
        stream.get_mut().write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// Reads a message with its body. Returns its first line, or `None` at the end of the connection.
fn read_message(stream: &mut BufReader<TcpStream>) -> Result<Option<String>, Box<dyn Error>> {
    let (mut first, mut line, mut length) = (String::new(), String::new(), 0);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if first.is_empty() {
            first.clone_from(&line);
        } else if line == "\r\n" {
            break;
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    stream.read_exact(&mut vec![0; length])?;
    Ok(Some(first))
}
