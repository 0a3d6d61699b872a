//! Probes of a starting system: checks that it answers and that its index is filled.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::generate::PromptForm;
use crate::generate::prompts::Prompts;
use crate::loopback::Loopback;

/// Timeout of one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks that a request is answered with 200; returns the actual result otherwise.
pub(super) fn answers(target: Loopback, prompt: PromptForm) -> Result<(), String> {
    let answer = exchange(target, Prompts::new(prompt, 0, None).next())?;
    if answer.starts_with("HTTP/1.1 200 ") {
        Ok(())
    } else {
        Err(answer.lines().next().unwrap_or_default().to_owned())
    }
}

/// Checks that Conductor's index holds at least this many blocks.
pub(super) fn holds(target: Loopback, blocks: u64) -> Result<(), String> {
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    let page = exchange(target, request)?;
    let held = page
        .lines()
        .find_map(|line| line.strip_prefix("conductor_index_blocks "));
    let held: f64 = held.and_then(|held| held.parse().ok()).unwrap_or(0.0);
    if held >= blocks as f64 {
        Ok(())
    } else {
        Err(format!("{held} of {blocks} blocks"))
    }
}

/// Checks that Conductor finds the load's prompts in its index.
pub(super) fn matches(target: Loopback, prompt: PromptForm) -> Result<(), String> {
    let answer = exchange(target, Prompts::new(prompt, 1024, None).next())?;
    let matched = answer
        .lines()
        .find_map(|line| line.strip_prefix("x-conductor-matched-tokens: "));
    match matched.and_then(|matched| matched.trim().parse().ok()) {
        Some(1_u64..) => Ok(()),
        _ => Err(format!("matched tokens: {matched:?}")),
    }
}

/// Returns the answer as text, up to the end of its head, and of its body as far as the length goes.
fn exchange(target: Loopback, request: &[u8]) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&target.address(), PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.write_all(request).map_err(failed)?;
    let mut answer = Vec::new();
    let mut scratch = [0; 16 * 1024];
    while !is_whole(&answer) {
        let received = stream.read(&mut scratch).map_err(failed)?;
        if received == 0 {
            return Err("the connection was closed".to_owned());
        }
        answer.extend_from_slice(&scratch[..received]);
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Returns `true` if the head and the announced body are complete; a chunked answer ends with an empty chunk.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) => answer.len() >= end + 4 + length,
        None => answer.ends_with(b"\r\n0\r\n\r\n"),
    }
}
