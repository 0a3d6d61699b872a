//! Keep-alive comments on idle streams: in the queue, during a long prefill, between tokens.
//!
//! Clients and proxies between give up on connections that are silent for too long. Readers of server-sent events
//! ignore a comment (a line that begins with a colon).
//!
//! The first comment needs the head of the answer, so status 200 is sent before any worker answered. A later failure is
//! sent as an event of the stream, as it is in the middle of one. Attempts on other workers continue meanwhile.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use inference_api::Endpoint;
use serde::Deserialize;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::base::headers::is_event_stream;
use crate::base::keep_alive::KeepAlive;
use crate::base::readiness::Readiness;
use crate::base::reply::{self, Refusal};
use crate::request::relay_error::{RelayError, broken_off_event};
use crate::request::response_body::{Body, WriteError};
use crate::request::stream::Relay;

const COMMENT: &[u8] = b": keep-alive\n\n";
/// Longest part of a worker's refusal that is kept for the event.
const LONGEST_REFUSAL: usize = 64 << 10;

type Serving = Pin<Box<dyn Future<Output = Result<Response<Body>, Refusal>> + Send>>;

/// Answers a request for a stream with the result of `serving`. If there is no result for too long, the head of a
/// stream is sent first.
pub(crate) async fn answer(
    keep_alive: KeepAlive,
    endpoint: Endpoint,
    readiness: Readiness,
    serving: impl Future<Output = Result<Response<Body>, Refusal>> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let mut serving: Serving = Box::pin(serving);
    let kept = |stage| KeepAliveBody {
        is_comment_due: matches!(stage, Stage::Serving(_)),
        timer: Box::pin(sleep_until(Instant::now() + keep_alive.every)),
        keep_alive: keep_alive.clone(),
        endpoint,
        readiness,
        stage,
        silent_since: None,
        last: *b"\n\n\n\n",
    };
    let Ok(served) = timeout(keep_alive.every, &mut serving).await else {
        let mut head = Response::new(Body::KeepAlive(Box::new(kept(Stage::Serving(serving)))));
        let events = HeaderValue::from_static("text/event-stream; charset=utf-8");
        head.headers_mut().insert(CONTENT_TYPE, events);
        head.headers_mut()
            .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        return Ok(head);
    };
    let (head, body) = served?.into_parts();
    Ok(match body {
        Body::Relay(relay) if can_be_added_to(&head, &relay) => {
            Response::from_parts(head, Body::KeepAlive(Box::new(kept(Stage::Relaying(relay)))))
        }
        body => Response::from_parts(head, body),
    })
}

/// Returns `true` if the answer is a stream of events that is neither compressed nor of an announced length.
fn can_be_added_to(head: &http::response::Parts, relay: &Relay) -> bool {
    head.status.is_success()
        && is_event_stream(&head.headers)
        && !head.headers.contains_key(CONTENT_ENCODING)
        && relay.size_hint().exact().is_none()
}

/// Body of a stream with keep-alive comments.
pub(crate) struct KeepAliveBody {
    stage: Stage,
    keep_alive: KeepAlive,
    endpoint: Endpoint,
    readiness: Readiness,
    /// `true` while a comment is due at once: the head was sent because there was nothing else to send.
    is_comment_due: bool,
    silent_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    /// Last bytes that were sent. A comment may not stand in the middle of an event.
    last: [u8; 4],
}

enum Stage {
    /// No worker has answered yet.
    Serving(Serving),
    Relaying(Box<Relay>),
    /// The answer is no stream. Its body is read so that it can be sent as an event.
    Refused {
        status: StatusCode,
        body: Body,
        text: Vec<u8>,
        /// `true` if the refusal was longer.
        is_cut: bool,
    },
    Over,
}

impl Stage {
    fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        match body {
            Body::Relay(relay) if can_be_added_to(&head, &relay) => Self::Relaying(relay),
            body => Self::Refused {
                status: head.status,
                body,
                text: Vec::new(),
                is_cut: false,
            },
        }
    }
}

