//! Writer thread of the decision log, the shadow log or the access log.
//!
//! Every file of the first two is self-contained: it begins with a header, and describes a worker or policy before
//! its first use.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use routing::RunNumber;
use serde::Serialize;
use tracing::{error, info};

use crate::call::worker_line;
use crate::described::Described;
use crate::kind::LogKind;
use crate::line::{Line, LogLine, SCHEMA};
use crate::message::Message;
use crate::metrics::RecordMetrics;
use crate::output::LogOutput;
use crate::shadow_line::ShadowLogLine;
use crate::target::LogTarget;
use crate::text::unix_us;
use crate::trace::{Record, Trace};

/// Pause before a failed file is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Write buffer size in bytes.
const CHUNK: usize = 64 << 10;

/// The configured output.
#[derive(Debug, Default)]
pub(crate) struct TargetFile(Mutex<Option<LogTarget>>);

impl TargetFile {
    /// Sets it and returns whether it differs from the previous one.
    pub(crate) fn change(&self, to: Option<LogTarget>) -> bool {
        let mut target = self.get();
        let changed = *target != to;
        *target = to;
        changed
    }

    /// Returns whether a file is configured.
    pub(crate) fn is_set(&self) -> bool {
        self.get().is_some()
    }

    fn get(&self) -> MutexGuard<'_, Option<LogTarget>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identity of a log and of the process that writes it.
#[derive(Debug, Clone)]
pub(crate) struct LogIdentity {
    /// Name in log messages.
    pub(crate) title: &'static str,
    /// Kind of its files.
    pub(crate) kind: LogKind,
    /// Identifier of the process run, the same in all its files.
    pub(crate) run: Arc<str>,
    /// Run number, which seeds sampling together with a request's sequence number.
    pub(crate) number: RunNumber,
}

/// Generates a random run identifier.
pub(crate) fn random_run_id() -> Arc<str> {
    format!("{:016x}", RandomState::new().build_hasher().finish()).into()
}

/// Generates a random run number.
pub(crate) fn random_run_number() -> RunNumber {
    RunNumber(RandomState::new().build_hasher().finish())
}

/// State of the writer thread.
pub(crate) struct Writer {
    identity: LogIdentity,
    target: Arc<TargetFile>,
    metrics: RecordMetrics,
    /// The target that was last applied.
    current: Option<LogTarget>,
    file: Option<LogOutput>,
    tried: Option<Instant>,
    described: Described,
    /// Buffered lines.
    lines: Vec<u8>,
    /// Number of decisions and outcomes in the buffer.
    records: u64,
}

impl Writer {
    /// Starts the thread, which ends when the channel closes.
    pub(crate) fn spawn(
        identity: LogIdentity,
        records: Receiver<Message>,
        target: Arc<TargetFile>,
        metrics: RecordMetrics,
    ) -> io::Result<()> {
        let mut writer = Self::new(identity, target, metrics);
        let thread = std::thread::Builder::new().name("record".into());
        thread.spawn(move || writer.run(&records)).map(drop)
    }

    fn new(identity: LogIdentity, target: Arc<TargetFile>, metrics: RecordMetrics) -> Self {
        Self {
            identity,
            target,
            metrics,
            current: None,
            file: None,
            tried: None,
            described: Described::default(),
            lines: Vec::new(),
            records: 0,
        }
    }

    fn run(&mut self, records: &Receiver<Message>) {
        loop {
            let message = match records.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => break,
                // Flushed before waiting, so that readers of the file see the lines.
                Err(TryRecvError::Empty) => {
                    self.apply_target();
                    self.flush();
                    match records.recv() {
                        Ok(message) => message,
                        Err(_) => break,
                    }
                }
            };
            match message {
                Message::Call(trace, record) => self.write(|writer| writer.call(&trace, &record)),
                Message::Outcome(trace) => self.write(|writer| writer.outcome(&trace)),
                Message::Shadow(line) => {
                    self.write(|writer| writer.line(&ShadowLogLine::Shadow(*line)));
                }
                Message::Access(line) => self.write(|writer| writer.line(&*line)),
                Message::TargetChanged => self.apply_target(),
                Message::Close(done) => {
                    self.flush();
                    let _ = done.try_send(());
                }
            }
        }
        self.flush();
    }

