//! Access record of one request: filled on the request's thread, and sent to the writer thread at the end.
//!
//! While the access log is off, the handle is empty, and each use of it is one check. The line of a request is sent
//! exactly once: at its end, else when the last handle is dropped, which is a client that left.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use decision_log::{AccessLine, AccessRequest, RecordSpec, Recorder};
use http::{HeaderValue, Method, StatusCode};
use inference_api::Tail;
use request_traces::TraceIdentity;

use crate::base::label::{OUTCOMES, Outcome};
use crate::base::reply::Refusal;
use crate::observe::stages::RequestStage;

/// Handle of a request's access record. Clones are handles of the same record.
#[derive(Debug, Clone, Default)]
pub(crate) struct AccessHandle(Option<Arc<AccessRecord>>);

/// Facts of a request at its arrival.
#[derive(Debug)]
pub(crate) struct AccessStart<'a> {
    /// Number of the request.
    pub(crate) seq: u64,
    /// The request's `x-request-id`.
    pub(crate) id: Option<&'a HeaderValue>,
    /// Name of the client whose key the request has.
    pub(crate) client: Option<&'a str>,
    pub(crate) method: &'a Method,
    /// Path of the endpoint, without ids.
    pub(crate) path: &'a str,
    /// Ids of its trace, while traces are on.
    pub(crate) trace: Option<TraceIdentity>,
    pub(crate) arrived: Instant,
    /// Generation of the configuration.
    pub(crate) generation: u64,
}

#[derive(Debug)]
struct AccessRecord {
    recorder: Arc<Recorder>,
    /// Set if the request has a line although it does not fail.
    is_sampled: bool,
    arrived: Instant,
    /// `None` once the request has ended.
    line: Mutex<Option<OpenLine>>,
}

