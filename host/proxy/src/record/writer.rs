//! The thread that writes the decision log, or that of what shadows decided.
//!
//! Every file can be read by itself: it begins with what wrote it, and a worker or a policy is described before the first
//! decision that names it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use routing::{RunNumber, WorkerId, WorkerSpec};
use serde::Serialize;
use tracing::{error, info};

use super::call_note::{NotedWorker, Subject, unix_us, worker_line};
use super::file::{FileSpec, LogFile};
use super::line::{Line, LogLine, SCHEMA};
use super::metrics::RecordMetrics;
use super::shadow_line::{ShadowLine, ShadowLogLine};
use super::trace::{Record, Trace};

/// Before a file that could not be written is tried again.
const REST: Duration = Duration::from_secs(1);
/// Bytes of lines that are written at once.
const CHUNK: usize = 64 << 10;
/// Workers that may be remembered as described before those that are gone are looked for.
const FEW_WORKERS: usize = 1_024;
/// Most policies that are remembered as described; beyond it all are described anew.
const MOST_POLICIES: usize = 256;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    /// A policy was asked.
    Call(Arc<Trace>, Arc<Record>),
    /// A request ended.
    Outcome(Arc<Trace>),
    /// A shadow was asked.
    Shadow(Box<ShadowLine>),
    /// The wish changed.
    Look,
    /// Write everything and say so.
    Close(SyncSender<()>),
}

/// Which file is to be written.
#[derive(Debug, Default)]
pub(super) struct Wish(Mutex<Option<FileSpec>>);

impl Wish {
    /// Whether it is another one.
    pub(super) fn change(&self, to: Option<FileSpec>) -> bool {
        let mut wish = self.get();
        let changed = *wish != to;
        *wish = to;
        changed
    }

    /// Whether there is one.
    pub(super) fn is_any(&self) -> bool {
        self.get().is_some()
    }

    fn get(&self) -> MutexGuard<'_, Option<FileSpec>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a file is called, and what is written of who writes it.
#[derive(Debug, Clone)]
pub(super) struct About {
    /// In the log.
    pub(super) title: &'static str,
    /// Tells runs of the router apart; the same in all files of one.
    pub(super) run: Arc<str>,
    /// Seeds the lots of the run, with a request's number.
    pub(super) number: RunNumber,
}

/// A run unlike any other.
pub(super) fn run() -> Arc<str> {
    format!("{:016x}", RandomState::new().build_hasher().finish()).into()
}

/// Draws a run number.
pub(super) fn random_run() -> RunNumber {
    RunNumber(RandomState::new().build_hasher().finish())
}

/// The thread's own.
pub(super) struct Writer {
    about: About,
    wish: Arc<Wish>,
    metrics: RecordMetrics,
    /// As the wish was last seen.
    wished: Option<FileSpec>,
    file: Option<LogFile>,
    tried: Option<Instant>,
    described: Described,
    /// On their way to the file.
    lines: Vec<u8>,
    /// How many decisions and outcomes are among them.
    records: u64,
}

/// What the file being written has told of already.
struct Described {
    workers: HashMap<WorkerId, Weak<WorkerSpec>>,
    /// Once there are so many of them, those that are gone are forgotten.
    most_workers: usize,
    policies: Vec<Subject>,
}

impl Writer {
    /// Starts the thread, which ends with the queue.
    pub(super) fn spawn(
        about: About,
        records: Receiver<Message>,
        wish: Arc<Wish>,
        metrics: RecordMetrics,
    ) -> io::Result<()> {
        let mut writer = Self::new(about, wish, metrics);
        let thread = std::thread::Builder::new().name("record".into());
        thread.spawn(move || writer.run(&records)).map(drop)
    }

    fn new(about: About, wish: Arc<Wish>, metrics: RecordMetrics) -> Self {
        Self {
            about,
            wish,
            metrics,
            wished: None,
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
                // Whoever reads along sees it now.
                Err(TryRecvError::Empty) => {
                    self.look();
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
                Message::Look => self.look(),
                Message::Close(done) => {
                    self.flush();
                    let _ = done.try_send(());
                }
            }
        }
        self.flush();
    }

    /// Sees to it that the file is the one that is wished for.
    fn look(&mut self) {
        let wish = self.wish.get().clone();
        if wish == self.wished {
            return;
        }
        self.flush();
        if let Some(spec) = &wish {
            info!(file = %spec.path.display(), "writing the {}", self.about.title);
        }
        self.wished = wish;
        self.file = None;
        self.tried = None;
        self.open();
    }

    fn open(&mut self) {
        let Some(spec) = &self.wished else { return };
        if self.tried.is_some_and(|tried| tried.elapsed() < REST) {
            return;
        }
        let first_try = self.tried.is_none();
        match LogFile::open(spec.clone()) {
            Ok(file) => {
                self.tried = None;
                self.begin(file);
            }
            Err(error) => {
                if first_try {
                    self.complain(&error);
                }
                self.tried = Some(Instant::now());
            }
        }
    }

    /// The first line of a file.
    fn begin(&mut self, file: LogFile) {
        self.file = Some(file);
        self.described = Described::default();
        let line = Line::Log(LogLine {
            schema: SCHEMA,
            conductor: env!("CARGO_PKG_VERSION").to_owned(),
            run: String::from(&*self.about.run),
            seed: Some(format!("{:016x}", self.about.number.0)),
            unix_us: unix_us(SystemTime::now()),
        });
        self.line(&line);
    }