    /// Switches to the configured file.
    fn apply_target(&mut self) {
        let target = self.target.get().clone();
        if target == self.current {
            return;
        }
        self.flush();
        if let Some(target) = &target {
            info!(file = name(target), "writing the {}", self.identity.title);
        }
        self.current = target;
        self.file = None;
        self.tried = None;
        self.open();
    }

    fn open(&mut self) {
        let Some(spec) = &self.current else { return };
        if self.tried.is_some_and(|tried| tried.elapsed() < RETRY_AFTER) {
            return;
        }
        let first_try = self.tried.is_none();
        match LogOutput::open(spec.clone(), self.identity.kind) {
            Ok(file) => {
                self.tried = None;
                self.begin(file);
            }
            Err(error) => {
                if first_try {
                    self.log_failure(&error);
                }
                self.tried = Some(Instant::now());
            }
        }
    }

    /// Starts an output, with its header line where it has one.
    fn begin(&mut self, output: LogOutput) {
        self.file = Some(output);
        if self.identity.kind == LogKind::Plain {
            return;
        }
        self.described = Described::default();
        let line = Line::Log(LogLine {
            schema: SCHEMA,
            conductor: env!("CARGO_PKG_VERSION").to_owned(),
            run: String::from(&*self.identity.run),
            seed: Some(format!("{:016x}", self.identity.number.0)),
            unix_us: unix_us(SystemTime::now()),
        });
        self.line(&line);
    }

    /// Appends the lines of one record. Counts the record as dropped if there is no file.
    fn write(&mut self, append: impl FnOnce(&mut Self)) {
        if self.file.is_none() {
            self.open();
        }
        // Checked once for a buffer, so that its lines follow the header of a truncated file.
        if self.lines.is_empty() {
            self.restart_truncated();
        }
        if self.file.as_mut().is_some_and(LogOutput::is_gone) {
            self.flush();
            self.file = None;
            self.open();
        }
        if self.is_full() {
            self.flush();
            // A truncated file has room again.
            if self.is_full() {
                self.rotate();
            }
        }
        if self.file.is_none() {
            self.metrics.no_file.inc();
            return;
        }
        append(self);
        self.records += 1;
        if self.lines.len() >= CHUNK {
            self.flush();
        }
    }

    fn is_full(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.is_full_with(self.lines.len()))
    }

    /// Begins a file again that another program truncated. Drops buffered lines that refer to its descriptions.
    fn restart_truncated(&mut self) {
        let Some(file) = self.file.take_if(|file| file.is_truncated()) else {
            return;
        };
        if self.identity.kind == LogKind::Described {
            self.lines.clear();
            self.metrics.no_file.inc_by(std::mem::take(&mut self.records));
        }
        match file.restart() {
            Ok(file) => self.begin(file),
            Err(error) => self.close_failed(&error),
        }
    }

    /// Continues in a new file.
    fn rotate(&mut self) {
        match self.file.take().map(LogOutput::rotate) {
            Some(Ok(file)) => self.begin(file),
            Some(Err(error)) => self.close_failed(&error),
            None => {}
        }
    }

    fn call(&mut self, trace: &Trace, record: &Record) {
        let call = &record.call;
        for worker in &call.workers {
            if self.described.is_new(worker) {
                self.line(&Line::Worker(worker_line(worker)));
            }
        }
        let (policy, is_new) = self.described.policy(&call.subject);
        if is_new {
            self.line(&Line::Policy(call.subject.line(policy)));
        }
        self.line(&Line::Decision(Box::new(call.line(&trace.request, policy))));
    }

    fn outcome(&mut self, trace: &Trace) {
        if let Some(outcome) = trace.written_outcome() {
            self.line(&Line::Outcome(Box::new(outcome)));
        }
    }

    fn line(&mut self, line: &impl Serialize) {
        serde_json::to_writer(&mut self.lines, line)
            .expect("lines have string keys, and writing to memory cannot fail");
        self.lines.push(b'\n');
    }

    /// Writes the buffered lines, and counts them as written or as dropped.
    fn flush(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        self.restart_truncated();
        let appended = self.file.as_mut().map(|file| file.append(&self.lines));
        self.lines.clear();
        let records = std::mem::take(&mut self.records);
        match appended {
            Some(Ok(())) => {
                self.metrics.written.inc_by(records);
            }
            Some(Err(error)) => {
                self.metrics.no_file.inc_by(records);
                self.close_failed(&error);
            }
            None => {
                self.metrics.no_file.inc_by(records);
            }
        }
    }

    fn close_failed(&mut self, error: &io::Error) {
        self.file = None;
        self.tried = Some(Instant::now());
        self.log_failure(error);
    }

    fn log_failure(&self, error: &io::Error) {
        let file = self.current.as_ref().map(name);
        error!(
            file,
            error = error as &dyn std::error::Error,
            "failed to write the {}; its lines are dropped until it can be written again",
            self.identity.title
        );
    }
}