impl KeepAliveBody {
    /// Returns the next frame of the answer, if there is one.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, WriteError>>> {
        loop {
            match &mut self.stage {
                Stage::Serving(_) if self.readiness.is_cutting() => {
                    let event = broken_off_event(self.endpoint, &RelayError::ShuttingDown, 0);
                    return Poll::Ready(self.last_words(event));
                }
                Stage::Serving(serving) => match ready!(serving.as_mut().poll(cx)) {
                    Ok(response) => self.stage = Stage::of(response),
                    // A worker's answer that was held back has its own status and message.
                    Err(Refusal::Relayed(response)) => self.stage = Stage::of((*response).map(Body::from)),
                    Err(refusal) => {
                        let event = reply::event(self.endpoint, &refusal);
                        return Poll::Ready(self.last_words(event));
                    }
                },
                Stage::Relaying(relay) => {
                    let frame = ready!(Pin::new(&mut **relay).poll_frame(cx));
                    return Poll::Ready(frame.map(|frame| frame.map_err(WriteError::Relay)));
                }
                Stage::Refused {
                    status,
                    body,
                    text,
                    is_cut,
                } => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        if let Some(data) = frame.data_ref() {
                            let room = LONGEST_REFUSAL - text.len();
                            text.extend(data.iter().take(room));
                            *is_cut |= data.len() > room;
                        }
                    }
                    Some(Err(_)) => {
                        let event = refusal_event(self.endpoint, *status, text, true);
                        return Poll::Ready(self.last_words(event));
                    }
                    None => {
                        let event = refusal_event(self.endpoint, *status, text, *is_cut);
                        return Poll::Ready(self.last_words(event));
                    }
                },
                Stage::Over => return Poll::Ready(None),
            }
        }
    }

    fn last_words(&mut self, event: Vec<u8>) -> Option<Result<Frame<Bytes>, WriteError>> {
        self.stage = Stage::Over;
        Some(Ok(Frame::data(event.into())))
    }

    /// Remembers the end of the bytes that are sent.
    fn passed(&mut self, frame: &Frame<Bytes>) {
        self.is_comment_due = false;
        self.silent_since = None;
        for byte in frame.data_ref().into_iter().flat_map(last_of) {
            self.last.rotate_left(1);
            self.last[3] = *byte;
        }
    }

    fn is_between_events(&self) -> bool {
        [&b"\n\n"[..], b"\r\r", b"\n\r\n"]
            .iter()
            .any(|end| self.last.ends_with(end))
    }

    /// Returns ready once the stream was silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.is_comment_due) {
            self.silent_since = Some(Instant::now());
            return Poll::Ready(());
        }
        let every = self.keep_alive.every;
        let deadline = *self.silent_since.get_or_insert_with(Instant::now) + every;
        // One timer for all silences: set for the end of the first, and moved on when it fires.
        while self.timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                self.silent_since = Some(Instant::now());
                self.timer.as_mut().reset(Instant::now() + every);
                if self.is_between_events() {
                    return Poll::Ready(());
                }
            } else {
                self.timer.as_mut().reset(deadline);
            }
        }
        Poll::Pending
    }
}

/// Returns as many bytes as may end an event.
fn last_of(data: &Bytes) -> &[u8] {
    &data[data.len().saturating_sub(4)..]
}

/// Returns a worker's own refusal, or an answer in one piece, as an event. An incomplete answer is not sent in part.
fn refusal_event(endpoint: Endpoint, status: StatusCode, text: &[u8], is_cut: bool) -> Vec<u8> {
    /// vLLM and OpenAI have the message in `error`, SGLang at the top.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Refused {
        Within { error: Described },
        Top(Described),
    }
    #[derive(Deserialize)]
    struct Described {
        message: String,
    }
    if status.is_success() && is_cut {
        let message = "the worker's answer is no stream and could not be read to its end";
        return reply::relayed(endpoint, StatusCode::BAD_GATEWAY, message);
    }
    if status.is_success() && !text.is_empty() {
        // Either ends a line of server-sent events; of both together, the empty line between means nothing in JSON.
        let lines = text.split(|byte| matches!(byte, b'\n' | b'\r'));
        let lines: Vec<u8> = lines.flat_map(|line| [b"data: ", line, b"\n"].concat()).collect();
        return [&lines[..], b"\n"].concat();
    }
    let refused = serde_json::from_slice::<Refused>(text);
    let message = refused.map_or_else(
        |_| format!("the worker answered {status}"),
        |refused| match refused {
            Refused::Within { error } | Refused::Top(error) => error.message,
        },
    );
    reply::relayed(endpoint, status, &message)
}

impl HttpBody for KeepAliveBody {
    type Data = Bytes;
    type Error = WriteError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WriteError>>> {
        let kept = self.get_mut();
        if let Poll::Ready(frame) = kept.poll_answer(cx) {
            if let Some(Ok(frame)) = &frame {
                kept.passed(frame);
            }
            return Poll::Ready(frame);
        }
        ready!(kept.poll_silence(cx));
        kept.keep_alive.comments.inc();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.stage {
            Stage::Relaying(relay) => relay.is_end_stream(),
            Stage::Over => true,
            Stage::Serving(_) | Stage::Refused { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl fmt::Debug for KeepAliveBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAliveBody")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_refusal_becomes_an_event() {
        let check_cut = |status, text: &str, is_cut, expected: &str| {
            let event = refusal_event(
                Endpoint::ChatCompletions,
                StatusCode::from_u16(status).unwrap(),
                text.as_bytes(),
                is_cut,
            );
            let event = String::from_utf8(event).unwrap();
            assert_eq!(event.trim_start(), expected);
        };
        let check = |status, text: &str, expected: &str| check_cut(status, text, false, expected);
        check(
            400,
            r#"{"error":{"message":"too long","type":"BadRequestError","code":400}}"#,
            "data: {\"error\":{\"message\":\"too long\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"worker_refused\"}}\n\n",
        );
        check(
            500,
            "oops",
            "data: {\"error\":{\"message\":\"the worker answered 500 Internal Server Error\",\"type\":\"server_error\",\"param\":null,\"code\":\"worker_refused\"}}\n\n",
        );
        check(
            400,
            r#"{"object":"error","message":"too long","type":"BadRequestError","code":400}"#,
            "data: {\"error\":{\"message\":\"too long\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"worker_refused\"}}\n\n",
        );
        check(200, "{\n}", "data: {\ndata: }\n\n");
        check(200, "{\r}", "data: {\ndata: }\n\n");
        check_cut(
            200,
            "{}",
            true,
            "data: {\"error\":{\"message\":\"the worker's answer is no stream and could not be read to its end\",\"type\":\"server_error\",\"param\":null,\"code\":\"worker_refused\"}}\n\n",
        );
    }
}
