//! CPU time and memory from `/proc`: of a process with its children, of one process, and of the whole machine.
//!
//! Formats: proc(5) and the kernel's `Documentation/scheduler/sched-stats.rst`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::param::clock_ticks_per_second;

/// A reading of a process tree's CPU clocks (user and system).
#[derive(Debug, Clone, Default)]
pub(crate) struct TreeClock {
    /// Nanoseconds on a CPU by thread id, from `schedstat`.
    threads: BTreeMap<u32, u64>,
    /// Ticks of all processes, those of ended threads included, from `stat`.
    ticks: u64,
}

/// CPU time spent between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    /// By the scheduler's clock, to the nanosecond. Threads that ended in between are missing.
    pub(crate) precise: Duration,
    /// By ticks (10 ms): the cross-check, which has ended threads.
    pub(crate) by_ticks: Duration,
}

impl TreeClock {
    /// Reads the clocks of the process `root` and of all that descend from it.
    pub(crate) fn read(root: u32) -> Result<Self> {
        let mut clock = Self::default();
        for process in tree(root, &parents()?) {
            clock
                .add(process)
                .with_context(|| format!("failed to read the CPU time of process {process}"))?;
        }
        Ok(clock)
    }

    fn add(&mut self, process: u32) -> Result<()> {
        let folder = Path::new("/proc").join(process.to_string());
        let stat = Stat::parse(&fs::read_to_string(folder.join("stat"))?).context("unreadable stat")?;
        self.ticks += stat.ticks;
        for thread in fs::read_dir(folder.join("task"))? {
            let thread = thread?;
            let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A thread may end between the listing and this line.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else {
                continue;
            };
            self.threads
                .insert(id, parse_schedstat(&text).context("unreadable schedstat")?);
        }
        Ok(())
    }

    /// Returns the difference to an earlier reading of the same tree.
    pub(crate) fn since(&self, earlier: &Self) -> Spent {
        let nanos = self.threads.iter().map(|(id, now)| {
            let then = earlier.threads.get(id).copied().unwrap_or(0);
            now.saturating_sub(then)
        });
        Spent {
            precise: Duration::from_nanos(nanos.sum()),
            by_ticks: ticks(self.ticks.saturating_sub(earlier.ticks)),
        }
    }
}

impl Spent {
    /// Returns `true` if the precise figure lacks more than a tenth of the ticks: threads ended in between, or the
    /// process worked too little for meaningful ticks.
    pub(crate) fn is_doubtful(self) -> bool {
        self.precise.as_secs_f64() < 0.9 * self.by_ticks.as_secs_f64() - 0.05
    }
}

/// Nanoseconds on a CPU: the first of a thread's three `schedstat` numbers.
fn parse_schedstat(text: &str) -> Option<u64> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    let on_cpu = numbers.next()??;
    (numbers.count() == 2).then_some(on_cpu)
}

/// Returns the memory of a process and of all its descendants that is not swapped out, in bytes. Shared memory counts
/// for each.
pub(crate) fn resident_bytes(root: u32) -> Result<u64> {
    let mut bytes = 0;
    for process in tree(root, &parents()?) {
        // One may end meanwhile.
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        bytes += field_kib(&status, "VmRSS:").unwrap_or(0) * 1024;
    }
    Ok(bytes)
}

/// Returns a field of `/proc/PID/status` or `smaps_rollup` that is in KiB.
pub(crate) fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim_end().parse().ok()
}

/// Parts of `/proc/PID/stat` that the bench reads.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// User and system time.
    ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name, in parentheses, may hold anything; the last parenthesis ends it.
        let fields: Vec<_> = text
            .get(text.rfind(')')? + 1..)?
            .split_ascii_whitespace()
            .collect();
        // Counted from the field after the name: state, ppid, ..., utime (11), stime (12).
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            ticks: number(11)?.checked_add(number(12)?)?,
        })
    }
}

