//! Recorder: the latest requests in memory, and the senders of the log files.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;
use routing::RunNumber;

use crate::access::AccessLine;
use crate::explained::Explained;
use crate::file::FileSpec;
use crate::kind::LogKind;
use crate::memory::{MemoryBudget, MemoryShare};
use crate::message::Message;
use crate::metrics::RecordMetrics;
use crate::sender::{LogSender, SenderPlan};
use crate::shadow_line::ShadowLine;
use crate::target::LogTarget;
use crate::text::{MAX_ID, cut};
use crate::trace::{Record, Trace, TraceSink};
use crate::writer::{self, LogIdentity};

/// Memory budget of all records in bytes, in the channel and in the list.
const MEMORY: usize = 64 << 20;

/// Recorder of decisions and of shadows' decisions. One exists per process.
#[derive(Debug)]
pub struct Recorder {
    latest: Mutex<VecDeque<Arc<Trace>>>,
    budget: Arc<MemoryBudget>,
    decisions: LogSender,
    shadows: LogSender,
    access: LogSender,
    run: RunNumber,
}

/// Destinations of records.
#[derive(Debug, Default)]
pub struct RecordFiles {
    /// Decision log. `None`: not written.
    pub decisions: Option<FileSpec>,
    /// Shadow log. `None`: not written.
    pub shadows: Option<FileSpec>,
    /// Access log. `None`: not written.
    pub access: Option<LogTarget>,
    /// Maximum number of requests kept in memory.
    pub explained: usize,
}

/// Prepared change of the destinations. Dropping it changes nothing.
#[derive(Debug)]
pub struct RecordPlan {
    decisions: SenderPlan,
    shadows: SenderPlan,
    access: SenderPlan,
    explained: usize,
}

impl Recorder {
    /// Creates a recorder without a file, registers its metrics, and generates the run number.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        Self::of_run(registry, writer::random_run_number())
    }

    /// Creates a recorder with a given run number.
    #[must_use]
    pub fn of_run(registry: &mut Registry, run: RunNumber) -> Arc<Self> {
        let name = writer::random_run_id();
        let identity = |title, kind| LogIdentity {
            title,
            kind,
            run: Arc::clone(&name),
            number: run,
        };
        Arc::new(Self {
            latest: Mutex::default(),
            budget: MemoryBudget::of(MEMORY),
            decisions: LogSender::new(
                identity("decision log", LogKind::Described),
                RecordMetrics::register(registry),
            ),
            shadows: LogSender::new(
                identity("shadow log", LogKind::Described),
                RecordMetrics::register_shadow_log(registry),
            ),
            access: LogSender::new(
                identity("access log", LogKind::Plain),
                RecordMetrics::register_access_log(registry),
            ),
            run,
        })
    }

    /// Returns the run number, which the header line of each decision log contains.
    #[must_use]
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// Prepares a change of the destinations, and starts the threads it needs.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn plan(&self, files: RecordFiles) -> io::Result<RecordPlan> {
        Ok(RecordPlan {
            decisions: self.decisions.plan(files.decisions.map(LogTarget::File))?,
            shadows: self.shadows.plan(files.shadows.map(LogTarget::File))?,
            access: self.access.plan(files.access)?,
            explained: files.explained,
        })
    }

    /// Applies a plan, and drops all but the latest requests. A file that cannot be written is logged and retried.
    pub fn apply(&self, plan: RecordPlan) {
        self.keep_latest(plan.explained);
        self.decisions.apply(plan.decisions);
        self.shadows.apply(plan.shadows);
        self.access.apply(plan.access);
    }

    /// Flushes the logs. Blocks for a few seconds at most.
    pub fn close(&self) {
        self.decisions.close();
        self.shadows.close();
        self.access.close();
    }

    /// Returns the latest request with that id. Ids are compared up to the recorded length.
    #[must_use]
    pub fn explain(&self, id: &str) -> Option<Explained> {
        let id = cut(id, MAX_ID);
        let trace = {
            let latest = self.latest();
            let mut newest_first = latest.iter().rev();
            newest_first.find(|trace| trace.request.id == *id).cloned()
        };
        trace.map(|trace| Explained::of(&trace))
    }

    /// Returns the latest requests, newest first, at most `max`.
    #[must_use]
    pub fn latest_traces(&self, max: usize) -> Vec<Arc<Trace>> {
        self.latest().iter().rev().take(max).cloned().collect()
    }

    /// Returns the number of requests in memory.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.latest().len()
    }

    /// Drops all but the latest `max` requests.
    fn keep_latest(&self, max: usize) {
        let mut latest = self.latest();
        let surplus = latest.len().saturating_sub(max);
        let gone: Vec<_> = latest.drain(..surplus).collect();
        drop(latest);
        drop(gone);
    }

    /// Keeps a request in memory, with at most `max` in total.
    pub(crate) fn remember(&self, trace: &Arc<Trace>, max: usize) {
        self.latest().push_back(Arc::clone(trace));
        self.keep_latest(max);
    }

    /// Returns whether the shadow log is configured.
    pub fn writes_shadows(&self) -> bool {
        self.shadows.has_target()
    }

    /// Writes a shadow's decision to the shadow log.
    pub fn write_shadow(&self, mut line: ShadowLine) {
        line.request = cut(&line.request, MAX_ID).into_owned();
        self.shadows.send(Message::Shadow(Box::new(line)));
    }

    /// Writes the line of a request that has ended, unless the access log was turned off meanwhile.
    pub fn write_access(&self, line: Box<AccessLine>) {
        if self.access.has_target() {
            self.access.send(Message::Access(line));
        }
    }

    fn latest(&self) -> MutexGuard<'_, VecDeque<Arc<Trace>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceSink for Recorder {
    /// If the budget is used up, evicts the oldest quarter of the list first.
    fn reserve(&self, bytes: usize) -> Option<MemoryShare> {
        let taken = self.budget.take(bytes).or_else(|| {
            let gone: Vec<_> = {
                let mut latest = self.latest();
                let oldest = latest.len().div_ceil(4);
                latest.drain(..oldest).collect()
            };
            drop(gone);
            self.budget.take(bytes)
        });
        if taken.is_none() {
            self.decisions.metrics.no_room.inc();
        }
        taken
    }

    fn write_call(&self, trace: &Arc<Trace>, record: Arc<Record>) {
        self.decisions.send(Message::Call(Arc::clone(trace), record));
    }

    fn write_outcome(&self, trace: &Arc<Trace>) {
        self.decisions.send(Message::Outcome(Arc::clone(trace)));
    }
}
