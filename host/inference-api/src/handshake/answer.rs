//! Prefill leg answers.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

/// The prefill worker's answer is not one of vLLM's.
#[derive(Debug, Error)]
#[error("read the prefill worker's answer")]
pub struct PrefillAnswerError {
    #[source]
    source: serde_json::Error,
}

/// Contents of a prefill leg's answer besides its one token (vLLM 0.32).
#[derive(Debug, Clone, Copy)]
pub struct PrefillAnswer<'a> {
    /// `kv_transfer_params`, if they name an engine to fetch from: the decode leg passes them on unchanged.
    pub params: Option<&'a RawValue>,
    /// `usage.prompt_tokens_details.cached_tokens`, or `usage.cache_read_input_tokens` of a message.
    pub cached_tokens: Option<u64>,
    /// `usage.input_tokens` of a message: the tokens that were not cached.
    pub input_tokens: Option<u64>,
    /// Set if the one token ended the answer. Mooncake then hands nothing over.
    pub stopped: bool,
}

#[derive(Deserialize)]
struct RawAnswer<'a> {
    #[serde(borrow)]
    choices: Option<Vec<RawChoice<'a>>>,
    usage: Option<AnswerUsage>,
    #[serde(borrow)]
    kv_transfer_params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawChoice<'a> {
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct AnswerUsage {
    prompt_tokens_details: Option<PromptTokens>,
    cache_read_input_tokens: Option<u64>,
    input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptTokens {
    cached_tokens: Option<u64>,
}

impl<'a> PrefillAnswer<'a> {
    /// Reads a whole (unstreamed) answer.
    ///
    /// # Errors
    /// [`PrefillAnswerError`] if it is not a JSON object, or a member has another type than vLLM's.
    pub fn read(body: &'a [u8]) -> Result<Self, PrefillAnswerError> {
        let answer: RawAnswer<'a> =
            serde_json::from_slice(body).map_err(|source| PrefillAnswerError { source })?;
        let usage = answer.usage.as_ref();
        let details = usage.and_then(|usage| usage.prompt_tokens_details.as_ref());
        let mut reasons = answer
            .choices
            .iter()
            .flatten()
            .filter_map(|choice| choice.finish_reason);
        Ok(Self {
            params: answer.kv_transfer_params.filter(|params| names_an_engine(params)),
            cached_tokens: details
                .and_then(|details| details.cached_tokens)
                .or_else(|| usage.and_then(|usage| usage.cache_read_input_tokens)),
            input_tokens: usage.and_then(|usage| usage.input_tokens),
            stopped: reasons.any(|reason| reason.get() == r#""stop""#),
        })
    }
}

/// Returns `true` if the parameters name an engine. Without these a decode leg hangs or computes the prompt itself.
/// Further requirements differ by version.
fn names_an_engine(params: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct RawParams<'a> {
        do_remote_prefill: bool,
        #[serde(borrow)]
        remote_engine_id: Cow<'a, str>,
    }
    serde_json::from_str::<RawParams<'_>>(params.get())
        .is_ok_and(|params| params.do_remote_prefill && !params.remote_engine_id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_kept_as_they_stand_and_usage_is_read() {
        let answer = br#"{"choices":[{"index":0,"text":"\"}","finish_reason":"length"}],
            "usage":{"prompt_tokens":170,"prompt_tokens_details":{"cached_tokens":128,"created_cache_tokens":null}},
            "kv_transfer_params":{"do_remote_prefill": true,"remote_engine_id":"e","x":"\u00e9"},"metrics":null}"#;
        let answer = PrefillAnswer::read(answer).unwrap();
        assert_eq!(
            answer.params.unwrap().get(),
            r#"{"do_remote_prefill": true,"remote_engine_id":"e","x":"\u00e9"}"#
        );
        assert_eq!(answer.cached_tokens, Some(128));
        assert!(!answer.stopped);
        let message = br#"{"type":"message","usage":{"input_tokens":138,"cache_read_input_tokens":32}}"#;
        let message = PrefillAnswer::read(message).unwrap();
        assert_eq!(
            (message.cached_tokens, message.input_tokens),
            (Some(32), Some(138))
        );
    }

    #[test]
    fn absent_fields_of_a_prefill_answer_are_none() {
        for answer in [
            "{}",
            r#"{"usage":null,"kv_transfer_params":null,"choices":null}"#,
            r#"{"kv_transfer_params":{}}"#,
            r#"{"kv_transfer_params":{"do_remote_prefill":true,"remote_engine_id":""}}"#,
            r#"{"kv_transfer_params":{"do_remote_prefill":false,"remote_engine_id":"e"}}"#,
            r#"{"usage":{"prompt_tokens_details":null},"kv_transfer_params":[],"choices":[{"finish_reason":null}]}"#,
        ] {
            let answer = PrefillAnswer::read(answer.as_bytes()).unwrap();
            assert!(answer.params.is_none() && !answer.stopped);
            assert_eq!(answer.cached_tokens, None);
        }
        assert!(PrefillAnswer::read(b"data: {}").is_err());
        assert!(PrefillAnswer::read(br#"{"usage":7}"#).is_err());
    }

    #[test]
    fn a_token_that_ends_the_answer_is_seen_in_any_choice() {
        let answer = br#"{"choices":[{"finish_reason":"length"},{"finish_reason":"stop"}]}"#;
        assert!(PrefillAnswer::read(answer).unwrap().stopped);
    }
}
