//! Warnings of a store that is away, as an operator reads them in the log.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agreement::StoreEvent;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Subscriber, set_default};
use tracing::{Event, Level, Metadata};

use crate::agreement::{MemoryStore, router};

/// Recorder of warnings, one a line.
#[derive(Clone, Default)]
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

#[tokio::test(start_paused = true)]
async fn a_store_that_was_never_reached_is_logged_once_and_again_after_it_was_reached() {
    let recorder = Recorder::default();
    let _guard = set_default(recorder.clone());
    let lines = || recorder.0.lock().unwrap().clone();
    let (store, stop) = (MemoryStore::away(), CancellationToken::new());
    let _router = router(&store, "1", &stop);
    let lose = async || {
        store.deliver(&StoreEvent::Lost("jetstream unavailable".to_owned()));
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    lose().await;
    let first = lines();
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(
        first[0].contains("jetstream unavailable") && first[0].contains("decides alone"),
        "{first:?}"
    );
    lose().await;
    assert_eq!(lines().len(), 1, "a try that fails like the one before");
    for event in [StoreEvent::Opened, StoreEvent::Synced] {
        store.deliver(&event);
    }
    lose().await;
    assert_eq!(lines().len(), 2, "{:?}", lines());
    stop.cancel();
}