    /// Takes the lines that `make` makes for the file; where there is none, that is counted.
    fn write(&mut self, make: impl FnOnce(&mut Self)) {
        if self.file.is_none() {
            self.open();
        }
        if self.file.as_mut().is_some_and(LogFile::is_gone) {
            self.flush();
            self.file = None;
            self.open();
        }
        if self
            .file
            .as_ref()
            .is_some_and(|file| file.is_full_with(self.lines.len()))
        {
            self.flush();
            self.turn();
        }
        if self.file.is_none() {
            self.metrics.no_file.inc();
            return;
        }
        make(self);
        self.records += 1;
        if self.lines.len() >= CHUNK {
            self.flush();
        }
    }

    /// Goes on in a new file.
    fn turn(&mut self) {
        match self.file.take().map(LogFile::turn) {
            Some(Ok(file)) => self.begin(file),
            Some(Err(error)) => self.gave_up(&error),
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
        self.line(&Line::Decision(Box::new(call.line(trace, policy))));
    }

    fn outcome(&mut self, trace: &Trace) {
        if let Some(outcome) = trace.written_outcome() {
            self.line(&Line::Outcome(Box::new(outcome)));
        }
    }

    fn line(&mut self, line: &impl Serialize) {
        serde_json::to_writer(&mut self.lines, line)
            .expect("a line has only texts as keys, and memory takes it");
        self.lines.push(b'\n');
    }

    /// Puts the lines into the file. They are counted as written only then; where it fails, as lost.
    fn flush(&mut self) {
        let appended = self.file.as_mut().map(|file| file.append(&self.lines));
        self.lines.clear();
        let records = std::mem::take(&mut self.records);
        match appended {
            Some(Ok(())) => {
                self.metrics.written.inc_by(records);
            }
            Some(Err(error)) => {
                self.metrics.no_file.inc_by(records);
                self.gave_up(&error);
            }
            None => {}
        }
    }

    fn gave_up(&mut self, error: &io::Error) {
        self.file = None;
        self.tried = Some(Instant::now());
        self.complain(error);
    }

    fn complain(&self, error: &io::Error) {
        let file = self.wished.as_ref().map(|spec| spec.path.display().to_string());
        error!(
            file,
            error = error as &dyn std::error::Error,
            "failed to write the {}; what is decided meanwhile is not recorded",
            self.about.title
        );
    }
}

impl Default for Described {
    fn default() -> Self {
        Self {
            workers: HashMap::new(),
            most_workers: FEW_WORKERS,
            policies: Vec::new(),
        }
    }
}

impl Described {
    /// Whether the worker has to be described before it is named.
    fn is_new(&mut self, worker: &NotedWorker) -> bool {
        let before = self.workers.insert(worker.id, Arc::downgrade(&worker.spec));
        if self.workers.len() >= self.most_workers {
            // Ids are never given twice.
            self.workers.retain(|_, spec| spec.strong_count() > 0);
            self.most_workers = FEW_WORKERS.max(2 * self.workers.len());
        }
        let before = before.and_then(|before| before.upgrade());
        before.is_none_or(|before| !Arc::ptr_eq(&before, &worker.spec) && before != worker.spec)
    }

    /// The number of a policy, and whether it has to be described before it is named.
    fn policy(&mut self, subject: &Subject) -> (u32, bool) {
        let id = |at: usize| u32::try_from(at + 1).unwrap_or(u32::MAX);
        if let Some(at) = self.policies.iter().position(|known| known == subject) {
            return (id(at), false);
        }
        if self.policies.len() >= MOST_POLICIES {
            self.policies.clear();
        }
        self.policies.push(subject.clone());
        (id(self.policies.len() - 1), true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prometheus_client::registry::Registry;
    use routing::{Role, Worker};

    use super::*;

    #[test]
    fn lines_that_do_not_reach_the_file_are_counted_as_lost_and_not_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let spec = FileSpec {
            path: folder.path().join("decisions.jsonl"),
            max_bytes: 1 << 20,
            keep: 1,
        };
        let metrics = RecordMetrics::register(&mut Registry::default());
        let about = About {
            title: "decision log",
            run: run(),
            number: RunNumber::default(),
        };
        let mut writer = Writer::new(about, Arc::default(), metrics);
        writer.begin(LogFile::refusing(spec.clone()).unwrap());
        for _ in 0..3 {
            writer.write(|writer| writer.lines.extend(b"{}\n"));
        }
        writer.flush();
        assert_eq!(
            (writer.metrics.written.get(), writer.metrics.no_file.get()),
            (0, 3)
        );
        writer.begin(LogFile::open(spec).unwrap());
        writer.write(|writer| writer.lines.extend(b"{}\n"));
        assert_eq!(writer.metrics.written.get(), 0, "it is on its way");
        writer.flush();
        assert_eq!(
            (writer.metrics.written.get(), writer.metrics.no_file.get()),
            (1, 3)
        );
    }

    #[test]
    fn workers_that_were_removed_are_let_go() {
        let worker = |id: u32| {
            let spec = WorkerSpec {
                name: "w".into(),
                url: "http://w".into(),
                role: Role::Mixed,
                models: Vec::new(),
                weight: 1.0,
                labels: BTreeMap::new(),
                rank: None,
                bootstrap: None,
            };
            NotedWorker::of(&Worker::new(WorkerId(id), spec))
        };
        let mut described = Described::default();
        let stays = worker(0);
        assert!(described.is_new(&stays) && !described.is_new(&stays));
        for id in 1..10_000 {
            let leaves = worker(id);
            assert!(described.is_new(&leaves));
            assert_eq!(Arc::strong_count(&leaves.spec), 1);
        }
        assert!(described.workers.len() <= FEW_WORKERS);
        assert!(!described.is_new(&stays));
    }
}
