//! Drives the scheduler in time: takes what arrives, sleeps through each step, then publishes its events and
//! delivers its tokens, in that order. The only place where engine time meets real time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::faults::FaultScript;
use crate::publisher::Publisher;
use crate::scheduler::{Scheduler, Step};
use crate::sequence::Submission;
use crate::stats::MockStats;
use crate::transfer::Received;

/// Commands that may wait to be taken.
pub(crate) const COMMAND_QUEUE: usize = 1024;
/// Shorter waits are not slept through but made up for later: timers are no finer than a millisecond.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
/// Longest step in real time, so that no cost model or fault overflows a clock.
const LONGEST_STEP: Duration = Duration::from_secs(3600);

/// What the engine's core is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve the requests of one answer; answers false when too many wait.
    Submit(Vec<Submission>, oneshot::Sender<bool>),
    /// A client left: look whose.
    Look,
    /// The KV cache a request waited for has come, or will not.
    Received(u64, Option<Received>),
    /// Blocks need not be kept for another engine any longer.
    ReleaseKept(u64),
    /// Forget the prefix cache; answers false while anything runs.
    ResetPrefixCache(oneshot::Sender<bool>),
    /// Start over, with other hashes if told so.
    Restart(Option<u64>, oneshot::Sender<()>),
}

/// The core and what it is connected to.
#[derive(Debug)]
pub(crate) struct CoreLoop {
    pub(crate) scheduler: Scheduler,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) faults: Arc<FaultScript>,
    pub(crate) stats: watch::Sender<MockStats>,
    pub(crate) time_scale: f64,
    pub(crate) stop: CancellationToken,
}

impl CoreLoop {
    /// Runs until stopped.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.serve()).await;
    }

    async fn serve(&mut self) {
        // When the current step is over. Kept apart from the clock, so that late timers do not add up.
        let mut due = Instant::now();
        loop {
            while let Ok(command) = self.commands.try_recv() {
                let _ = self.apply(command);
            }
            let step = self.scheduler.begin_step();
            self.report();
            let Some(step) = step else {
                let Some(command) = self.commands.recv().await else {
                    return;
                };
                let _ = self.apply(command);
                due = Instant::now();
                continue;
            };
            due += self.real_time(step);
            if self.wait(due).await.is_continue() {
                self.finish(step);
            }
        }
    }

    /// Waits for the end of a step, taking commands meanwhile; breaks off when the engine was restarted.
    async fn wait(&mut self, due: Instant) -> ControlFlow<()> {
        if due <= Instant::now() + SHORTEST_SLEEP {
            tokio::task::yield_now().await;
            return ControlFlow::Continue(());
        }
        let over = tokio::time::sleep_until(due);
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return ControlFlow::Continue(()),
                Some(command) = self.commands.recv() => {
                    let flow = self.apply(command);
                    self.report();
                    if flow.is_break() {
                        return flow;
                    }
                }
            }
        }
    }

    fn finish(&mut self, step: Step) {
        let result = self.scheduler.finish_step(step);
        self.report();
        if !result.events.is_empty() {
            self.publisher.publish(result.events);
        }
        for (to, output) in result.outputs {
            // Fails only for a client that left, which the next step notices.
            let _ = to.try_send(output);
        }
    }

    /// Breaks when it ended the step that runs.
    fn apply(&mut self, command: Command) -> ControlFlow<()> {
        // Whoever asked may have left; what it asked for happens anyway.
        match command {
            Command::Submit(submissions, accepted) => {
                let _ = accepted.send(self.scheduler.submit_all(submissions));
            }
            Command::Look => {}
            Command::Received(id, received) => {
                if let Some((to, output)) = self.scheduler.received(id, received) {
                    let _ = to.try_send(output);
                }
            }
            Command::ReleaseKept(id) => self.scheduler.release_kept(id),
            Command::ResetPrefixCache(done) => {
                let _ = done.send(self.scheduler.reset_prefix_cache());
            }
            Command::Restart(hash_seed, done) => {
                self.scheduler.restart(hash_seed);
                self.publisher.restart();
                self.report();
                let _ = done.send(());
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn report(&self) {
        self.stats.send_replace(self.scheduler.stats());
    }

    fn real_time(&self, step: Step) -> Duration {
        let seconds = step.millis * self.faults.slow_factor() / self.time_scale / 1e3;
        Duration::try_from_secs_f64(seconds).map_or(LONGEST_STEP, |time| time.min(LONGEST_STEP))
    }
}
