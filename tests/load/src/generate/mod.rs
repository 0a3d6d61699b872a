//! The load generator: keep-alive connections to one loopback address, closed or open loop, in one thread.
//!
//! Closed loop: each connection sends its next request when the last one is answered. Open loop: request `k` is due at
//! `k / rate` whatever happened before, and its latency counts from that moment, also while it waited for a
//! connection to be free; a slow system cannot hide by slowing the generator ("coordinated omission").
//! Bursts: all connections send a request, one right after the other, once all are answered.

mod client;
pub(crate) mod prompts;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::loopback::Loopback;
use crate::readiness::{Readiness, Waiting};
use client::{Client, Outcome};
use prompts::Prompts;
pub use prompts::{PromptForm, StreamOf};
pub use report::{Errors, Report};

/// Most bytes per read.
const READ_BUFFER: usize = 64 * 1024;

/// Interval of checks for overdue or broken connections.
const SWEEP: Duration = Duration::from_millis(100);

/// Plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Target.
    pub target: Loopback,
    /// Form of the prompt.
    pub prompt: PromptForm,
    /// The length of each request's body; short ones are made as long as a prompt needs.
    pub body_bytes: usize,
    /// Request streams.
    pub stream: Option<StreamOf>,
    /// Number of connections.
    pub connections: usize,
    /// Requests per second of an open loop; closed loop without.
    pub rate: Option<f64>,
    /// Bursts: the closed loop sends its next requests together, when all are answered.
    pub bursts: bool,
    /// Load before anything is counted.
    pub warm_up: Duration,
    /// Length of the measured window.
    pub window: Duration,
    /// Minimum contents of the window.
    pub minimum: WindowMinimum,
    /// After so long a request counts as failed and its connection is replaced.
    pub patience: Duration,
    /// Behaviour while no answer is there.
    pub waiting: Waiting,
}

/// Minimum contents of the measured window, which stays open until it has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowMinimum {
    /// Number of answers, tokens and failures.
    pub events: u64,
    /// Number of streams that have begun and not ended.
    pub open_streams: u64,
}

/// A moment of a run that its caller may want to read clocks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// The warm-up is over: what completes from here on is counted.
    Opens,
    /// The measured window is over.
    Closes,
}

/// Runs a plan. `edge` is called at both ends of the measured window, under load. `stop` is called at least ten times
/// a second and ends the run early.
///
/// # Errors
/// `edge` or epoll fails, or the run is stopped. Failed requests are counted, not returned.
pub fn run(plan: &Plan, mut edge: impl FnMut(Edge) -> Result<()>, stop: impl Fn() -> bool) -> Result<Report> {
    anyhow::ensure!(
        plan.connections > 0,
        "the generator needs at least one connection"
    );
    anyhow::ensure!(
        plan.rate.is_none_or(|rate| rate > 0.0),
        "the rate must be above zero"
    );
    let mut run = Run::new(plan)?;
    let opens = run.started + plan.warm_up;
    run.until(opens, WindowMinimum::default(), &stop)?;
    run.report = Report::default();
    edge(Edge::Opens)?;
    let opened = Instant::now();
    run.until(opened + plan.window, plan.minimum, &stop)?;
    run.report.elapsed = opened.elapsed();
    run.report.open_streams = run.open_streams();
    edge(Edge::Closes)?;
    run.report.unanswered = run.overdue_at(Instant::now());
    Ok(run.report)
}