/// Line of a request that has not ended.
#[derive(Debug)]
struct OpenLine {
    line: Box<AccessLine>,
    /// First and last piece of a stream.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl AccessHandle {
    /// Starts the record of a request, if the access log is on.
    pub(crate) fn begin<'a>(spec: &RecordSpec, start: impl FnOnce() -> AccessStart<'a>) -> Self {
        if spec.access.is_none() {
            return Self::default();
        }
        let start = start();
        let Some(is_sampled) = spec.in_access_log(start.seq) else {
            return Self::default();
        };
        let request = AccessRequest {
            request_id: AccessRequest::id_text(start.id.map_or(&[], |id| id.as_bytes())),
            client: start.client.map(Into::into),
            method: method_name(start.method),
            path: start.path.into(),
            model: None,
            stream: None,
            generation: start.generation,
            trace_id: start.trace.map(|ids| ids.trace.to_string().into()),
            sampled: start.trace.map(|ids| ids.is_sampled),
        };
        Self(Some(Arc::new(AccessRecord {
            recorder: Arc::clone(&spec.recorder),
            is_sampled,
            arrived: start.arrived,
            line: Mutex::new(Some(OpenLine {
                line: Box::new(AccessLine::of(request)),
                first: None,
                last: None,
            })),
        })))
    }

    /// Changes the line, unless the log is off or the request has ended.
    pub(crate) fn update(&self, change: impl FnOnce(&mut AccessLine)) {
        self.open(|open| change(&mut open.line));
    }

    /// Adds a time to a stage.
    pub(crate) fn took(&self, stage: RequestStage, time: Duration) {
        self.update(|line| {
            let stages = &mut line.stages;
            let total = match stage {
                RequestStage::Read => &mut stages.read,
                RequestStage::Tokens => &mut stages.tokens,
                RequestStage::Queue => &mut stages.queue,
                RequestStage::Decide => &mut stages.decide,
                RequestStage::Connect => &mut stages.connect,
                RequestStage::FirstByte => &mut stages.first_byte,
            };
            *total = Some(total.unwrap_or_default() + time);
        });
    }

    /// Records the status that the client is sent. The first one counts.
    pub(crate) fn status(&self, status: StatusCode) {
        self.update(|line| {
            line.end.status.get_or_insert(status.as_u16());
        });
    }

    /// Records the first byte of a stream, `after` the arrival.
    pub(crate) fn first_token(&self, after: Duration, now: Instant) {
        self.open(|open| {
            open.line.times.ttft = Some(after);
            open.first = Some(now);
        });
    }

    /// Records a piece of the answer, of that many bytes. `tail` has it. `streamed`: the time of a piece of a stream.
    pub(crate) fn chunk(&self, bytes: usize, tail: &Tail, streamed: Option<Instant>) {
        self.open(|open| {
            let passed = open.line.size.bytes_out.get_or_insert(0);
            *passed += bytes as u64;
            let Some(now) = streamed else { return };
            if let Some(last) = open.last.replace(now) {
                let longest = open.line.times.longest_pause.get_or_insert_default();
                *longest = (*longest).max(now.duration_since(last));
            }
            open.line.size.output_tokens = Some(tail.tokens_so_far());
        });
    }

    /// Records the usage of an answer that was read to its end.
    pub(crate) fn read(&self, tail: &Tail) {
        self.update(|line| {
            let size = &mut line.size;
            size.prompt_tokens = size.prompt_tokens.or(tail.prompt_tokens());
            size.cached_tokens = tail.cached_tokens();
            size.output_tokens = tail.output_tokens().or(size.output_tokens);
            line.end.finish = tail.finish_reason();
        });
    }

    /// Records the refusal of a request that its lifecycle ends.
    pub(crate) fn refusal(&self, refusal: &Refusal) {
        self.update(|line| {
            line.end.status.get_or_insert(refusal.status().as_u16());
            // The worker's own refusal has no code of the router.
            if !matches!(refusal, Refusal::Relayed(_)) {
                line.end.error_code = Some(refusal.code());
            }
        });
    }

    /// Ends a refused request that has no lifecycle. Later ends do nothing.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        if let Some(record) = &self.0 {
            self.refusal(refusal);
            record.end(refusal.outcome(), record.arrived.elapsed());
        }
    }

    /// Ends the request, `after` its arrival. Later ends do nothing.
    pub(crate) fn end(&self, outcome: Outcome, after: Duration) {
        if let Some(record) = &self.0 {
            record.end(outcome, after);
        }
    }

    fn open(&self, change: impl FnOnce(&mut OpenLine)) {
        if let Some(record) = &self.0
            && let Some(open) = &mut *record.line()
        {
            change(open);
        }
    }
}

impl AccessRecord {
    fn line(&self) -> MutexGuard<'_, Option<OpenLine>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, outcome: Outcome, after: Duration) {
        let Some(open) = self.line().take() else { return };
        let OpenLine {
            mut line,
            first,
            last,
        } = open;
        line.ts = SystemTime::now();
        line.end.outcome = OUTCOMES[outcome as usize].1;
        line.times.duration = after;
        if let (Outcome::Complete, Some(first), Some(last)) = (outcome, first, last) {
            line.times.tpot = per_token(last.duration_since(first), line.size.output_tokens);
        }
        if self.is_sampled || line.is_error() {
            self.recorder.write_access(line);
        }
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        self.end(Outcome::ClientLeft, self.arrived.elapsed());
    }
}

/// Returns the mean time of each token after the first.
fn per_token(time: Duration, tokens: Option<u64>) -> Option<Duration> {
    let later = u32::try_from(tokens?.checked_sub(1)?).ok()?;
    time.checked_div(later)
}

