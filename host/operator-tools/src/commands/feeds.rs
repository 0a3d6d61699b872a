//! `conductor feeds`: the KV event feeds of workers and stores.

use anyhow::Result;
use serde_json::Value;

use super::fleet_table::{FleetTable, TableLook, items, pages};
use super::watch;
use super::workers::feed_cell;
use crate::Exit;
use crate::args::PageArgs;
use crate::table::{Side, TableCell};
use crate::units::{UNKNOWN, number, seconds, text};

/// Runs `conductor feeds`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn feeds(args: &PageArgs) -> Result<Exit> {
    watch::show(
        &args.router,
        &args.watch,
        async |client| client.get("/admin/feeds").await,
        |answers, look| {
            let mut table = empty(look);
            for (router, page) in pages(answers) {
                items(&page["feeds"])
                    .for_each(|feed| table.add(router, row(feed, &feed["worker"], "worker")));
                items(&page["stores"]).for_each(|feed| table.add(router, row(feed, &feed["store"], "store")));
            }
            table.to_string()
        },
    )
}

fn empty(look: TableLook) -> FleetTable {
    FleetTable::new(
        look,
        &[
            ("of", Side::Left),
            ("name", Side::Left),
            ("rank", Side::Right),
            ("endpoint", Side::Left),
            ("state", Side::Left),
            ("sequence", Side::Right),
            ("gaps", Side::Right),
            ("resets", Side::Right),
            ("rejected", Side::Right),
            ("lag", Side::Right),
            ("silent", Side::Right),
            ("reason", Side::Left),
        ],
    )
}

fn row(feed: &Value, name: &Value, of: &str) -> Vec<TableCell> {
    let reason = match feed["state"] == "live" && feed["silent"] != true {
        true => String::new(),
        false => text(&feed["reason"]),
    };
    vec![
        of.to_owned().into(),
        text(name).into(),
        number(&feed["rank"]).into(),
        text(&feed["endpoint"]).into(),
        feed_cell(&feed["state"]),
        number(&feed["last_seq"]).into(),
        number(&feed["gaps"]).into(),
        number(&feed["resets"]).into(),
        number(&feed["rejected_messages"]).into(),
        seconds(&feed["lag_s"]).into(),
        seconds(&feed["silent_for_s"]).into(),
        match &*reason {
            UNKNOWN => String::new(),
            _ => reason,
        }
        .into(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_feed_that_is_down_is_shown_with_its_reason() {
        let mut table = empty(TableLook::default());
        let feed = json!({
            "worker": "w0", "rank": 0, "endpoint": "tcp://a:5557", "state": "connecting", "last_seq": null, "gaps": 1,
            "resets": 0, "rejected_messages": 0, "lag_s": null, "silent_for_s": 30.0, "reason": "the connection is lost",
        });
        table.add("", row(&feed, &feed["worker"], "worker"));
        let expected = "\
of      name  rank  endpoint      state       sequence  gaps  resets  rejected  lag  silent  reason
worker  w0       0  tcp://a:5557  connecting         -     1       0         0    -  30.0 s  the connection is lost
";
        assert_eq!(table.to_string(), expected);
    }
}