struct Run<'a> {
    plan: &'a Plan,
    readiness: Readiness,
    prompts: Prompts,
    clients: Vec<Client>,
    /// Connected clients without a request.
    idle: Vec<usize>,
    /// Number of sent requests of the open loop.
    issued: u64,
    started: Instant,
    swept: Instant,
    scratch: Box<[u8]>,
    report: Report,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let started = Instant::now();
        Ok(Self {
            plan,
            readiness: Readiness::new(plan.waiting).context("failed to create an epoll set")?,
            prompts: Prompts::new(plan.prompt, plan.body_bytes, plan.stream),
            clients: (0..plan.connections)
                .map(|key| Client::new(key, plan.target))
                .collect(),
            idle: Vec::with_capacity(plan.connections),
            issued: 0,
            started,
            swept: started,
            scratch: vec![0; READ_BUFFER].into_boxed_slice(),
            report: Report::default(),
        })
    }

    /// Keeps the load up until `end` has come and the report has at least these contents.
    fn until(&mut self, end: Instant, minimum: WindowMinimum, stop: impl Fn() -> bool) -> Result<()> {
        let mut ready = Vec::new();
        self.sweep(self.swept);
        loop {
            let now = Instant::now();
            let is_over = now >= end;
            if is_over
                && self.report.events() >= minimum.events
                && self.open_streams() >= minimum.open_streams
            {
                return Ok(());
            }
            if now >= self.swept + SWEEP {
                anyhow::ensure!(!stop(), "interrupted");
                self.sweep(now);
            }
            self.issue(now);
            let sweep = self.swept + SWEEP;
            let until = if is_over { sweep } else { sweep.min(end) };
            let until = self
                .next_due()
                .filter(|_| !self.idle.is_empty())
                .map_or(until, |due| until.min(due));
            self.readiness
                .wait(Some(until), &mut ready)
                .context("failed to wait for sockets")?;
            for key in &ready {
                self.advance(*key as usize);
            }
        }
    }

    /// Returns the due time of the next request of the open loop.
    fn next_due(&self) -> Option<Instant> {
        self.plan
            .rate
            .map(|rate| self.started + Duration::from_secs_f64(self.issued as f64 / rate))
    }

    /// Sends what is due over idle connections.
    fn issue(&mut self, now: Instant) {
        if self.plan.bursts && self.idle.len() < self.clients.len() {
            return;
        }
        while let Some(key) = self.idle.pop() {
            let due = self.next_due();
            if due.is_some_and(|due| due > now) {
                self.idle.push(key);
                return;
            }
            self.issued += 1;
            let since = due.unwrap_or_else(Instant::now);
            let outcome = self.clients[key].send(self.prompts.next(), since, &self.readiness);
            self.settle(key, outcome);
        }
    }

    fn advance(&mut self, key: usize) {
        let outcome = self.clients[key].ready(&mut self.scratch, &self.readiness);
        // Counted on arrival, so that streams longer than the window count by their tokens within it.
        self.report.tokens += self.clients[key].take_data_lines();
        self.settle(key, outcome);
    }

    fn settle(&mut self, key: usize, outcome: Outcome) {
        match outcome {
            Outcome::Pending => {}
            Outcome::Answered(answer) => {
                self.report.count(&answer);
                if answer.close {
                    self.connect(key);
                } else {
                    self.idle.push(key);
                }
            }
            Outcome::Failed(failure) => {
                self.report.errors.count(failure);
                // The next sweep reconnects: a peer that fails every request must not make this loop spin.
                self.clients[key].disconnect();
            }
            // An idle connection may be closed at any time: no request was lost.
            Outcome::ClosedIdle => {
                self.idle.retain(|idle| *idle != key);
                self.connect(key);
            }
        }
    }

    /// Connects. If that fails, the next sweep tries again.
    fn connect(&mut self, key: usize) {
        match self.clients[key].connect(&self.readiness) {
            Ok(()) => self.idle.push(key),
            Err(_) => self.report.errors.connect += 1,
        }
    }

    fn sweep(&mut self, now: Instant) {
        self.swept = now;
        for key in 0..self.clients.len() {
            if !self.clients[key].is_connected() {
                self.connect(key);
            } else if self.clients[key]
                .waits_since()
                .is_some_and(|since| now >= since + self.plan.patience)
            {
                self.report.errors.timed_out += 1;
                self.connect(key);
            }
        }
    }

    /// Returns the number of streams that have begun and not ended.
    fn open_streams(&self) -> u64 {
        self.clients.iter().filter(|client| client.is_streaming()).count() as u64
    }

    /// Counts requests due by `now` and not answered: those under way, and in an open loop those not even sent.
    fn overdue_at(&self, now: Instant) -> u64 {
        let under_way = self
            .clients
            .iter()
            .filter(|client| client.waits_since().is_some())
            .count() as u64;
        let due = self
            .plan
            .rate
            .map_or(0, |rate| ((now - self.started).as_secs_f64() * rate) as u64);
        under_way + due.saturating_sub(self.issued)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn an_open_loop_sends_each_request_when_it_is_due() {
        // Connections wait in its queue, and no request is answered.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let plan = Plan {
            target: Loopback::port(listener.local_addr().unwrap().port()),
            prompt: PromptForm::Chat,
            body_bytes: 0,
            stream: None,
            connections: 8,
            rate: Some(100.0),
            bursts: false,
            warm_up: Duration::ZERO,
            window: Duration::ZERO,
            minimum: WindowMinimum::default(),
            patience: Duration::from_secs(3_600),
            waiting: Waiting::Sleep,
        };
        let mut run = Run::new(&plan).unwrap();
        run.sweep(run.started);
        for (micros, issued) in [(0, 1), (9_999, 1), (10_000, 2), (39_999, 4), (1_000_000, 8)] {
            let now = run.started + Duration::from_micros(micros);
            run.issue(now);
            assert_eq!(run.issued, issued, "{micros} us after the start");
            let due = run.next_due().unwrap() - run.started;
            assert_eq!(due.as_millis(), u128::from(issued) * 10);
        }
        // 101 are due by then: 8 are under way, and the others have no connection.
        assert_eq!(
            run.overdue_at(run.started + Duration::from_micros(1_000_001)),
            8 + 92
        );
    }
}