/// Returns the parent of each process.
fn parents() -> Result<BTreeMap<u32, u32>> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("failed to list /proc")? {
        let entry = entry.context("failed to list /proc")?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Processes may end while they are listed.
        let stat = fs::read_to_string(entry.path().join("stat")).ok();
        if let Some(stat) = stat.as_deref().and_then(Stat::parse) {
            parents.insert(id, stat.parent);
        }
    }
    Ok(parents)
}

/// Returns `root` and all its descendants.
fn tree(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            parents
                .iter()
                .filter(|(_, own)| **own == parent)
                .map(|(id, _)| *id),
        );
        next += 1;
    }
    found
}

/// A reading of the machine's CPU clocks, summed over its cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineClock {
    /// All but idle, I/O wait and stolen time, in ticks.
    busy: u64,
    /// Time the hypervisor gave to others, in ticks.
    stolen: u64,
}

impl MachineClock {
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("failed to read /proc/stat")?;
        Self::parse(&text).context("failed to read the first line of /proc/stat")
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        // user nice system idle iowait irq softirq steal; guest time behind them is part of user and nice.
        let [user, nice, system, _, _, irq, softirq, stolen] = *ticks.first_chunk()?;
        Some(Self {
            busy: user + nice + system + irq + softirq,
            stolen,
        })
    }

    /// Returns busy and stolen time since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> (Duration, Duration) {
        (
            ticks(self.busy.saturating_sub(earlier.busy)),
            ticks(self.stolen.saturating_sub(earlier.stolen)),
        )
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / clock_ticks_per_second() as f64)
}

/// Returns the machine in one line: cores, model, kernel.
pub(crate) fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(": "));
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let model = model.map_or("unknown processor", |(_, model)| model);
    format!("{cores} cores of {model}, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_time_on_a_cpu_of_a_thread() {
        assert_eq!(parse_schedstat("41977233 110879059 96\n"), Some(41_977_233));
        assert_eq!(parse_schedstat("41977233 110879059"), None);
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn reads_the_parent_and_the_ticks_of_a_process_whatever_its_name() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 250 50 9 9 20 0 1 0 5 6 7";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                parent: 7,
                ticks: 300
            })
        );
        assert_eq!(Stat::parse("42 (short) S 7"), None);
    }

    #[test]
    fn sums_the_machine_without_idle_and_guest_time() {
        let text = "cpu  10 20 30 1000 5 1 2 3 40 50\ncpu0 1 2\n";
        assert_eq!(
            MachineClock::parse(text),
            Some(MachineClock { busy: 63, stolen: 3 })
        );
        assert_eq!(MachineClock::parse("cpu  1 2 3"), None);
    }

    #[test]
    fn a_tree_has_the_children_of_children() {
        let parents = BTreeMap::from([(1, 0), (5, 1), (6, 5), (7, 6), (8, 1)]);
        assert_eq!(tree(5, &parents), [5, 6, 7]);
    }

    #[test]
    fn time_is_counted_by_thread_so_that_an_ended_one_takes_nothing_away() {
        let reading = |threads: &[(u32, u64)]| TreeClock {
            threads: threads.iter().copied().collect(),
            ticks: 0,
        };
        let spent = reading(&[(1, 150), (3, 7)]).since(&reading(&[(1, 100), (2, 1_000)]));
        assert_eq!(spent.precise, Duration::from_nanos(57));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            field_kib("VmHWM:\t 9 kB\nVmRSS:\t   1234 kB\n", "VmRSS:"),
            Some(1234)
        );
        assert_eq!(field_kib("VmHWM:\t 9 kB\n", "VmRSS:"), None);
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }

    #[test]
    fn this_process_has_spent_some_time() {
        let earlier = TreeClock::read(std::process::id()).unwrap();
        let spent = TreeClock::default();
        assert!(earlier.since(&spent).precise > Duration::ZERO);
    }
}
