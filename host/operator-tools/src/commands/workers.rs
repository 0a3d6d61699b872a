//! `conductor workers`: every worker with its state and load.

use anyhow::Result;
use serde_json::Value;

use super::fleet_table::{FleetTable, TableLook, items, pages, state_cell};
use super::status::fleet_event;
use super::watch;
use crate::Exit;
use crate::admin::{AdminClient, RemoteError};
use crate::args::WorkersArgs;
use crate::table::{Side, TableCell, Tone};
use crate::units::{UNKNOWN, number, percent, seconds, text};

/// Runs `conductor workers`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn workers(args: &WorkersArgs) -> Result<Exit> {
    watch::show(
        &args.router,
        &args.watch,
        async |client| page(client, args.pool.as_deref()).await,
        |answers, look| {
            let mut table = WorkerTable::new(look);
            for (router, page) in pages(answers) {
                items(&page["workers"]).for_each(|worker| table.add(router, worker));
            }
            table.0.to_string()
        },
    )
}

async fn page(client: &AdminClient, pool: Option<&str>) -> Result<Value, RemoteError> {
    let mut event = fleet_event(client).await?;
    if let (Some(pool), Some(workers)) = (pool, event["workers"].as_array_mut()) {
        workers.retain(|worker| worker["pool"] == pool);
    }
    Ok(event)
}

/// Table of workers as the live page has them.
#[derive(Debug)]
pub(super) struct WorkerTable(pub(super) FleetTable);

impl WorkerTable {
    pub(super) fn new(look: TableLook) -> Self {
        Self(FleetTable::new(
            look,
            &[
                ("pool", Side::Left),
                ("worker", Side::Left),
                ("role", Side::Left),
                ("state", Side::Left),
                ("in flight", Side::Right),
                ("running", Side::Right),
                ("waiting", Side::Right),
                ("KV cache", Side::Right),
                ("requests/s", Side::Right),
                ("tokens/s", Side::Right),
                ("first token", Side::Right),
                ("feed", Side::Left),
                ("reason", Side::Left),
            ],
        ))
    }

    pub(super) fn add(&mut self, router: &str, worker: &Value) {
        let is_draining = worker["draining"] == true;
        let reason = match (worker["reason"].as_str(), is_draining) {
            (Some(reason), _) => reason.to_owned(),
            (None, true) => "draining".to_owned(),
            (None, false) => String::new(),
        };
        let row = vec![
            text(&worker["pool"]).into(),
            text(&worker["name"]).into(),
            text(&worker["role"]).into(),
            state_cell(&worker["state"], is_draining),
            number(&worker["in_flight"]).into(),
            number(&worker["running"]).into(),
            number(&worker["waiting"]).into(),
            percent(&worker["kv_usage"]).into(),
            number(&worker["requests_per_s"]).into(),
            number(&worker["tokens_per_s"]).into(),
            seconds(&worker["ttft_s"]).into(),
            feed_cell(&worker["feed"]["state"]),
            reason.into(),
        ];
        self.0.add(router, row);
    }
}

/// Returns the cell of an event feed's state.
pub(super) fn feed_cell(state: &Value) -> TableCell {
    match state.as_str() {
        None => UNKNOWN.to_owned().into(),
        Some("live") => TableCell::toned("live".to_owned(), Tone::Good),
        Some(state) => TableCell::toned(state.to_owned(), Tone::Doubtful),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_worker_of_one_of_several_routers_is_shown_with_its_router() {
        let look = TableLook {
            is_several: true,
            ..TableLook::default()
        };
        let mut table = WorkerTable::new(look);
        let worker = json!({
            "pool": "chat", "name": "w0", "role": "mixed", "state": "ok", "draining": true, "in_flight": 3,
            "running": 2.0, "waiting": 1.0, "kv_usage": 0.5, "requests_per_s": 0.4, "tokens_per_s": null,
            "ttft_s": 0.25, "feed": { "state": "live" },
        });
        table.add("http://a:1", &worker);
        let expected = "\
router  pool  worker  role   state  in flight  running  waiting  KV cache  requests/s  tokens/s  first token  feed  reason
a:1     chat  w0      mixed  ok             3        2        1      50 %         0.4         -       250 ms  live  draining
";
        assert_eq!(table.0.to_string(), expected);
    }
}
