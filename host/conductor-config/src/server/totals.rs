//! Totals over all clients, and limits per address: keys of `[server]`.

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Item;

/// Memory limit of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryLimitConfig {
    /// That of its control group.
    #[default]
    OfGroup,
    /// No limit.
    Off,
    /// In bytes.
    Bytes(u64),
}

/// Totals of memory and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalsConfig {
    /// Bytes of all buffered request bodies.
    pub buffered_bodies: u64,
    /// Most bodies being received; `None` for half of `max-connections`.
    pub unfinished_bodies: Option<u32>,
    /// Connections per address; `None` for a quarter of `max-connections`, and for the router's own machine all of
    /// them.
    pub connections_per_address: Option<u32>,
    /// Load is shed at shares of it.
    pub memory_limit: MemoryLimitConfig,
}

impl Default for TotalsConfig {
    fn default() -> Self {
        Self {
            buffered_bodies: 1 << 30,
            unfinished_bodies: None,
            connections_per_address: None,
            memory_limit: MemoryLimitConfig::OfGroup,
        }
    }
}

/// Reads the keys. At least one body of `body_limit` bytes must fit.
pub(crate) fn read(server: &mut Section<'_>, body_limit: u64) -> TotalsConfig {
    let item = server.item("buffered-bodies");
    let bytes = item.as_ref().and_then(|item| item.size(&(1 << 10..=1 << 40)));
    if let (Some(item), Some(bytes)) = (&item, bytes)
        && bytes < body_limit
    {
        item.report.push(
            Problem::new(
                Code::InvalidValue,
                &item.span,
                "`buffered-bodies` is less than `request-body-limit`",
            )
            .help("a body of the maximum length must fit: raise the first or lower the second"),
        );
    }
    let memory_limit = server.item("memory-limit").and_then(|item| read_memory(&item));
    let mut count = |key| {
        let item = server.item(key)?;
        let count = item.count(&(1..=1_000_000))?;
        Some(u32::try_from(count).expect("within a range that ends at a u32"))
    };
    TotalsConfig {
        buffered_bodies: bytes.unwrap_or(TotalsConfig::default().buffered_bodies.max(body_limit)),
        unfinished_bodies: count("unfinished-bodies"),
        connections_per_address: count("connections-per-address"),
        memory_limit: memory_limit.unwrap_or_default(),
    }
}

/// Reads a size, or `"off"`.
fn read_memory(item: &Item<'_>) -> Option<MemoryLimitConfig> {
    if item.value.as_str() == Some("off") {
        return Some(MemoryLimitConfig::Off);
    }
    let bytes = item.size(&(16 << 20..=1 << 50))?;
    Some(MemoryLimitConfig::Bytes(bytes))
}
