//! Replies of a mock backend, as bytes prepared at the start. Shapes: the OpenAI API and vLLM's `/tokenize`.

use std::fmt::Write as _;
use std::time::Duration;

use memchr::memmem;

use super::MODEL;

/// The length of a completion's body, in bytes.
pub(super) const COMPLETION_BYTES: usize = 1024;

/// Default number of tokens of a stream.
const DEFAULT_TOKENS: u32 = 16;

/// Fields are first searched in this many bytes at either end of a body: the long part of a request is its prompt.
/// Routers that rewrite requests put them anywhere.
const FIELD_WINDOW: usize = 256;

/// Requested kind of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    Chat,
    Completion,
    Tokenize,
    Models,
    Health,
    Unknown,
}

impl Endpoint {
    /// Reads a request line; a query is ignored.
    pub(super) fn of(request_line: &[u8]) -> Self {
        let mut words = request_line.split(|byte| *byte == b' ');
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        match (method, path) {
            (b"POST", b"/v1/chat/completions") => Self::Chat,
            (b"POST", b"/v1/completions") => Self::Completion,
            (b"POST", b"/tokenize") => Self::Tokenize,
            (b"GET", b"/v1/models") => Self::Models,
            (b"GET", b"/health") => Self::Health,
            _ => Self::Unknown,
        }
    }
}

/// An answer.
pub(super) enum Reply<'a> {
    /// Constant bytes.
    Fixed(&'a [u8]),
    /// Bytes made for this request.
    Built(Vec<u8>),
    /// A head, then so many tokens, then the end.
    Stream {
        /// The reply's head.
        head: &'a [u8],
        /// Number of remaining tokens.
        tokens: u32,
        /// The pause between two of them.
        spacing: Duration,
        /// Set if the pause is the engine's step, not one of the request's own.
        in_steps: bool,
    },
}

/// All fixed bytes.
pub(super) struct Replies {
    spacing: Duration,
    chat: Vec<u8>,
    completion: Vec<u8>,
    prefilled: Vec<u8>,
    models: Vec<u8>,
    health: Vec<u8>,
    not_found: Vec<u8>,
    stream_head: Vec<u8>,
    token: Vec<u8>,
    stream_end: Vec<u8>,
}

impl Replies {
    pub(super) fn new(spacing: Duration) -> Self {
        let models =
            format!(r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","owned_by":"load"}}]}}"#);
        let event = format!(
            r#"data: {{"id":"chatcmpl-load","object":"chat.completion.chunk","created":0,"model":"{MODEL}","choices":[{{"index":0,"delta":{{"content":" token"}},"finish_reason":null}}]}}"#
        );
        let token = format!("{:x}\r\n{event}\n\n\r\n", event.len() + 2);
        let message = (
            "chat.completion",
            r#""message":{"role":"assistant","content":""#,
            r#""}"#,
        );
        let text = ("text_completion", r#""text":""#, r#"""#);
        Self {
            spacing,
            chat: framed("200 OK", completion(message)),
            completion: framed("200 OK", completion(text)),
            prefilled: framed("200 OK", prefilled()),
            models: framed("200 OK", models.into_bytes()),
            health: framed("200 OK", Vec::new()),
            not_found: framed(
                "404 Not Found",
                br#"{"error":{"message":"no such path","type":"NotFoundError","param":null,"code":404}}"#.to_vec(),
            ),
            stream_head: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
            token: token.into_bytes(),
            stream_end: b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n".to_vec(),
        }
    }

    /// Returns one token as an event in a chunk.
    pub(super) fn token(&self) -> &[u8] {
        &self.token
    }

    /// Returns `[DONE]` and the last chunk.
    pub(super) fn stream_end(&self) -> &[u8] {
        &self.stream_end
    }

    pub(super) fn reply(&self, endpoint: Endpoint, body: &[u8]) -> Reply<'_> {
        let fixed = match endpoint {
            Endpoint::Chat | Endpoint::Completion if field(body, b"\"stream\"") == Some(b"true") => {
                let number = |name| std::str::from_utf8(field(body, name)?).ok()?.parse::<u32>().ok();
                let spacing = number(b"\"seed\"").map(|micros| Duration::from_micros(micros.into()));
                return Reply::Stream {
                    head: &self.stream_head,
                    tokens: number(b"\"max_tokens\"").unwrap_or(DEFAULT_TOKENS),
                    spacing: spacing.unwrap_or(self.spacing),
                    in_steps: spacing.is_none(),
                };
            }
            Endpoint::Chat | Endpoint::Completion
                if field_near_ends(body, b"\"do_remote_decode\"") == Some(b"true") =>
            {
                &self.prefilled
            }
            Endpoint::Tokenize => return Reply::Built(tokenized(body)),
            Endpoint::Chat => &self.chat,
            Endpoint::Completion => &self.completion,
            Endpoint::Models => &self.models,
            Endpoint::Health => &self.health,
            Endpoint::Unknown => &self.not_found,
        };
        Reply::Fixed(fixed)
    }
}

fn framed(status: &str, body: Vec<u8>) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Returns a completion whose text fills it up to its length.
fn completion((object, before, after): (&str, &str, &str)) -> Vec<u8> {
    let start = format!(
        r#"{{"id":"cmpl-load","object":"{object}","created":0,"model":"{MODEL}","choices":[{{"index":0,{before}"#
    );
    let end = format!(
        r#"{after},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":256,"completion_tokens":16,"total_tokens":272}}}}"#
    );
    let text = "token "
        .bytes()
        .cycle()
        .take(COMPLETION_BYTES - start.len() - end.len());
    start.bytes().chain(text).chain(end.bytes()).collect()
}

/// Returns the answer of vLLM's `NixlConnector` to a prefill leg.
fn prefilled() -> Vec<u8> {
    let params = r#"{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]],"remote_engine_id":"00000000-0000-0000-0000-000000000000","remote_request_id":"chatcmpl-load-00000000","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,"remote_num_tokens":256,"remote_prefill_cached_tokens":0}"#;
    format!(
        r#"{{"id":"cmpl-load","object":"chat.completion","created":0,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"token"}},"finish_reason":"length"}}],"usage":{{"prompt_tokens":256,"completion_tokens":1,"total_tokens":257}},"kv_transfer_params":{params}}}"#
    )
    .into_bytes()
}

/// Returns one token per four bytes of the body, the last one perhaps of fewer. Equal bytes give equal tokens, so that
/// bodies which share a prefix share tokens.
fn tokenized(body: &[u8]) -> Vec<u8> {
    let count = body.len().div_ceil(4);
    let mut json = String::with_capacity(64 + count * 7);
    // Writing to a string cannot fail.
    let _ = write!(json, r#"{{"count":{count},"max_model_len":131072,"tokens":["#);
    for (index, group) in body.chunks(4).enumerate() {
        let value = group
            .iter()
            .fold(0_u32, |value, byte| (value << 8) | u32::from(*byte));
        // Spread over a vocabulary of 2^17 (Fibonacci hashing).
        let id = value.wrapping_mul(0x9E37_79B1) >> 15;
        let _ = write!(json, "{}{id}", if index == 0 { "" } else { "," });
    }
    json += r#"],"token_strs":null}"#;
    framed("200 OK", json.into_bytes())
}

/// Returns the bare value (a number, `true`, ...) after the first `name` in a body.
fn field<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    field_near_ends(body, name).or_else(|| field_in(body, name))
}

/// Returns the field if it is near either end.
fn field_near_ends<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let start = &body[..body.len().min(FIELD_WINDOW)];
    let end = &body[body.len().saturating_sub(FIELD_WINDOW)..];
    field_in(start, name).or_else(|| field_in(end, name))
}

