//! Thread that writes what policies remember.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{FleetView, PolicyMemory};

/// Pause between two writes.
const EVERY: Duration = Duration::from_secs(10);

/// Work of the thread.
pub struct MemoryWriter {
    memory: Arc<PolicyMemory>,
    fleet: Box<dyn FleetView>,
}

/// Handle of the thread, if there is a folder to write to. Dropping it ends the thread after a last write.
#[derive(Debug, Default)]
pub struct MemoryWriterHandle(Option<(SyncSender<Infallible>, JoinHandle<()>)>);

impl MemoryWriter {
    /// Restores the sessions of the last run, since the workers are known now.
    #[must_use]
    pub fn begin(memory: Arc<PolicyMemory>, fleet: Box<dyn FleetView>) -> Self {
        memory.settle(&*fleet);
        Self { memory, fleet }
    }

    /// Starts the thread, if there is a folder to write to.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread.
    pub fn spawn(self) -> io::Result<MemoryWriterHandle> {
        if !self.memory.is_written() {
            return Ok(MemoryWriterHandle::default());
        }
        let (go_on, stop) = sync_channel(0);
        let thread = std::thread::Builder::new().name("policy-memory".into());
        let thread = thread.spawn(move || self.run(&stop))?;
        Ok(MemoryWriterHandle(Some((go_on, thread))))
    }

    fn run(&self, stop: &Receiver<Infallible>) {
        while stop.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            self.memory.write_changed(&*self.fleet);
        }
        self.memory.write_changed(&*self.fleet);
    }
}

impl MemoryWriterHandle {
    /// Waits for the last write.
    ///
    /// # Errors
    /// The panic of the thread.
    pub fn end(self) -> std::thread::Result<()> {
        let Some((go_on, thread)) = self.0 else {
            return Ok(());
        };
        drop(go_on);
        thread.join()
    }
}

#[cfg(test)]
mod tests {
    use policy_runtime::PolicyState;

    use super::super::tests::Fleet;
    use super::*;

    /// Returns a writer over a fleet without workers, and the state of one policy.
    fn writer(memory: PolicyMemory) -> (Arc<PolicyState>, MemoryWriter) {
        let state = memory.of("mine");
        let fleet = Box::new(Fleet::new(&[], 0));
        (state, MemoryWriter::begin(Arc::new(memory), fleet))
    }

    #[test]
    fn changes_are_written_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let (state, writer) = writer(PolicyMemory::new(Some(folder.path().to_owned())));
        let handle = writer.spawn().unwrap();
        assert!(handle.0.is_some());
        state.set("k", vec![1]).unwrap();
        handle.end().unwrap();
        assert!(folder.path().join("mine.state").is_file());
    }

    #[test]
    fn there_is_no_thread_without_a_folder() {
        let (_, writer) = writer(PolicyMemory::default());
        let handle = writer.spawn().unwrap();
        assert!(handle.0.is_none());
        handle.end().unwrap();
    }
}
