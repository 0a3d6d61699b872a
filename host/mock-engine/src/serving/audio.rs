//! `/v1/audio/transcriptions` and `/v1/audio/translations`, after vLLM 0.32: a form with a file in, synthetic text
//! out. The prompt is a hash of each piece of the file, so equal files have equal texts.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::sequence::{Finish, Output};
use crate::serving::context::Context;
use crate::serving::form::parts;
use crate::serving::inference_request::InferenceRequest;
use crate::serving::refusal::Refusal;
use crate::serving::shapes::{AnswerSoFar, Dialect, Envelope};
use crate::tokens::{token_id, tokenize};

/// Bytes of a file per token.
const STRETCH: usize = 1024;
/// Assumed bytes per second of a file without a header.
const BYTES_A_SECOND: u32 = 32_000;

/// Recording fields of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recording {
    seconds: f64,
    language: String,
    /// `verbose_json` was requested.
    is_verbose: bool,
}

impl InferenceRequest {
    /// Parses a form of either path.
    pub(crate) fn audio(
        context: &Context,
        dialect: Dialect,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Self, Refusal> {
        let parts = parts(headers, body).ok_or_else(|| Refusal::plain("give a form".to_owned()))?;
        let (mut file, mut fields) = (None, Map::new());
        for part in parts {
            if part.name == "file" {
                file = Some(part.value);
            } else {
                let text = String::from_utf8_lossy(&part.value).into_owned();
                fields.insert(part.name, text.into());
            }
        }
        let file = file.filter(|file| !file.is_empty());
        let file = file.ok_or_else(|| Refusal::bad("file", "give a file that is not empty".to_owned()))?;
        let field = |name: &str| fields.get(name).and_then(Value::as_str);
        let is_on = |name: &str| field(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let format = field("response_format").unwrap_or("json");
        if !["json", "text", "verbose_json"].contains(&format) {
            let message =
                "Currently only support response_format: `text`, `json`, `verbose_json` or `diarized_json`";
            return Err(Refusal::plain(message.to_owned()));
        }
        let (stream, is_verbose) = (is_on("stream"), format == "verbose_json");
        if stream && is_verbose {
            return Err(Refusal::plain(format!(
                "{format} format doesn't support streaming case"
            )));
        }
        let mut shared = json!({"model": field("model"), "stream": stream});
        if stream {
            shared["stream_options"] = json!({
                "include_usage": is_on("stream_include_usage"),
                "continuous_usage_stats": is_on("stream_continuous_usage_stats"),
            });
        }
        let mut prompt = transcribe(&file);
        prompt.extend(tokenize(field("prompt").unwrap_or_default()));
        let mut parsed = Self::of_prompt(context, dialect, shared, prompt)?;
        parsed.recording = Some(Recording {
            seconds: seconds(&file),
            language: field("language").unwrap_or("en").to_owned(),
            is_verbose,
        });
        Ok(parsed)
    }
}

/// Returns the prompt of a file.
fn transcribe(file: &[u8]) -> Vec<u32> {
    let stretches = file.chunks(STRETCH);
    stretches
        .map(|stretch| token_id(&format!("{stretch:?}")))
        .collect()
}

/// Returns the length of a recording: from the header of a WAV file, else estimated by size.
fn seconds(file: &[u8]) -> f64 {
    let rate = file
        .starts_with(b"RIFF")
        .then(|| file.get(28..32)?.try_into().ok())
        .flatten();
    let rate = rate.map_or(BYTES_A_SECOND, u32::from_le_bytes).max(1);
    file.len().saturating_sub(44) as f64 / f64::from(rate)
}

impl Envelope {
    /// Returns the answer to a form without streaming.
    pub(super) fn transcript(&self, answer: &AnswerSoFar) -> Value {
        let text = answer.choice(0).text.trim();
        let Some(recording) = &self.recording else {
            return json!({"text": text});
        };
        if recording.is_verbose {
            let segment = json!({
                "id": 0, "avg_logprob": -0.5, "compression_ratio": 1.0, "end": recording.seconds, "no_speech_prob": null,
                "seek": 0, "start": 0.0, "temperature": 0.0, "text": text, "tokens": tokenize(&answer.choice(0).text),
            });
            return json!({
                "duration": recording.seconds, "language": recording.language, "text": text, "segments": [segment],
                "words": null,
            });
        }
        match self.dialect {
            // Only transcriptions count.
            Dialect::Translation => json!({"text": text}),
            _ => {
                let usage = json!({"type": "duration", "seconds": recording.seconds.ceil() as u64});
                json!({"text": text, "usage": usage})
            }
        }
    }

    /// Returns the chunk of one token.
    pub(super) fn transcript_chunk(&self, output: &Output) -> Value {
        let mut choice = json!({"delta": {"content": output.text}});
        if let Some(finish) = output.finish {
            choice["finish_reason"] = Finish::as_str(finish).into();
            choice["stop_reason"] = Value::Null;
        }
        choice
    }
}