/// Returns the name of a method. Clients make up others.
pub(crate) fn method_name(method: &Method) -> &'static str {
    const METHODS: [(Method, &str); 7] = [
        (Method::POST, "POST"),
        (Method::GET, "GET"),
        (Method::DELETE, "DELETE"),
        (Method::PUT, "PUT"),
        (Method::PATCH, "PATCH"),
        (Method::HEAD, "HEAD"),
        (Method::OPTIONS, "OPTIONS"),
    ];
    let known = METHODS.iter().find(|(known, _)| known == method);
    known.map_or("other", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use decision_log::{FileSpec, LogTarget, RecordFiles, Sampling};
    use prometheus_client::registry::Registry;
    use serde_json::Value;

    use super::*;

    fn spec(folder: &Path, share: f64) -> RecordSpec {
        let recorder = Recorder::new(&mut Registry::default());
        let file = FileSpec {
            path: folder.join("access.jsonl"),
            max_bytes: 1 << 20,
            keep: 1,
        };
        let files = RecordFiles {
            access: Some(LogTarget::File(file)),
            ..RecordFiles::default()
        };
        recorder.apply(recorder.plan(files).unwrap());
        RecordSpec {
            access: Some(Sampling::share(share)),
            ..RecordSpec::nothing(recorder)
        }
    }

    fn begin(spec: &RecordSpec) -> AccessHandle {
        AccessHandle::begin(spec, || AccessStart {
            seq: 1,
            id: None,
            client: None,
            method: &Method::POST,
            path: "/v1/completions",
            trace: None,
            arrived: Instant::now(),
            generation: 1,
        })
    }

    /// Returns the lines once all pending ones are written.
    fn lines(spec: &RecordSpec, folder: &Path) -> Vec<Value> {
        spec.recorder.close();
        let text = fs::read_to_string(folder.join("access.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_request_has_one_line_however_often_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), 1.0);
        let handle = begin(&spec);
        handle.status(StatusCode::OK);
        handle.status(StatusCode::BAD_GATEWAY);
        handle.end(Outcome::Complete, Duration::from_millis(5));
        handle.end(Outcome::ClientLeft, Duration::from_millis(6));
        handle.refused(&Refusal::NoKey);
        drop(handle);
        let lines = lines(&spec, folder.path());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["status"], 200);
        assert_eq!(lines[0]["outcome"], "complete");
        assert_eq!(lines[0]["duration_s"], 0.005);
    }

    #[test]
    fn a_request_whose_handles_are_dropped_was_left_by_its_client() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), 0.0);
        let handle = begin(&spec);
        drop(handle.clone());
        drop(handle);
        let lines = lines(&spec, folder.path());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["outcome"], "client-left");
    }

    #[test]
    fn only_failed_requests_have_a_line_at_a_share_of_0() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), 0.0);
        let complete = begin(&spec);
        complete.status(StatusCode::OK);
        complete.end(Outcome::Complete, Duration::ZERO);
        begin(&spec).refused(&Refusal::NoKey);
        let lines = lines(&spec, folder.path());
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["status"], 401);
        assert_eq!(lines[0]["error_code"], "invalid_api_key");
        assert_eq!(lines[0]["outcome"], "unauthorized");
    }

    #[test]
    fn the_stages_of_several_attempts_are_added() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path(), 1.0);
        let handle = begin(&spec);
        handle.took(RequestStage::Decide, Duration::from_secs(2));
        handle.took(RequestStage::Decide, Duration::from_secs(3));
        handle.end(Outcome::Complete, Duration::ZERO);
        let lines = lines(&spec, folder.path());
        assert_eq!(lines[0]["decide_s"], 5.0);
        assert_eq!(lines[0]["queue_s"], Value::Null);
    }

    #[test]
    fn a_log_that_is_off_measures_nothing() {
        let off = RecordSpec::nothing(Recorder::new(&mut Registry::default()));
        let handle = AccessHandle::begin(&off, || unreachable!("nothing is read"));
        handle.update(|_| unreachable!("there is no line"));
    }

    #[test]
    fn the_time_of_a_token_is_known_from_the_second_on() {
        let check = |tokens, expected| assert_eq!(per_token(Duration::from_secs(6), tokens), expected);
        check(None, None);
        check(Some(0), None);
        check(Some(1), None);
        check(Some(4), Some(Duration::from_secs(2)));
    }
}
