//! Load driver: plays conversations against a base URL, all sessions concurrently, and measures like a client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::workload::event_stream::{ChatStream, Usage};
use crate::workload::{Session, Summary};

/// Parameters of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Driver {
    /// `http://host:port` of an engine or a router.
    pub base_url: String,
    /// Most concurrent sessions; more are queued.
    pub concurrency: usize,
    /// Divisor of pauses: use the engines' time scale, so that all time is scaled alike.
    pub time_scale: f64,
    /// Header with the session's name, if any.
    pub session_header: Option<HeaderName>,
    /// Timeout of a request, in real time.
    pub timeout: Duration,
}

impl Default for Driver {
    /// 256 concurrent sessions in real time, named in `x-session-id`, a minute per request.
    fn default() -> Self {
        Self {
            base_url: String::new(),
            concurrency: 256,
            time_scale: 1.0,
            session_header: Some(HeaderName::from_static("x-session-id")),
            timeout: Duration::from_secs(60),
        }
    }
}

/// Error before a run.
#[derive(Debug, Error)]
pub enum DriveError {
    /// Invalid URL.
    #[error("use `{url}` as the base of a URL")]
    BaseUrl {
        /// The value.
        url: String,
        /// The cause.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// Invalid time scale.
    #[error("play at time scale {time_scale}: it must be above 0 and finite")]
    TimeScale {
        /// The value.
        time_scale: f64,
    },
}

/// Error of a turn. It is counted, and the session continues with the conversation so far.
#[derive(Debug, Error)]
pub enum TurnError {
    /// The request could not be built.
    #[error("build the request")]
    Request(#[source] http::Error),
    /// No answer.
    #[error("get an answer")]
    Send(#[source] hyper_util::client::legacy::Error),
    /// Another status than 200.
    #[error("get an answer: it was refused with {0}")]
    Refused(StatusCode),
    /// The connection broke off.
    #[error("read the answer to its end")]
    Broken(#[source] hyper::Error),
    /// Not a complete stream of chat chunks.
    #[error("read the answer: it is no complete stream of chat chunks")]
    NotAStream,
    /// Timeout.
    #[error("get the whole answer in {0:?}")]
    TimedOut(Duration),
}

type HttpClient = Client<HttpConnector, Full<Bytes>>;

struct Answered {
    ttft: Duration,
    text: String,
    usage: Usage,
}

impl Driver {
    /// Plays every session and waits for the last. Dropping the future stops them all.
    ///
    /// # Errors
    /// [`DriveError`] before anything was sent; failed requests are counted in the summary instead.
    pub async fn run(&self, sessions: &[Session]) -> Result<Summary, DriveError> {
        let url = format!("{}/v1/chat/completions", self.base_url.trim_end_matches('/'));
        let url: Uri = url.parse().map_err(|source| DriveError::BaseUrl {
            url: self.base_url.clone(),
            source,
        })?;
        if !(self.time_scale.is_finite() && self.time_scale > 0.0) {
            return Err(DriveError::TimeScale {
                time_scale: self.time_scale,
            });
        }
        let player = Arc::new(Player {
            url,
            client: Client::builder(TokioExecutor::new()).build_http(),
            places: Semaphore::new(self.concurrency.max(1)),
            driver: self.clone(),
        });
        let begun = Instant::now();
        let mut playing = JoinSet::new();
        for session in sessions {
            let (player, session) = (Arc::clone(&player), session.clone());
            playing.spawn(async move { player.play(&session).await });
        }
        let mut summary = Summary::default();
        while let Some(turns) = playing.join_next().await {
            // A session's task neither panics nor is cancelled while this runs.
            for turn in turns.unwrap_or_default() {
                match turn {
                    Ok(answered) => summary.succeeded(answered.ttft, answered.usage),
                    Err(error) => summary.failed(error_chain(&error)),
                }
            }
        }
        summary.elapsed = begun.elapsed();
        Ok(summary)
    }
}

/// Returns an error and its sources in one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |line, source| format!("{line}: {source}"))
}

struct Player {
    url: Uri,
    client: HttpClient,
    places: Semaphore,
    driver: Driver,
}

impl Player {
    async fn play(&self, session: &Session) -> Vec<Result<Answered, TurnError>> {
        let Ok(_place) = self.places.acquire().await else {
            return Vec::new();
        };
        let (mut turns, mut answers) = (Vec::new(), Vec::new());
        for (number, turn) in session.turns.iter().enumerate() {
            tokio::time::sleep(turn.pause.div_f64(self.driver.time_scale)).await;
            let limit = self.driver.timeout;
            let answer = tokio::time::timeout(limit, self.send(session, number, &answers)).await;
            let answer = answer.unwrap_or(Err(TurnError::TimedOut(limit)));
            answers.push(
                answer
                    .as_ref()
                    .map_or(String::new(), |answer| answer.text.clone()),
            );
            turns.push(answer);
        }
        turns
    }

    async fn send(&self, session: &Session, turn: usize, answers: &[String]) -> Result<Answered, TurnError> {
        let mut request = Request::post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        if let Some(header) = &self.driver.session_header {
            request = request.header(header, &session.name);
        }
        let body = Full::new(Bytes::from(session.body(turn, answers)));
        let request = request.body(body).map_err(TurnError::Request)?;
        let sent = Instant::now();
        let answer = self.client.request(request).await.map_err(TurnError::Send)?;
        if answer.status() != StatusCode::OK {
            return Err(TurnError::Refused(answer.status()));
        }
        let (mut body, mut stream, mut ttft) = (answer.into_body(), ChatStream::default(), None);
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(TurnError::Broken)?.into_data() else {
                continue;
            };
            stream.push(&bytes).map_err(|_| TurnError::NotAStream)?;
            if ttft.is_none() && !stream.text.is_empty() {
                ttft = Some(sent.elapsed());
            }
        }
        match ttft {
            Some(ttft) if stream.done => Ok(Answered {
                ttft,
                text: stream.text,
                usage: stream.usage,
            }),
            _ => Err(TurnError::NotAStream),
        }
    }
}
