//! Facts of a request that its headers and body state: its size, its session, and the parts of a split.

use bytes::Bytes;
use http::HeaderMap;
use inference_api::{Endpoint, HandshakeError, Peek, Split};
use memchr::memmem;
use sha2::{Digest as _, Sha256};

use crate::base::headers::X_SESSION_ID;
use crate::dispatch::inference_request::SplitRequest;
use crate::dispatch::pool_state::PoolState;

/// Bytes of the body for each token of a prompt whose tokens are unknown.
const BYTES_PER_TOKEN: usize = 4;
/// Shorter bodies have no images that would count for much.
const LOOKED_INTO: usize = 64 << 10;
/// Tokens for an image, or another file, in the body, whatever its bytes.
const TOKENS_PER_FILE: usize = 1_024;

/// Estimates the number of tokens of a request's prompt. Files count the same, whatever their bytes.
pub(crate) fn estimated_tokens(peek: &Peek<'_>, body: &[u8]) -> usize {
    match peek.form_size() {
        Some(form) => form.text_bytes / BYTES_PER_TOKEN + form.files * TOKENS_PER_FILE,
        None => tokens_of_json(body),
    }
}

/// Files in JSON (`"data:TYPE;base64,..."`) are no text.
fn tokens_of_json(body: &[u8]) -> usize {
    if body.len() <= LOOKED_INTO {
        return body.len() / BYTES_PER_TOKEN;
    }
    let (mut text, mut files) = (0, 0);
    let mut rest = body;
    while let Some(at) = memmem::find(rest, b"\"data:") {
        let (before, url) = rest.split_at(at + 1);
        text += before.len();
        let end = memchr::memchr(b'"', url).unwrap_or(url.len());
        if is_file(&url[..end]) {
            files += 1;
        } else {
            text += end;
        }
        rest = &url[end..];
    }
    (text + rest.len()) / BYTES_PER_TOKEN + files * TOKENS_PER_FILE
}

fn is_file(url: &[u8]) -> bool {
    /// Longest name of a type, with its parameters.
    const LONGEST_TYPE: usize = 128;
    let start = &url[..url.len().min(LONGEST_TYPE)];
    memmem::find(start, b";base64,").is_some()
}

/// Refuses the members of a hand-over, unless a router before this one writes them.
fn check_handover(pool: &PoolState, peek: &Peek<'_>) -> Result<(), HandshakeError> {
    match peek.forged_member() {
        Some(member) if !pool.bodies.accept_handover => Err(HandshakeError::Forged { member }),
        _ => Ok(()),
    }
}

/// Returns the parts of the bodies of two legs, where the pool splits requests and this one can be split. `may_split`:
/// the front end can send to two workers.
pub(crate) async fn split(
    pool: &PoolState,
    endpoint: Endpoint,
    peek: &Peek<'_>,
    body: &Bytes,
    may_split: bool,
) -> Result<Option<SplitRequest>, HandshakeError> {
    check_handover(pool, peek)?;
    let Some(pd) = pool.pd.as_ref().filter(|_| may_split) else {
        return Ok(None);
    };
    if peek.form_size().is_some() {
        // No engine takes a handshake from a form.
        return Ok(None);
    }
    let split = Split::read(endpoint, &inference_api::without_bom(body.clone()))?;
    let handover = pd.handover().await;
    let handover = handover.filter(|handover| inference_api::splits(peek, handover.dialect));
    Ok(handover.map(|handover| SplitRequest {
        bodies: split,
        handover,
    }))
}

/// Returns a hash of the session that the request names: by the header, else `prompt_cache_key`, else `user`.
///
/// The hash is the first 64 bits of SHA-256 over the configured client's name, a zero byte and the session's name. The
/// result is the same in every process and version. No client can name a session of another client, nor find a name
/// that collides with one.
pub(crate) fn session(client: Option<&str>, headers: &HeaderMap, peek: &Peek<'_>) -> Option<u64> {
    if let Some(key) = headers.get(X_SESSION_ID) {
        return Some(session_hash(client, key.as_bytes()));
    }
    let key = peek.prompt_cache_key().or_else(|| peek.user())?;
    Some(session_hash(client, key.as_bytes()))
}

fn session_hash(client: Option<&str>, key: &[u8]) -> u64 {
    let digest = Sha256::new()
        .chain_update(client.unwrap_or_default())
        .chain_update([0])
        .chain_update(key)
        .finalize();
    digest[..8]
        .iter()
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: Option<&'static str>, body: &str, expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(X_SESSION_ID, value.parse().unwrap());
        }
        let peek = inference_api::peek(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
        assert_eq!(
            session(None, &headers, &peek),
            expected.map(|key| session_hash(None, key.as_bytes()))
        );
    }

    #[test]
    fn a_session_is_named_by_header_then_cache_key_then_user() {
        let body = r#"{"prompt_cache_key":"k","user":"u"}"#;
        check(Some("h"), body, Some("h"));
        check(None, body, Some("k"));
        check(None, r#"{"user":"u"}"#, Some("u"));
        check(None, "{}", None);
    }

    #[test]
    fn no_client_can_name_a_session_of_another() {
        let hashes = [
            session_hash(None, b"s"),
            session_hash(Some("a"), b"s"),
            session_hash(Some("b"), b"s"),
            session_hash(Some("a"), b"t"),
        ];
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash), "session {at}");
        }
        assert_eq!(session_hash(Some("a"), b"s"), hashes[1]);
    }

    /// By `printf 'a\0s' | sha256sum`.
    #[test]
    fn a_session_hashes_alike_in_every_version() {
        assert_eq!(session_hash(Some("a"), b"s"), 0x6541_00f2_8cc2_af39);
    }

    #[test]
    fn a_file_in_a_long_body_counts_the_same_whatever_its_bytes() {
        let check = |body: &str, expected| assert_eq!(tokens_of_json(body.as_bytes()), expected);
        let long = "x".repeat(LOOKED_INTO);
        let file = |bytes| format!(r#""data:image/png;base64,{}""#, "A".repeat(bytes));
        check("12345678", 2);
        check(&long, LOOKED_INTO / 4);
        for bytes in [LOOKED_INTO, 10 * LOOKED_INTO] {
            check(&file(bytes), TOKENS_PER_FILE);
            check(&format!("{}, {}", file(bytes), file(1)), 2 * TOKENS_PER_FILE + 1);
        }
        // This body only looks like one.
        check(&format!(r#""data:{long}""#), (LOOKED_INTO + 7) / 4);
    }

    #[test]
    fn a_file_of_a_form_counts_the_same_whatever_its_bytes() {
        let check = |bytes: usize| {
            let file = "x".repeat(bytes);
            let body = format!(
                "--b\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n{file}\r\n\
                 --b\r\nContent-Disposition: form-data; name=prompt\r\n\r\n12345678\r\n--b--"
            );
            let form_type = Some(&b"multipart/form-data; boundary=b"[..]);
            let peek =
                inference_api::read_body(Endpoint::Transcriptions, form_type, body.as_bytes()).unwrap();
            assert_eq!(estimated_tokens(&peek, body.as_bytes()), TOKENS_PER_FILE + 2);
        };
        check(1);
        check(1 << 20);
    }
}