/// Returns the name of an output in log messages.
fn name(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "-".to_owned(),
        LogTarget::File(spec) => spec.path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::file::{FileSpec, LogFile};

    fn writer(kind: LogKind) -> Writer {
        let metrics = RecordMetrics::register(&mut Registry::default());
        let identity = LogIdentity {
            title: "decision log",
            kind,
            run: random_run_id(),
            number: RunNumber::default(),
        };
        Writer::new(identity, Arc::default(), metrics)
    }

    fn spec(folder: &Path) -> FileSpec {
        FileSpec {
            path: folder.join("decisions.jsonl"),
            max_bytes: 1 << 20,
            keep: 1,
        }
    }

    /// Returns the lines of the file, and how many records were written and dropped.
    fn state(writer: &Writer, spec: &FileSpec) -> (Vec<String>, u64, u64) {
        let text = std::fs::read_to_string(&spec.path).unwrap();
        let (written, dropped) = (writer.metrics.written.get(), writer.metrics.no_file.get());
        (text.lines().map(String::from).collect(), written, dropped)
    }

    #[test]
    fn a_truncated_file_is_begun_again_with_a_header() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path());
        let mut writer = writer(LogKind::Described);
        let record = |writer: &mut Writer| writer.write(|writer| writer.lines.extend(b"{}\n"));
        writer.begin(LogOutput::open(LogTarget::File(spec.clone()), LogKind::Described).unwrap());
        record(&mut writer);
        writer.flush();
        std::fs::write(&spec.path, "").unwrap();
        record(&mut writer);
        writer.flush();
        let (lines, written, dropped) = state(&writer, &spec);
        assert!(lines[0].starts_with("{\"log\":{"), "{lines:?}");
        assert_eq!((lines.len(), written, dropped), (2, 2, 0));
        record(&mut writer);
        std::fs::write(&spec.path, "").unwrap();
        record(&mut writer);
        writer.flush();
        let (lines, written, dropped) = state(&writer, &spec);
        assert!(lines[0].starts_with("{\"log\":{"), "{lines:?}");
        assert_eq!(
            (lines.len(), written, dropped),
            (1, 2, 2),
            "buffered lines refer to what the file described"
        );
    }

    #[test]
    fn a_truncated_access_log_loses_no_buffered_line() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path());
        let mut writer = writer(LogKind::Plain);
        writer.begin(LogOutput::open(LogTarget::File(spec.clone()), LogKind::Plain).unwrap());
        for _ in 0..2 {
            writer.write(|writer| writer.lines.extend(b"{\"ts\":\"\"}\n"));
            std::fs::write(&spec.path, "").unwrap();
            writer.flush();
            assert_eq!(state(&writer, &spec).0.len(), 1);
        }
        assert_eq!(state(&writer, &spec).1, 2);
    }

    #[test]
    fn lines_that_fail_to_be_written_are_counted_as_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path());
        let mut writer = writer(LogKind::Described);
        writer.begin(LogOutput::File(LogFile::refusing(spec.clone()).unwrap()));
        for _ in 0..3 {
            writer.write(|writer| writer.lines.extend(b"{}\n"));
        }
        writer.flush();
        assert_eq!(
            (writer.metrics.written.get(), writer.metrics.no_file.get()),
            (0, 3)
        );
        writer.begin(LogOutput::open(LogTarget::File(spec), LogKind::Described).unwrap());
        writer.write(|writer| writer.lines.extend(b"{}\n"));
        assert_eq!(writer.metrics.written.get(), 0, "it is buffered");
        writer.flush();
        assert_eq!(
            (writer.metrics.written.get(), writer.metrics.no_file.get()),
            (1, 3)
        );
    }
}
