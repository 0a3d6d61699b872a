//! Context of one request: all facts before its placement. The context is built once. Decisions and attempts only read
//! it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use experiment::Assignment;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method};
use inference_api::{Endpoint, HandshakeError, Peek, Split};
use kv_index::Prompt;
use memchr::memmem;
use placement::AllowedShapes;
use routing::{Dialect, Phase, RunNumber};
use sha2::{Digest as _, Sha256};

use crate::base::headers::X_SESSION_ID;
use crate::dispatch::crashes::Crashes;
use crate::dispatch::split::{Handover, PdPool};
use crate::fleet::catalog::RequestModel;
use crate::limits::admission::RequestTerms;
use crate::limits::clients::Principal;
use crate::observe::decided_by::DecidedBy;
use crate::observe::experiments::Enrollment;
use crate::record::Trace;
use crate::request::route::{Decider, Route};
use crate::request::snapshot::{PoolState, Snapshot};

/// Bytes of the body for each token of a prompt whose tokens are unknown.
const BYTES_PER_TOKEN: usize = 4;
/// Shorter bodies have no images that would count for much.
const LOOKED_INTO: usize = 64 << 10;
/// Tokens for an image, or another file, in the body, whatever its bytes.
const TOKENS_PER_FILE: usize = 1_024;

#[derive(Debug)]
pub(crate) struct RequestContext {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Index of the route that took the request.
    pub(crate) route: usize,
    /// Arm that decides. `None` where the route has only one.
    pub(crate) assignment: Option<Assignment>,
    /// Number of the request, from 1.
    pub(crate) seq: u64,
    /// Number of the process's run.
    pub(crate) run: RunNumber,
    /// The request's `x-request-id`.
    pub(crate) id: HeaderValue,
    /// Time when the request's head had arrived.
    pub(crate) arrived: Instant,
    pub(crate) endpoint: Endpoint,
    pub(crate) method: Method,
    pub(crate) target: PathAndQuery,
    /// Headers, without those of the connection.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Estimated number of the prompt's tokens.
    pub(crate) estimated_tokens: usize,
    pub(crate) model: Box<str>,
    /// Members that serve the request's model.
    pub(crate) served: RequestModel,
    pub(crate) stream: bool,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) priority: Option<i64>,
    /// Hash of the client's session key.
    pub(crate) session: Option<u64>,
    /// The prompt as the index is queried for it, where its tokens are known.
    pub(crate) prompt: Option<HashedPrompt>,
    /// Parts of the bodies of two legs, where the request can be split between two workers.
    pub(crate) split: Option<(Split, Handover)>,
    /// Record in the decision log, where the request is recorded.
    pub(crate) trace: Option<Arc<Trace>>,
    /// Name of the deciding policy, where it is reported.
    pub(crate) decided_by: DecidedBy,
    /// `true` once a worker was sent the request.
    pub(crate) is_sent: AtomicBool,
    /// Workers that closed the connection on the request.
    pub(crate) crashes: Crashes,
    /// Index of the only member that can answer it: it keeps the response that this request goes on from.
    pub(crate) pinned: Option<usize>,
    /// Class, tenant and timeout that the request states.
    pub(crate) terms: RequestTerms,
    /// Client whose key the request has. `None` where clients need no key.
    pub(crate) caller: Option<Arc<Principal>>,
}

impl RequestContext {
    /// Returns what its lots are drawn from, besides the attempt.
    pub(crate) fn seed(&self) -> u64 {
        self.run.seed(self.seq)
    }

    pub(crate) fn route(&self) -> &Route {
        &self.snapshot.routes[self.route]
    }

    pub(crate) fn pool(&self) -> &PoolState {
        self.snapshot.pool_of(self.route)
    }

