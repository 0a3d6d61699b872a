//! Log of a test whose tasks all run on its thread.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber, Subscriber, set_default};
use tracing::{Dispatch, Event, Level, Metadata};

/// Second dispatcher besides a log's own. With a single dispatcher `tracing` caches its interest for all threads: a
/// warning that another test's thread gives first would be off for the log's thread, too.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

/// Captured warnings, one per line: message and fields in order.
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

impl Log {
    pub(crate) fn begin() -> Self {
        LazyLock::force(&SECOND);
        let lines = Arc::default();
        let _guard = set_default(Recorder(Arc::clone(&lines)));
        Self { lines, _guard }
    }

    /// Returns the lines that contain `part`.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

struct Recorder(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
