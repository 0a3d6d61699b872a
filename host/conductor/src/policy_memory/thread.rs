//! The thread that writes down what policies remember.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use proxy::SnapshotCell;

use super::PolicyMemory;

/// How often it writes what has changed.
const EVERY: Duration = Duration::from_secs(10);

/// The thread's work.
pub(crate) struct Keeping {
    memory: Arc<PolicyMemory>,
    cell: Arc<SnapshotCell>,
}

/// The thread, where there is a folder. Without this it writes a last time and ends.
#[derive(Debug, Default)]
pub(crate) struct Keeper(Option<(SyncSender<Infallible>, JoinHandle<()>)>);

impl Keeping {
    /// With the sessions of the last run in place, since the workers are known.
    pub(crate) fn begin(memory: Arc<PolicyMemory>, cell: Arc<SnapshotCell>) -> Self {
        let snapshot = cell.load();
        memory.settle(|| snapshot.worker_names(), snapshot.now_us());
        Self { memory, cell }
    }

    /// Starts the thread, where there is a folder to write to.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn spawn(self) -> io::Result<Keeper> {
        if !self.memory.is_written() {
            return Ok(Keeper::default());
        }
        let (go_on, stop) = sync_channel(0);
        let thread = std::thread::Builder::new().name("policy-memory".into());
        let thread = thread.spawn(move || self.run(&stop))?;
        Ok(Keeper(Some((go_on, thread))))
    }

    fn run(&self, stop: &Receiver<Infallible>) {
        while stop.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            self.write();
        }
        self.write();
    }

    fn write(&self) {
        let snapshot = self.cell.load();
        self.memory
            .write_changed(|| snapshot.worker_names(), snapshot.now_us());
    }
}

impl Keeper {
    /// Waits for the last writing.
    ///
    /// # Errors
    /// Where the thread panicked.
    pub(crate) fn end(self) -> std::thread::Result<()> {
        let Some((go_on, thread)) = self.0 else {
            return Ok(());
        };
        drop(go_on);
        thread.join()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy_runtime::PolicyState;
    use prometheus_client::registry::Registry;
    use proxy::record::{RecordSpec, Recorder};
    use proxy::{ProxyMetrics, RequestLimits, SnapshotPlan, SnapshotSpec};
    use routing::Generation;

    use super::*;

    /// Over no workers.
    fn keeping(memory: PolicyMemory) -> (Arc<PolicyState>, Keeping) {
        let mut registry = Registry::default();
        let timeout = Duration::from_secs(1);
        let spec = SnapshotSpec {
            generation: Generation(1),
            pools: vec![],
            routes: vec![],
            limits: RequestLimits {
                body_bytes: 1,
                connect_timeout: timeout,
                first_byte_timeout: timeout,
                idle_timeout: timeout,
                first_token_timeout: None,
                request_timeout: None,
                attempts: 1,
            },
            record: RecordSpec::nothing(Recorder::new(&mut registry)),
            decision_headers: false,
            edge: proxy::EdgeSpec::default(),
            models: proxy::ModelsSpec::default(),
            clients: vec![],
            metrics_on_listen: true,
            policy_headers: vec![],
        };
        let first = SnapshotPlan::new(None, spec).unwrap();
        let state = memory.of("mine");
        let cell = Arc::new(SnapshotCell::new(first, &ProxyMetrics::new(&mut registry)));
        (state, Keeping::begin(Arc::new(memory), cell))
    }

    #[test]
    fn what_changed_is_written_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (state, keeping) = keeping(PolicyMemory::new(Some(folder.path().to_owned())));
        let keeper = keeping.spawn().unwrap();
        assert!(keeper.0.is_some());
        state.set("k", vec![1]).unwrap();
        keeper.end().unwrap();
        assert!(folder.path().join("mine.state").is_file());
    }

    #[test]
    fn there_is_no_thread_where_nothing_is_written() {
        let (_, keeping) = keeping(PolicyMemory::default());
        let keeper = keeping.spawn().unwrap();
        assert!(keeper.0.is_none());
        keeper.end().unwrap();
    }
}
