//! Errors with vLLM's texts and shapes.

use http::StatusCode;
use serde_json::{Value, json};

/// An error: `{"error":{"message","type","param","code"}}`.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    param: Option<String>,
    pub(super) message: String,
    pub(super) retry_after: Option<u32>,
}

impl Refusal {
    fn new(status: StatusCode, kind: &'static str, param: Option<&str>, message: String) -> Self {
        Self {
            status,
            kind,
            param: param.map(str::to_owned),
            message,
            retry_after: None,
        }
    }

    /// Returns the error of an invalid parameter.
    pub(crate) fn bad(param: &str, message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", Some(param), message)
    }

    /// Returns the error of an invalid request, without a single parameter at fault.
    pub(crate) fn plain(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", None, message)
    }

    /// Returns the error of invalid JSON or fields.
    pub(crate) fn invalid(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let field = text
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split('`').next())
            .map(|field| format!("body.{field}"));
        Self {
            param: field,
            ..Self::new(
                StatusCode::BAD_REQUEST,
                "Bad Request",
                None,
                format!("1 validation error:\n  {text}"),
            )
        }
    }

    /// Returns the error of a body that is too large, or truncated.
    pub(crate) fn unreadable() -> Self {
        let message = "the body could not be read".to_owned();
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BadRequestError", None, message)
    }

    /// Returns the error of an unknown model.
    pub(crate) fn unknown_model(model: &str, served: &[&str]) -> Self {
        let message = format!(
            "The model `{model}` does not exist. Valid aliases: {}.",
            served.join(", ")
        );
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", Some("model"), message)
    }

    /// Returns the error of an invalid adapter to load.
    pub(crate) fn adapter_input(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidUserInput", None, message)
    }

    /// Returns the error of an unknown adapter to unload.
    pub(crate) fn unknown_adapter(name: &str) -> Self {
        let message = format!("The lora adapter '{name}' cannot be found.");
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", None, message)
    }

    /// Returns the error of an unknown response.
    pub(crate) fn unknown_response(id: &str) -> Self {
        let message = format!("Response with id '{id}' not found.");
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            Some("response_id"),
            message,
        )
    }

    /// Returns the error of a response that has ended, or was never in the background.
    pub(crate) fn not_to_cancel() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            Some("response_id"),
            "Cannot cancel a synchronous response.".to_owned(),
        )
    }

    /// Returns the error of a response without stored events.
    pub(crate) fn no_events(id: &str) -> Self {
        Self::bad("response_id", format!("Unknown response_id: {id}"))
    }

    /// Returns the error of a prompt without room for an answer.
    pub(crate) fn prompt_too_long(limit: u32, tokens: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {limit} tokens. However, your prompt contains {tokens} \
             input tokens, which exceeds this limit even without any output tokens. Please reduce the length \
             of the input prompt. (parameter=input_tokens, value={tokens})"
        );
        Self::bad("input_tokens", message)
    }

    /// Returns the error of a prompt without room for the requested answer.
    pub(crate) fn answer_too_long(limit: u32, prompt: usize, requested: u32) -> Self {
        let message = format!(
            "This model's maximum context length is {limit} tokens. However, you requested {requested} output \
             tokens and your prompt contains {prompt} input tokens. (parameter=max_tokens, value={requested})"
        );
        Self::bad("max_tokens", message)
    }

    /// Returns the error of a `max_tokens` below one.
    pub(crate) fn too_few_tokens(requested: i64) -> Self {
        let message = format!(
            "max_tokens must be at least 1, got {requested}. (parameter=max_tokens, value={requested})"
        );
        Self::bad("max_tokens", message)
    }

    /// Returns the error of a `min_tokens` above `max_tokens`.
    pub(crate) fn too_many_at_least(min: u32, max: u32) -> Self {
        let message = format!("min_tokens must be less than or equal to max_tokens={max}, got {min}.");
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", None, message)
    }

    /// Returns the error of `stream_options` without a stream.
    pub(crate) fn idle_stream_options() -> Self {
        let message = "Stream options can only be defined when `stream=True`.".to_owned();
        Self::bad("stream_options", message)
    }

    /// Returns the error of a rank in `X-data-parallel-rank` that the engine does not have.
    pub(crate) fn unknown_rank(rank: i64, ranks: u16) -> Self {
        let message = format!("data_parallel_rank {rank} is out of range [0, {ranks}).");
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", None, message)
    }

    /// Returns the error of a leg without the location of its other leg.
    pub(crate) fn no_room() -> Self {
        let message =
            "a disaggregated engine needs bootstrap_host and bootstrap_room for every prompt".to_owned();
        Self::bad("bootstrap_room", message)
    }

    /// Returns the error of a KV cache that did not arrive, or was not fetched.
    pub(crate) fn transfer_failed() -> Self {
        let message = "Internal server error".to_owned();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            None,
            message,
        )
    }

    /// Returns the error of a full queue.
    pub(crate) fn overloaded() -> Self {
        let message = "too many requests are waiting".to_owned();
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailableError",
            None,
            message,
        )
    }

    /// Returns the error of an engine that ended before the answer.
    pub(crate) fn engine_dead() -> Self {
        let message = "the engine stopped while serving this request".to_owned();
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalServerError",
            None,
            message,
        )
    }

    /// Returns the error of a scripted fault.
    pub(crate) fn scripted(status: StatusCode, retry_after: Option<u32>) -> Self {
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailableError",
            _ => "InternalServerError",
        };
        Self {
            retry_after,
            ..Self::new(status, kind, None, "a scripted fault".to_owned())
        }
    }

    /// Returns the error as JSON.
    pub(crate) fn error(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status.as_u16(),
        }})
    }
}
