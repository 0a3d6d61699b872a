//! Core loop: runs the scheduler in real time. It takes commands, sleeps through each step, then publishes its events
//! and delivers its tokens, in that order. Only this module converts engine time to real time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fault_script::FaultScript;
use crate::publisher::Publisher;
use crate::scheduler::{Scheduler, Step};
use crate::sequence::Submission;
use crate::stats::MockStats;
use crate::transfer::Received;

/// Most queued commands.
pub(crate) const COMMAND_QUEUE: usize = 1024;
/// Shorter waits are accumulated instead: timers are no finer than a millisecond.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
/// Longest step in real time, so that no cost model or fault overflows a clock.
const LONGEST_STEP: Duration = Duration::from_secs(3600);

/// Command for the engine's core.
#[derive(Debug)]
pub(crate) enum Command {
    /// Queues the requests of one answer; replies `false` if too many are queued.
    Submit(Vec<Submission>, oneshot::Sender<bool>),
    /// Looks for disconnected clients.
    Look,
    /// Reports that the KV cache a request waited for has arrived, or will not.
    Received(u64, Option<Received>),
    /// Frees blocks kept for another engine.
    ReleaseKept(u64),
    /// Clears the prefix cache; replies `false` if anything runs.
    ResetPrefixCache(oneshot::Sender<bool>),
    /// Restarts, with another hash seed if given.
    Restart(Option<u64>, oneshot::Sender<()>),
}

/// The core and its connections.
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
        // End of the current step. Independent of the clock, so that late timers do not accumulate.
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

    /// Waits for the end of a step and handles commands. Breaks if the engine was restarted.
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
            // Fails only for a disconnected client, which the next step detects.
            let _ = to.try_send(output);
        }
    }

    /// Handles a command. Breaks if it ended the running step.
    fn apply(&mut self, command: Command) -> ControlFlow<()> {
        // The sender may be gone; the command is executed anyway.
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
