//! What all clients may hold together, and one address of them: keys of `[server]`.

use crate::code::Code;
use crate::report::Problem;
use crate::section::Section;

/// Totals of memory and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalsConfig {
    /// Bytes of all request bodies that are held.
    pub buffered_bodies: u64,
    /// Bodies that are arriving; none: half of `max-connections`.
    pub unfinished_bodies: Option<u32>,
    /// Connections of one address; none: a quarter of `max-connections`, and of the router's own machine all of them.
    pub connections_per_address: Option<u32>,
}

impl Default for TotalsConfig {
    fn default() -> Self {
        Self {
            buffered_bodies: 1 << 30,
            unfinished_bodies: None,
            connections_per_address: None,
        }
    }
}

/// Reads the keys; one body of `body_limit` bytes must fit.
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
            .help("a body that is as long as may be must fit: raise the one or lower the other"),
        );
    }
    let mut count = |key| {
        let item = server.item(key)?;
        let count = item.count(&(1..=1_000_000))?;
        Some(u32::try_from(count).expect("within a range that ends at a u32"))
    };
    TotalsConfig {
        buffered_bodies: bytes.unwrap_or(TotalsConfig::default().buffered_bodies.max(body_limit)),
        unfinished_bodies: count("unfinished-bodies"),
        connections_per_address: count("connections-per-address"),
    }
}
