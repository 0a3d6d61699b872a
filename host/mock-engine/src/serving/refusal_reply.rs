//! Responses of errors, in OpenAI's and Anthropic's shapes.

use http::header::{HeaderValue, RETRY_AFTER};
use hyper::Response;
use serde_json::{Value, json};

use crate::serving::body::{ReplyBody, json_reply};
use crate::serving::refusal::Refusal;

impl Refusal {
    /// Returns the response in OpenAI's shape.
    pub(crate) fn into_reply(self) -> Response<ReplyBody> {
        let error = self.error();
        self.reply(&error)
    }

    /// Returns the response in Anthropic's shape.
    pub(crate) fn into_anthropic_reply(self) -> Response<ReplyBody> {
        let error = json!({"type": "error", "error": {"type": self.kind, "message": self.message}});
        self.reply(&error)
    }

    fn reply(self, error: &Value) -> Response<ReplyBody> {
        let mut reply = json_reply(self.status, error);
        if let Some(seconds) = self.retry_after {
            reply
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply
    }
}
