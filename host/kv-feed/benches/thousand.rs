//! A thousand feeds: threads, CPU while idle, and how fast events are taken in. Publishers run in a process of their
//! own, so that the count has only the feeds.
//!
//! `cargo bench -p kv-feed` prints it; `cargo bench -p kv-feed -- 250 20` does so for 250 feeds and 20 idle seconds.
#![allow(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod publishers;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kv_feed::{Endpoint, FeedLimits, FeedSink, FeedSpec, FeedState, KvFeeds, ResetReason};
use routing::{BlockEvent, DpRank, ObjectEvent, StoreId, WorkerId};

/// Batches that each publisher sends in a burst.
const BURST: usize = 200;

/// Sink that counts its notifications.
struct Counting(Arc<AtomicU64>);

impl FeedSink for Counting {
    fn opened(&mut self, _: WorkerId) {}
    fn closed(&mut self, _: WorkerId) {}
    fn events(&mut self, _: WorkerId, _: DpRank, events: &[BlockEvent]) {
        self.0.fetch_add(events.len() as u64, Ordering::Relaxed);
    }
    fn reset(&mut self, _: WorkerId, _: DpRank, _: ResetReason) {}
    fn objects(&mut self, _: StoreId, _: &[ObjectEvent]) {}
    fn reset_store(&mut self, _: StoreId, _: ResetReason) {}
    fn store_closed(&mut self, _: StoreId) {}
    fn live(&mut self, _: WorkerId, _: bool) {}
}

/// The process of the publishers.
struct Publishers {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Publishers {
    fn start(count: usize) -> (Self, Vec<FeedSpec>) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["publish", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut publishers = Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        let spec = |number: u32| {
            let line = publishers.line();
            let (live, replay) = line.split_once(' ').unwrap();
            FeedSpec {
                worker: WorkerId(number),
                name: format!("w{number}").into(),
                endpoint: Endpoint::Connect(live.to_owned()),
                replay: Some(replay.to_owned()),
                topic: String::new(),
                rank: None,
                adapter: None,
                curve: None,
            }
        };
        let specs = (0..u32::try_from(count).unwrap()).map(spec).collect();
        (publishers, specs)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn burst(&mut self) {
        writeln!(self.orders, "{BURST}").unwrap();
    }
}

impl Drop for Publishers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["publish", count] => publishers::run(count.parse().unwrap()),
        [count, idle] => measure(count.parse().unwrap(), idle.parse().unwrap()),
        _ => measure(1000, 60),
    }
}

fn measure(count: usize, idle: u64) {
    let applied = Arc::<AtomicU64>::default();
    let feeds = KvFeeds::start(Box::new(Counting(Arc::clone(&applied))), FeedLimits::default()).unwrap();
    let (mut publishers, specs) = Publishers::start(count);
    println!("threads without a feed: {}", threads());
    let began = Instant::now();
    feeds.replace(specs, Vec::new());
    let are_live = || feeds.status().iter().all(|feed| feed.state == FeedState::Live);
    await_level(are_live);
    println!(
        "{count} feeds live after {:.2?}: {} threads, {} file descriptors, {} MiB resident",
        began.elapsed(),
        threads(),
        fs::read_dir("/proc/self/fd").unwrap().count(),
        resident_kib() / 1024
    );
    for burst in 1..=3 {
        let (before, cpu, began) = (applied.load(Ordering::Relaxed), cpu(), Instant::now());
        publishers.burst();
        let batches = (count * BURST) as u64;
        let wanted = before + batches * publishers::EVENTS as u64;
        await_level(|| applied.load(Ordering::Relaxed) >= wanted);
        let (time, cpu) = (began.elapsed().as_secs_f64(), self::cpu().saturating_sub(cpu));
        println!(
            "burst {burst}: {batches} batches of {} events in {time:.2} s: {:.0} events/s, {:.1} us CPU a batch",
            publishers::EVENTS,
            (wanted - before) as f64 / time,
            cpu.as_secs_f64() * 1e6 / batches as f64
        );
    }
    let gaps: u64 = feeds.status().iter().map(|feed| feed.gaps).sum();
    println!("gaps: {gaps}; all live: {}", are_live());
    for second in (0..idle).step_by(10) {
        let before = cpu();
        std::thread::sleep(Duration::from_secs(10));
        let used = cpu().saturating_sub(before).as_secs_f64() / 10.0;
        println!(
            "idle, seconds {second} to {}: {:.2} % of a core",
            second + 10,
            used * 100.0
        );
    }
    println!("all live: {}", are_live());
}

fn await_level(reached: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !reached() {
        assert!(Instant::now() < deadline, "not reached in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Returns the CPU time of all threads.
fn cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.map(|task| {
        let path = task.unwrap().path().join("schedstat");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split(' ')
            .next()
            .and_then(|first| first.parse::<u64>().ok())
            .unwrap_or(0)
    });
    Duration::from_nanos(nanos.sum())
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