    /// Returns the deadline of the whole request, where that is limited.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.arrived.checked_add(self.pool().limits.request_timeout?)
    }

    /// Returns the policy that places that part of the request: its arm's, in every try.
    pub(crate) fn decider(&self, phase: Phase) -> &Decider {
        let arm = self.assignment.map_or(0, |assignment| assignment.arm);
        self.route().decider(phase, arm)
    }

    /// Returns `true` if the name of the deciding policy is needed: by the client, or by the comparison with the
    /// route's shadows.
    pub(crate) fn tells_who_decided(&self) -> bool {
        self.snapshot.decision_headers || self.route().shadows.is_some()
    }

    /// Enrolls the request in the experiment of the route, if there is one.
    pub(crate) fn enrollment(&self) -> Option<Enrollment> {
        let trial = Arc::clone(self.route().trial()?);
        Some(Enrollment::new(trial, self.assignment?, self.stream))
    }

    /// Returns the ways in which the request may be placed.
    pub(crate) fn allowed(&self) -> AllowedShapes {
        let alone = |pd: &PdPool| pd.spec.alone && pd.dialect().is_none_or(Dialect::decodes_alone);
        AllowedShapes {
            mixed: true,
            pair: self.split.is_some(),
            alone: self.pool().pd.as_ref().is_some_and(alone),
        }
    }

    /// Returns `true` if the request is not split because the dialect of its pool's engines is unknown.
    pub(crate) fn dialect_is_unknown(&self) -> bool {
        self.pool().pd.as_ref().is_some_and(|pd| pd.dialect().is_none())
    }

    /// Returns the prompt's length in tokens, estimated where it is not known.
    pub(crate) fn prompt_tokens(&self) -> u32 {
        let tokens = self
            .prompt
            .as_ref()
            .map_or(self.estimated_tokens, HashedPrompt::tokens);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }
}

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

/// Prompt that keeps the hashes that were needed so far. Each decision about it continues from the one before.
#[derive(Debug)]
pub(crate) struct HashedPrompt {
    tokens: usize,
    /// Prompt that one decision at a time uses: never waited for, and never held across an await.
    prompt: Mutex<Prompt<'static>>,
}

impl HashedPrompt {
    pub(crate) fn new(tokens: Vec<u32>, lora: Option<&str>, cache_salt: Option<&str>) -> Self {
        Self {
            tokens: tokens.len(),
            prompt: Mutex::new(Prompt::new(tokens, lora, cache_salt)),
        }
    }

    /// Returns the number of its tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Prompt<'static>> {
        self.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses the members of a hand-over, unless a router before this one writes them.
fn check_handover(pool: &PoolState, peek: &Peek<'_>) -> Result<(), HandshakeError> {
    match peek.forged_member() {
        Some(member) if !pool.accept_handover => Err(HandshakeError::Forged { member }),
        _ => Ok(()),
    }
}

/// Returns the parts of the bodies of two legs, where the pool splits requests and this one can be split.
pub(crate) async fn split(
    pool: &PoolState,
    endpoint: Endpoint,
    peek: &Peek<'_>,
    body: &Bytes,
) -> Result<Option<(Split, Handover)>, HandshakeError> {
    check_handover(pool, peek)?;
    let Some(pd) = &pool.pd else { return Ok(None) };
    if peek.form_size().is_some() {
        // No engine takes a handshake from a form.
        return Ok(None);
    }
    let split = Split::read(endpoint, &inference_api::without_bom(body.clone()))?;
    let handover = pd.handover().await;
    let handover = handover.filter(|handover| inference_api::splits(peek, handover.dialect));
    Ok(handover.map(|handover| (split, handover)))
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

/// Returns the FNV-1a hash, 64 bits. The hash is the same in every process and version, which policies may rely on.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes
        .iter()
        .fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
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

    /// Both legs and every retry query the same prompt.
    #[test]
    fn a_prompts_blocks_are_hashed_once() {
        let prompt = HashedPrompt::new((0..1_000).collect(), None, None);
        let first = prompt.lock().hashes(16, usize::MAX).to_vec();
        let at = |prompt: &HashedPrompt| prompt.lock().hashes(16, usize::MAX).as_ptr();
        let before = at(&prompt);
        assert_eq!(prompt.lock().hashes(16, 3)[..3], first[..3]);
        assert_eq!(at(&prompt), before);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(stable_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
