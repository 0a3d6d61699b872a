//! The thread that writes the decision log.
//!
//! Every file can be read by itself: it begins with what wrote it, and a worker or a policy is described before the first
//! decision that names it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use routing::{Worker, WorkerId};
use tracing::{error, info};

use super::call_note::{Subject, unix_us, worker_line};
use super::file::{FileSpec, LogFile};
use super::line::{Line, LogLine, SCHEMA};
use super::metrics::RecordMetrics;
use super::trace::{Record, Trace};

/// Before a file that could not be written is tried again.
const REST: Duration = Duration::from_secs(1);
/// Most policies and workers that are remembered as described; beyond it all are described anew.
const MOST_DESCRIBED: usize = 65_536;
const MOST_POLICIES: usize = 256;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    /// A policy was asked.
    Call(Arc<Trace>, Arc<Record>),
    /// A request ended.
    Outcome(Arc<Trace>),
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

    fn get(&self) -> MutexGuard<'_, Option<FileSpec>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own.
pub(super) struct Writer {
    wish: Arc<Wish>,
    metrics: RecordMetrics,
    run: String,
    /// As the wish was last seen.
    wished: Option<FileSpec>,
    file: Option<LogFile>,
    tried: Option<Instant>,
    described: Described,
    lines: Vec<u8>,
}

/// What the file being written has told of already.
#[derive(Default)]
struct Described {
    workers: HashMap<WorkerId, Arc<Worker>>,
    policies: Vec<Subject>,
}

impl Writer {
    /// Starts the thread, which ends with the queue.
    pub(super) fn spawn(
        records: Receiver<Message>,
        wish: Arc<Wish>,
        metrics: RecordMetrics,
    ) -> io::Result<()> {
        let mut writer = Self {
            wish,
            metrics,
            run: format!("{:016x}", RandomState::new().build_hasher().finish()),
            wished: None,
            file: None,
            tried: None,
            described: Described::default(),
            lines: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("record".into());
        thread.spawn(move || writer.run(&records)).map(drop)
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
            info!(file = %spec.path.display(), "recording decisions");
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
            run: self.run.clone(),
            unix_us: unix_us(SystemTime::now()),
        });
        self.line(&line);
        self.append();
    }

    /// Writes the lines that `make` makes; what cannot be written is counted.
    fn write(&mut self, make: impl FnOnce(&mut Self)) {
        if self.file.is_none() {
            self.open();
        }
        if let Some(full) = self.file.take_if(|file| file.is_full()) {
            match full.turn() {
                Ok(file) => self.begin(file),
                Err(error) => self.gave_up(&error),
            }
        }
        if self.file.is_none() {
            self.metrics.no_file.inc();
            return;
        }
        make(self);
        if self.append() {
            self.metrics.written.inc();
        } else {
            self.metrics.no_file.inc();
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
        let outcome = trace.story().outcome.clone();
        if let Some(outcome) = outcome {
            self.line(&Line::Outcome(Box::new(outcome)));
        }
    }

    fn line(&mut self, line: &Line) {
        serde_json::to_writer(&mut self.lines, line)
            .expect("a line has only texts as keys, and memory takes it");
        self.lines.push(b'\n');
    }

    /// Whether the lines made are in the file.
    fn append(&mut self) -> bool {
        let lines = mem::take(&mut self.lines);
        let appended = self.file.as_mut().map(|file| file.append(&lines));
        self.lines = lines;
        self.lines.clear();
        match appended {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                self.gave_up(&error);
                false
            }
            None => false,
        }
    }

    fn flush(&mut self) {
        if let Some(Err(error)) = self.file.as_mut().map(LogFile::flush) {
            self.gave_up(&error);
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
            "failed to write the decision log; what is decided meanwhile is not recorded"
        );
    }
}

impl Described {
    /// Whether the worker has to be described before it is named.
    fn is_new(&mut self, worker: &Arc<Worker>) -> bool {
        if self.workers.len() >= MOST_DESCRIBED {
            self.workers.clear();
        }
        let before = self.workers.insert(worker.id(), Arc::clone(worker));
        before.is_none_or(|before| !Arc::ptr_eq(&before, worker) && before.spec() != worker.spec())
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