fn field_in<'a>(window: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = memmem::find(window, name)?;
    let value = window[at + name.len()..]
        .trim_ascii_start()
        .strip_prefix(b":")?
        .trim_ascii_start();
    let length = value
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .count();
    Some(&value[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<u32>) {
        let replies = Replies::new(Duration::ZERO);
        let tokens = match replies.reply(Endpoint::Chat, body.as_bytes()) {
            Reply::Stream { tokens, .. } => Some(tokens),
            Reply::Fixed(_) | Reply::Built(_) => None,
        };
        assert_eq!(tokens, expected, "{body}");
    }

    #[test]
    fn streams_where_the_request_has_it_at_either_end() {
        let prompt = "x".repeat(2 * FIELD_WINDOW);
        check(r#"{"stream":true,"max_tokens":7}"#, Some(7));
        check(r#"{"stream" : true}"#, Some(DEFAULT_TOKENS));
        check(r#"{"stream":false,"max_tokens":7}"#, None);
        check(r#"{"max_tokens":7}"#, None);
        check(
            &format!(r#"{{"max_tokens":3,"p":"{prompt}","stream":true}}"#),
            Some(3),
        );
        check(
            &format!(r#"{{"p":"{prompt}","stream":true,"max_tokens":9,"q":"{prompt}"}}"#),
            Some(9),
        );
        check("", None);
    }

    #[test]
    fn a_seed_is_the_pause_in_microseconds() {
        let replies = Replies::new(Duration::from_millis(3));
        let spacing = |body: &str| match replies.reply(Endpoint::Chat, body.as_bytes()) {
            Reply::Stream { spacing, .. } => spacing,
            Reply::Fixed(_) | Reply::Built(_) => Duration::MAX,
        };
        assert_eq!(spacing(r#"{"stream":true}"#), Duration::from_millis(3));
        assert_eq!(
            spacing(r#"{"stream":true,"seed":250}"#),
            Duration::from_micros(250)
        );
    }

    #[test]
    fn a_completion_is_valid_json_of_one_kibibyte() {
        let replies = Replies::new(Duration::ZERO);
        for reply in [&replies.chat, &replies.completion] {
            let at = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
            assert_eq!(reply[at..].len(), COMPLETION_BYTES);
            let body: serde_json::Value = serde_json::from_slice(&reply[at..]).unwrap();
            assert_eq!(body["usage"]["prompt_tokens"], 256);
        }
    }
}
