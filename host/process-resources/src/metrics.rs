//! Metrics of the process and of its runtime, read at scrape time, and the build's identity.

use std::fmt;
use std::fs;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rustix::param::{clock_ticks_per_second, page_size};
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Commit of the build, where the build states it.
const REVISION: &str = match option_env!("CONDUCTOR_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};
/// Interval of the measurement of the runtime's delay.
const DELAY_EVERY: Duration = Duration::from_secs(1);

/// Collector of the process and the runtime.
#[derive(Debug)]
struct ProcessCollector {
    runtime: RuntimeMetrics,
}

/// Registers the metrics. Returns the histogram of the runtime's delay. Must run on the runtime.
pub fn register(registry: &mut Registry, delays: Histogram) -> Histogram {
    registry.register_collector(Box::new(ProcessCollector {
        runtime: Handle::current().metrics(),
    }));
    registry.register(
        "conductor_runtime_delay_seconds",
        "Delay of a timer of the runtime, measured once a second",
        delays.clone(),
    );
    delays
}

/// Measures the delay of the runtime until `stop`.
pub async fn measure_delay(delays: Histogram, stop: CancellationToken) {
    let measuring = async {
        loop {
            let due = Instant::now() + DELAY_EVERY;
            sleep_until(due).await;
            delays.observe(due.elapsed().as_secs_f64());
        }
    };
    tokio::select! {
        () = measuring => {}
        () = stop.cancelled() => {}
    }
}

/// Numbers of the process as the standard client libraries name them.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcessNumbers {
    cpu_seconds: f64,
    start_time_seconds: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl ProcessNumbers {
    /// Parses `/proc/self/stat` and the boot time of `/proc/stat` (proc_pid_stat(5)).
    fn parse(stat: &str, system: &str) -> Option<Self> {
        let ticks = clock_ticks_per_second() as f64;
        // The second field is the name of the program, which may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let mut lines = system.lines();
        let boot: f64 = lines
            .find_map(|line| line.strip_prefix("btime "))?
            .trim()
            .parse()
            .ok()?;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / ticks,
            start_time_seconds: boot + field(22)? / ticks,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_size() as f64,
        })
    }

    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let system = fs::read_to_string("/proc/stat").ok()?;
        Self::parse(&stat, &system)
    }
}

/// Returns the limit of open files (proc_pid_limits(5)).
fn open_files_limit(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.build()?;
        if let Some(numbers) = ProcessNumbers::read() {
            page.cpu(numbers.cpu_seconds)?;
            page.gauge(
                "process_start_time_seconds",
                "Unix time of the start of the process",
                numbers.start_time_seconds,
            )?;
            page.gauge(
                "process_virtual_memory_bytes",
                "Virtual memory",
                numbers.virtual_bytes,
            )?;
            page.gauge(
                "process_resident_memory_bytes",
                "Resident memory",
                numbers.resident_bytes,
            )?;
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // The folder itself is open while it is read.
            let open = files.count().saturating_sub(1);
            page.gauge("process_open_fds", "Open file descriptors", open as f64)?;
        }
        let limits = fs::read_to_string("/proc/self/limits").ok();
        if let Some(limit) = limits.and_then(|limits| open_files_limit(&limits)) {
            page.gauge("process_max_fds", "Limit of open file descriptors", limit)?;
        }
        page.gauge(
            "conductor_runtime_workers",
            "Threads of the runtime",
            self.runtime.num_workers() as f64,
        )?;
        page.gauge(
            "conductor_runtime_alive_tasks",
            "Tasks of the runtime that have not ended",
            self.runtime.num_alive_tasks() as f64,
        )?;
        page.gauge(
            "conductor_runtime_global_queue_depth",
            "Tasks that no thread of the runtime has taken yet",
            self.runtime.global_queue_depth() as f64,
        )
    }
}

/// Writer of the page.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        let metric = self.0.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }

    fn cpu(&mut self, seconds: f64) -> fmt::Result {
        let counter = ConstCounter::new(seconds);
        let help = "Processor time of the process, in user mode and in the kernel";
        let metric = self
            .0
            .encode_descriptor("process_cpu_seconds", help, None, counter.metric_type())?;
        counter.encode(metric)
    }

    fn build(&mut self) -> fmt::Result {
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("revision", REVISION)];
        let help = "1; the labels identify the build";
        let mut family = self
            .0
            .encode_descriptor("conductor_build_info", help, None, MetricType::Gauge)?;
        ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_process_are_read_behind_its_name() {
        let stat = "42 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 1000 4096 3 20";
        let numbers = ProcessNumbers::parse(stat, "cpu 1\nbtime 100\n").unwrap();
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(numbers.cpu_seconds, 300.0 / ticks);
        assert_eq!(numbers.start_time_seconds, 100.0 + 1000.0 / ticks);
        assert_eq!(numbers.virtual_bytes, 4096.0);
        assert_eq!(numbers.resident_bytes, 3.0 * page_size() as f64);
        assert_eq!(ProcessNumbers::parse("", ""), None);
    }

    #[test]
    fn the_limit_of_open_files_is_the_soft_one() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        assert_eq!(open_files_limit(limits), Some(1024.0));
        assert_eq!(
            open_files_limit("Max open files   unlimited unlimited files"),
            None
        );
    }
}
