//! Export of traces over OTLP/HTTP: batches, retries, metrics, and live changes of the collector.
//!
//! Requests push their notes into a bounded queue and never wait. One thread makes spans of a batch, compresses them
//! and posts them. Traces without room, and batches that the collector does not accept in time, are dropped and
//! counted. See `host/adr/0031-request-traces.md`.

mod batch;
mod collector;
mod export_thread;
mod exporter;
mod metrics;
mod retry;

pub use collector::{CollectorError, CollectorSpec};
pub use exporter::{ExportPlan, ExportPlanError, ExportSpec, TraceExporter};
