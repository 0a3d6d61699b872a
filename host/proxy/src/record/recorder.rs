//! Where records go: the list of the latest in memory, and the files.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::registry::Registry;
use routing::RunNumber;

use super::call_note::cut;
use super::explained::Explained;
use super::file::FileSpec;
use super::metrics::RecordMetrics;
use super::outlet::{Outlet, OutletPlan};
use super::room::{Room, Taken};
use super::shadow_line::ShadowLine;
use super::trace::{LONGEST_ID, Record, Trace};
use super::writer::{self, About, Message};

/// Memory of all records, in bytes, in the queue and in the list.
const MEMORY: usize = 64 << 20;
/// Keeps the latest records and writes a file of them, and one of what shadows decided. One for as long as the router runs.
#[derive(Debug)]
pub struct Recorder {
    latest: Mutex<VecDeque<Arc<Trace>>>,
    room: Arc<Room>,
    decisions: Outlet,
    shadows: Outlet,
    run: RunNumber,
}

/// Where records go.
#[derive(Debug, Default)]
pub struct RecordFiles {
    /// The decision log; none: there is none.
    pub decisions: Option<FileSpec>,
    /// The log of what shadows decided.
    pub shadows: Option<FileSpec>,
    /// Most requests that are kept in memory.
    pub explained: usize,
}

/// Files that can be written from now on. A plan that is dropped writes nothing.
#[derive(Debug)]
pub struct RecordPlan {
    decisions: OutletPlan,
    shadows: OutletPlan,
    explained: usize,
}

impl Recorder {
    /// Returns a recorder without a file, with its metrics registered. It draws the run number of the process.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Arc<Self> {
        Self::of_run(registry, writer::random_run())
    }

    /// Returns the same with a given run number.
    #[must_use]
    pub fn of_run(registry: &mut Registry, run: RunNumber) -> Arc<Self> {
        let name = writer::run();
        let about = |title| About {
            title,
            run: Arc::clone(&name),
            number: run,
        };
        Arc::new(Self {
            latest: Mutex::default(),
            room: Room::of(MEMORY),
            decisions: Outlet::new(about("decision log"), RecordMetrics::register(registry)),
            shadows: Outlet::new(about("shadow log"), RecordMetrics::register_shadows(registry)),
            run,
        })
    }

    /// Returns the run number, which stands in the first line of each decision log.
    #[must_use]
    pub fn run(&self) -> RunNumber {
        self.run
    }

    /// Starts the threads that these files need.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub fn plan(&self, files: RecordFiles) -> io::Result<RecordPlan> {
        Ok(RecordPlan {
            decisions: self.decisions.plan(files.decisions)?,
            shadows: self.shadows.plan(files.shadows)?,
            explained: files.explained,
        })
    }

    /// Writes the planned files from now on, and forgets all but the latest requests that the plan keeps. A file that cannot be
    /// written is logged, and tried again.
    pub fn apply(&self, plan: RecordPlan) {
        self.keep_latest(plan.explained);
        self.decisions.apply(plan.decisions);
        self.shadows.apply(plan.shadows);
    }

    /// Writes what is on its way. Blocks until then, but not for long.
    pub fn close(&self) {
        self.decisions.close();
        self.shadows.close();
    }

    /// The latest request of that id, if it was kept. Of a longer one than is kept the beginning counts.
    #[must_use]
    pub fn explain(&self, id: &str) -> Option<Explained> {
        let id = cut(id, LONGEST_ID);
        let trace = {
            let latest = self.latest();
            let mut newest_first = latest.iter().rev();
            newest_first.find(|trace| trace.id == *id).cloned()
        };
        trace.map(|trace| Explained::of(&trace))
    }

    /// Forgets all but the latest so many.
    fn keep_latest(&self, most: usize) {
        let mut latest = self.latest();
        let surplus = latest.len().saturating_sub(most);
        let gone: Vec<_> = latest.drain(..surplus).collect();
        drop(latest);
        drop(gone);
    }

    /// Keeps a request in memory, as one of so many.
    pub(super) fn remember(&self, trace: &Arc<Trace>, most: usize) {
        self.latest().push_back(Arc::clone(trace));
        self.keep_latest(most);
    }

    /// So many bytes of memory. Where there are none left, the oldest quarter of the list makes room.
    pub(super) fn room_for(&self, bytes: usize) -> Option<Taken> {
        let taken = self.room.take(bytes).or_else(|| {
            let gone: Vec<_> = {
                let mut latest = self.latest();
                let oldest = latest.len().div_ceil(4);
                latest.drain(..oldest).collect()
            };
            drop(gone);
            self.room.take(bytes)
        });
        if taken.is_none() {
            self.decisions.metrics.no_room.inc();
        }
        taken
    }

    pub(super) fn write_call(&self, trace: &Arc<Trace>, record: Arc<Record>) {
        self.decisions.send(Message::Call(Arc::clone(trace), record));
    }

    pub(super) fn write_outcome(&self, trace: &Arc<Trace>) {
        self.decisions.send(Message::Outcome(Arc::clone(trace)));
    }

    /// Whether anybody wants to know what shadows decided.
    pub(crate) fn writes_shadows(&self) -> bool {
        self.shadows.is_wished()
    }

    pub(crate) fn write_shadow(&self, mut line: ShadowLine) {
        line.request = cut(&line.request, LONGEST_ID).into_owned();
        self.shadows.send(Message::Shadow(Box::new(line)));
    }

    fn latest(&self) -> MutexGuard<'_, VecDeque<Arc<Trace>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
