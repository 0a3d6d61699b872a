//! The backends and the generator over real sockets, one against the other and each against plain bytes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use harness::refused_address;
use load::backends::Backends;
use load::generate::{self, Edge, Plan, PromptForm, Report, StreamOf, WindowMinimum};
use load::loopback::Loopback;
use load::readiness::Waiting;
use serde_json::Value;

/// Longest time that anything may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// A request every two milliseconds.
const RATE: f64 = 500.0;

/// Runs `test` against backends whose streams have this spacing.
fn with_backends(spacing: Duration, test: impl FnOnce(&[SocketAddr]) + Send) {
    let mut backends = Backends::bind(2, 0, spacing, Waiting::Sleep).unwrap();
    let addresses = backends.addresses().to_vec();
    thread::scope(|scope| {
        let test = scope.spawn(|| test(&addresses));
        backends.serve(|| test.is_finished()).unwrap();
        test.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A reply read by other code than the generator's.
#[derive(Debug)]
struct Reply {
    status: String,
    body: Vec<u8>,
    /// The chunks of a chunked body.
    chunks: Vec<String>,
}

fn exchange(stream: &TcpStream, method: &str, path: &str, body: &str) -> Reply {
    let length = body.len();
    let mut writer = stream;
    write!(
        writer,
        "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let status = line();
    let headers: Vec<_> = std::iter::repeat_with(&mut line)
        .take_while(|line| !line.is_empty())
        .collect();
    let length = headers
        .iter()
        .find_map(|header| header.strip_prefix("content-length: "));
    let mut reply = Reply {
        status,
        body: Vec::new(),
        chunks: Vec::new(),
    };
    if let Some(length) = length {
        reply.body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut reply.body).unwrap();
        return reply;
    }
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk).unwrap();
        if size == 0 {
            return reply;
        }
        reply
            .chunks
            .push(String::from_utf8(chunk[..size].to_vec()).unwrap());
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

#[test]
fn backends_answer_every_endpoint_on_one_kept_connection() {
    with_backends(Duration::ZERO, |addresses| {
        for address in addresses {
            let stream = connect(*address);
            let json = |method, path, body| {
                let reply = exchange(&stream, method, path, body);
                assert_eq!(reply.status, "HTTP/1.1 200 OK", "{path}");
                serde_json::from_slice::<Value>(&reply.body).unwrap()
            };
            let chat = json("POST", "/v1/chat/completions", r#"{"messages":[]}"#);
            assert_eq!(chat["object"], "chat.completion");
            assert!(chat["choices"][0]["message"]["content"].is_string());
            assert!(json("POST", "/v1/completions", r#"{"prompt":[1]}"#)["choices"][0]["text"].is_string());
            assert_eq!(json("GET", "/v1/models", "")["data"][0]["id"], "bench");
            assert_eq!(exchange(&stream, "GET", "/health", "").status, "HTTP/1.1 200 OK");
            assert_eq!(
                exchange(&stream, "GET", "/nothing", "").status,
                "HTTP/1.1 404 Not Found"
            );
        }
    });
}

#[test]
fn tokenize_gives_one_token_per_four_bytes_and_equal_ones_for_equal_prefixes() {
    with_backends(Duration::ZERO, |addresses| {
        let stream = connect(addresses[0]);
        let tokens = |body: &str| {
            let reply: Value =
                serde_json::from_slice(&exchange(&stream, "POST", "/tokenize", body).body).unwrap();
            let tokens = reply["tokens"].as_array().unwrap().clone();
            assert_eq!(reply["count"], tokens.len());
            tokens
        };
        let (first, second) = (tokens(&"abcdefgh".repeat(4_000)), tokens("abcdefghijk"));
        assert_eq!((first.len(), second.len()), (8_000, 3));
        assert_eq!(first[..2], second[..2]);
        assert_ne!(first[2], second[2]);
    });
}

#[test]
fn a_stream_has_a_chunk_per_token_and_keeps_the_connection() {
    with_backends(Duration::from_micros(200), |addresses| {
        let stream = connect(addresses[0]);
        for tokens in [5, 0, 2] {
            let started = Instant::now();
            let body = format!(r#"{{"stream":true,"max_tokens":{tokens}}}"#);
            let mut chunks = exchange(&stream, "POST", "/v1/chat/completions", &body).chunks;
            // The second token comes with the engine's next step, at once at the earliest.
            assert!(started.elapsed() >= Duration::from_micros(200) * u32::saturating_sub(tokens, 2));
            assert_eq!(chunks.pop().unwrap(), "data: [DONE]\n\n");
            assert_eq!(chunks.len(), tokens as usize);
            for chunk in chunks {
                let event = chunk.strip_prefix("data: ").unwrap();
                let event: Value = serde_json::from_str(event).unwrap();
                assert_eq!(event["object"], "chat.completion.chunk");
            }
        }
    });
}

fn plan(target: SocketAddr) -> Plan {
    Plan {
        target: Loopback::port(target.port()),
        prompt: PromptForm::Chat,
        body_bytes: 1024,
        stream: None,
        connections: 4,
        rate: None,
        bursts: false,
        warm_up: Duration::from_millis(30),
        window: Duration::from_millis(200),
        minimum: least(1),
        patience: DEADLINE,
        waiting: Waiting::Sleep,
    }
}

fn least(events: u64) -> WindowMinimum {
    WindowMinimum {
        events,
        open_streams: 0,
    }
}

fn stream_of(tokens: u32) -> Option<StreamOf> {
    Some(StreamOf {
        tokens,
        spacing: None,
    })
}

fn generate(plan: &Plan) -> Report {
    let mut edges = Vec::new();
    let edge = |edge| {
        edges.push(edge);
        Ok(())
    };
    let begun = Instant::now();
    let report = generate::run(plan, edge, || begun.elapsed() > DEADLINE).unwrap();
    assert_eq!(edges, [Edge::Opens, Edge::Closes]);
    report
}

#[test]
fn a_closed_loop_is_answered_without_errors_whatever_the_prompt() {
    with_backends(Duration::ZERO, |addresses| {
        for (prompt, body_bytes) in [
            (PromptForm::Chat, 1024),
            (PromptForm::Ids, 32 * 1024),
            (PromptForm::Turns, 32 * 1024),
            (PromptForm::Chat, 0),
        ] {
            let report = generate(&Plan {
                prompt,
                body_bytes,
                ..plan(addresses[0])
            });
            assert!(report.requests > 0);
            assert_eq!(report.latency.count(), report.requests);
            assert_eq!(report.errors.total(), 0, "{:?}", report.errors);
        }
    });
}

#[test]
fn streams_count_by_their_tokens_even_where_none_ends_within_the_window() {
    with_backends(Duration::from_millis(5), |addresses| {
        let begun = Instant::now();
        let long = generate(&Plan {
            stream: stream_of(1_000_000),
            minimum: WindowMinimum {
                events: 20,
                open_streams: 4,
            },
            ..plan(addresses[0])
        });
        assert_eq!((long.requests, long.open_streams), (0, 4));
        // Each stream has a token at its beginning, and one in every step since.
        let steps = begun.elapsed().as_millis() as u64 / 5 + 1;
        assert!((20..=4 * (1 + steps)).contains(&long.tokens), "{}", long.tokens);
        let short = generate(&Plan {
            stream: stream_of(3),
            ..plan(addresses[0])
        });
        // Streams that straddle an edge of the window count in part.
        let whole = short.requests * 3;
        assert!(
            short.tokens.abs_diff(whole) <= 4 * 4,
            "{} tokens in {} streams",
            short.tokens,
            short.requests
        );
    });
}

#[test]
fn an_open_loop_keeps_its_rate() {
    with_backends(Duration::ZERO, |addresses| {
        let begun = Instant::now();
        let report = generate(&Plan {
            rate: Some(RATE),
            warm_up: Duration::ZERO,
            minimum: least(100),
            ..plan(addresses[0])
        });
        let due_by = |elapsed: Duration| elapsed.as_secs_f64() * RATE;
        let (least, most) = (due_by(report.elapsed) - 1.0, due_by(begun.elapsed()) + 1.0);
        let due = (report.requests + report.unanswered) as f64;
        assert!(
            (least..=most).contains(&due),
            "{due} requests instead of {least} to {most}"
        );
        assert!(report.requests >= 100, "{}", report.requests);
        assert_eq!(report.errors.total(), 0, "{:?}", report.errors);
    });
}

/// Answers every request with `status` after `pause`, one connection at a time.
fn slow_server(status: &'static str, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut scratch = [0; 4096];
            while (&stream).read(&mut scratch).is_ok_and(|received| received > 0) {
                thread::sleep(pause);
                if write!(&stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// Answers bursts of `connections` requests: all but one at once, and the last after a pause. Returns the bytes that
/// came on the answered connections during the pauses.
fn serve_bursts(listener: &TcpListener, connections: usize) -> usize {
    let streams: Vec<_> = listener
        .incoming()
        .map_while(Result::ok)
        .take(connections)
        .collect();
    let mut scratch = [0; 4096];
    let answer = |mut stream: &TcpStream| stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let mut early = 0;
    loop {
        for mut stream in &streams {
            stream.set_nonblocking(false).unwrap();
            if !stream.read(&mut scratch).is_ok_and(|received| received > 0) {
                return early;
            }
        }
        let (last, others) = streams.split_last().unwrap();
        if others.iter().any(|stream| answer(stream).is_err()) {
            return early;
        }
        thread::park_timeout(Duration::from_millis(20));
        for mut stream in others {
            stream.set_nonblocking(true).unwrap();
            early += stream.read(&mut scratch).unwrap_or(0);
        }
        if answer(last).is_err() {
            return early;
        }
    }
}

#[test]
fn a_burst_begins_when_all_requests_before_it_are_answered() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || serve_bursts(&listener, 4));
    let report = generate(&Plan {
        bursts: true,
        minimum: least(8),
        ..plan(address)
    });
    assert!(report.requests >= 8, "{}", report.requests);
    assert_eq!(report.errors.total(), 0, "{:?}", report.errors);
    assert_eq!(server.join().unwrap(), 0);
}

#[test]
fn an_open_loop_counts_latency_from_when_a_request_was_due() {
    // 50 replies per second at most, 200 requests per second due. The 20th reply comes after 400 ms at least, and was
    // due at 95 ms.
    let slow = slow_server("200 OK", Duration::from_millis(20));
    let open = generate(&Plan {
        connections: 1,
        rate: Some(200.0),
        warm_up: Duration::ZERO,
        minimum: least(20),
        ..plan(slow)
    });
    assert!(
        open.latency.micros(1.0).unwrap() > 200_000.0,
        "{:?}",
        open.latency.micros(1.0)
    );
    assert!(
        open.unanswered > 40,
        "{} are still to be answered",
        open.unanswered
    );
}

#[test]
fn failures_are_counted_by_cause() {
    let failing = slow_server("503 Service Unavailable", Duration::ZERO);
    let report = generate(&Plan {
        connections: 1,
        ..plan(failing)
    });
    assert_eq!(
        (report.requests, report.errors.total()),
        (0, report.errors.status)
    );
    assert!(report.errors.status > 0);

    let report = generate(&plan(refused_address().unwrap()));
    assert_eq!(
        (report.requests, report.errors.total()),
        (0, report.errors.connect)
    );
    assert!(report.errors.connect > 0);

    let silent = slow_server("200 OK", Duration::from_secs(3_600));
    let report = generate(&Plan {
        connections: 1,
        patience: Duration::from_millis(50),
        ..plan(silent)
    });
    assert_eq!(
        (report.requests, report.errors.total()),
        (0, report.errors.timed_out)
    );
    assert!(report.errors.timed_out > 0);
}

#[test]
fn a_run_can_be_stopped() {
    with_backends(Duration::ZERO, |addresses| {
        let endless = Plan {
            window: Duration::from_secs(3_600),
            ..plan(addresses[0])
        };
        assert!(generate::run(&endless, |_| Ok(()), || true).is_err());
    });
}
