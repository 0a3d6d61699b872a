//! `conductor top`: pools, the busiest workers and the latest changes, live by the routers' event streams.

use std::collections::{BTreeMap, VecDeque};

use anyhow::Result;
use futures_util::future::select_all;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::fleet_table::{FleetTable, TableLook, errors_cell, items, short};
use super::reach::RouterReach;
use super::screen::LiveScreen;
use super::workers::WorkerTable;
use crate::admin::{AdminClient, RemoteError, RouterSet, StreamEvent};
use crate::args::TopArgs;
use crate::table::{Side, TableCell, Tone};
use crate::units::{number, percent, seconds, text};
use crate::{Exit, print};

/// Path of the stream.
const STREAM: &str = "/admin/stream?topics=fleet,changes";
/// Changes that are shown.
const CHANGES: usize = 5;
/// Events in wait for the screen.
const WAITING: usize = 256;

/// Runs `conductor top`.
///
/// # Errors
/// If a router refuses or none is reached, or the output cannot be written.
pub fn top(args: &TopArgs) -> Result<Exit> {
    let routers = RouterSet::of(&args.router)?;
    let is_json = routers.is_json();
    let mut screen = (!is_json).then(LiveScreen::open).transpose()?;
    let mut fleets: Vec<RouterFleet> = routers.clients().iter().map(RouterFleet::of).collect();
    let mut left = args.count;
    let reach = RouterReach::of(&routers);
    routers.wait(async {
        let (sender, mut messages) = mpsc::channel(WAITING);
        let clients = routers.clients().iter().enumerate();
        let followers =
            clients.map(|(number, client)| Box::pin(follow(number, client, sender.clone(), &reach)));
        let mut followers = select_all(followers);
        // One listener for all turns: a signal while a frame is drawn is not lost.
        let mut interrupts = signal(SignalKind::interrupt())?;
        loop {
            let (number, message) = tokio::select! {
                (failed, ..) = &mut followers => return Err(failed.into()),
                message = messages.recv() => match message {
                    Some(message) => message,
                    None => return Ok(Exit::Success),
                },
                _ = interrupts.recv() => return Ok(Exit::Interrupted),
            };
            let is_update = matches!(&message, Ok(event) if event.name == "fleet");
            let is_shown = is_update || message.is_err();
            let mut has_reader = true;
            if let (Err(away), true) = (&message, is_json) {
                eprintln!("conductor: {away}; trying again");
            }
            if is_json && is_update {
                has_reader = print::write(format!("{}\n", json_line(&routers, number, &message)))?;
            }
            fleets[number].take(message);
            if let (Some(screen), true) = (&mut screen, is_shown) {
                let look = screen.look(routers.is_several());
                has_reader = screen.show(&frame(&fleets, look))?;
            }
            left = left.map(|left| left.saturating_sub(u64::from(is_update)));
            if !has_reader {
                return Ok(Exit::Success);
            }
            if left == Some(0) {
                return Ok(reach.exit());
            }
        }
    })
}

/// Event of a router's stream, or the loss of the stream.
type StreamMessage = Result<StreamEvent, RemoteError>;

fn json_line(routers: &RouterSet, number: usize, message: &StreamMessage) -> Value {
    let mut event = message
        .as_ref()
        .map(|event| event.data.clone())
        .unwrap_or_default();
    if routers.is_several() {
        event["router"] = routers.clients()[number].url().into();
    }
    event
}

/// Sends the events of a router's stream, and opens a lost stream again. Returns the failure that ends the command.
async fn follow(
    number: usize,
    client: &AdminClient,
    messages: mpsc::Sender<(usize, StreamMessage)>,
    reach: &RouterReach,
) -> RemoteError {
    let report = async |away| _ = messages.send((number, Err(away))).await;
    let mut stream = match reach.open(client, STREAM, report).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    loop {
        let message = stream.next().await;
        let is_lost = message.is_err();
        if is_lost {
            reach.lost();
        }
        // The receiver lives as long as this.
        let _ = messages.send((number, message)).await;
        if is_lost {
            stream = match reach.open_again(client, STREAM).await {
                Ok(stream) => stream,
                Err(error) => return error,
            };
        }
    }
}

/// State of one router by its events.
#[derive(Debug, Default)]
struct RouterFleet {
    router: String,
    ready: Option<bool>,
    generation: Value,
    pools: Vec<Value>,
    /// Workers by `POOL/NAME`.
    workers: BTreeMap<String, Value>,
    /// Latest changes, oldest first.
    changes: VecDeque<Value>,
    lost: Option<String>,
    /// Set if the next changes are the first ones of a stream that was opened again.
    is_new_stream: bool,
}

impl RouterFleet {
    fn of(client: &AdminClient) -> Self {
        Self {
            router: client.url().to_owned(),
            ..Self::default()
        }
    }

    fn take(&mut self, message: StreamMessage) {
        let event = match message {
            Ok(event) => event,
            Err(lost) => {
                self.lost = Some(lost.to_string());
                self.is_new_stream = true;
                return;
            }
        };
        self.lost = None;
        if event.name == "changes" {
            self.take_changes(&event.data["changes"]);
            return;
        }
        if event.name != "fleet" {
            return;
        }
        let data = event.data;
        if data["full"] == true {
            self.workers.clear();
        }
        for gone in items(&data["gone"]) {
            self.workers.remove(&text(gone));
        }
        for worker in items(&data["workers"]) {
            let key = format!("{}/{}", text(&worker["pool"]), text(&worker["name"]));
            self.workers.insert(key, worker.clone());
        }
        self.pools = items(&data["pools"]).cloned().collect();
        self.ready = data["ready"].as_bool();
        self.generation = data["generation"].clone();
    }

    /// Adds changes. The first event of a stream, and one after a lag, repeats earlier ones.
    fn take_changes(&mut self, changes: &Value) {
        // The router may be another process, with numbers of its own.
        if std::mem::take(&mut self.is_new_stream) {
            self.changes.clear();
        }
        let is_repeated = |known: &Value| items(changes).any(|change| change["id"] == known["id"]);
        self.changes.retain(|known| !is_repeated(known));
        self.changes.extend(items(changes).cloned());
        let many = self.changes.len().saturating_sub(CHANGES);
        self.changes.drain(..many);
    }
}

/// Returns the whole text of the screen.
fn frame(fleets: &[RouterFleet], look: TableLook) -> String {
    let mut shown = String::new();
    for fleet in fleets {
        let state = match (&fleet.lost, fleet.ready) {
            (Some(lost), _) => lost.clone(),
            (None, Some(true)) => format!("ready, generation {}", fleet.generation),
            (None, Some(false)) => format!("not ready, generation {}", fleet.generation),
            (None, None) => "waiting for its first event".to_owned(),
        };
        shown += &format!("{}: {state}\n", short(&fleet.router));
    }
    shown += &format!("\n{}\n", pools(fleets, look));
    let mut workers: Vec<(&str, &Value)> = Vec::new();
    for fleet in fleets {
        workers.extend(fleet.workers.values().map(|worker| (&*fleet.router, worker)));
    }
    let load = |worker: &Value| worker["in_flight"].as_u64().unwrap_or_default();
    workers.sort_by_key(|(_, worker)| std::cmp::Reverse(load(worker)));
    let changes = changes(fleets, look);
    let mut table = WorkerTable::new(look);
    workers
        .iter()
        .for_each(|(router, worker)| table.add(router, worker));
    shown + &changes + &table.0.to_string()
}

fn pools(fleets: &[RouterFleet], look: TableLook) -> FleetTable {
    let mut table = FleetTable::new(
        look,
        &[
            ("pool", Side::Left),
            ("in flight", Side::Right),
            ("queued", Side::Right),
            ("requests/s", Side::Right),
            ("errors/s", Side::Right),
            ("tokens/s", Side::Right),
            ("first token", Side::Right),
            ("per token", Side::Right),
            ("hit ratio", Side::Right),
        ],
    );
    for fleet in fleets {
        for pool in &fleet.pools {
            let rates = &pool["rates"];
            let row = vec![
                text(&pool["name"]).into(),
                number(&rates["in_flight"]).into(),
                number(&rates["queue_waiting"]).into(),
                number(&rates["requests_per_s"]).into(),
                errors_cell(rates),
                number(&rates["tokens_per_s"]).into(),
                seconds(&rates["ttft_s"]).into(),
                seconds(&rates["tpot_s"]).into(),
                percent(&rates["hit_ratio"]).into(),
            ];
            table.add(&fleet.router, row);
        }
    }
    table
}

/// Returns the latest changes, newest first.
fn changes(fleets: &[RouterFleet], look: TableLook) -> String {
    let mut rows: Vec<(&str, &Value)> = Vec::new();
    for fleet in fleets {
        rows.extend(fleet.changes.iter().map(|change| (&*fleet.router, change)));
    }
    if rows.is_empty() {
        return String::new();
    }
    let at = |change: &Value| change["at"].as_f64().unwrap_or_default();
    rows.sort_by(|(_, one), (_, other)| at(other).total_cmp(&at(one)));
    let mut table = FleetTable::new(look, &[("change", Side::Left), ("summary", Side::Left)]);
    for (router, change) in rows.into_iter().take(CHANGES) {
        let tone = match change["result"] == "refused" {
            true => Tone::Bad,
            false => Tone::Plain,
        };
        let kind = TableCell::toned(text(&change["kind"]), tone);
        table.add(router, vec![kind, text(&change["summary"]).into()]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, data: Value) -> StreamMessage {
        let name = name.to_owned();
        Ok(StreamEvent { name, data })
    }

    fn worker(name: &str, in_flight: u64) -> Value {
        json!({ "pool": "chat", "name": name, "role": "mixed", "state": "ok", "draining": false, "in_flight": in_flight })
    }

    /// Returns a router's fleet after a full event with two workers.
    fn fleet_of_two() -> RouterFleet {
        let mut fleet = RouterFleet {
            router: "http://a:1".to_owned(),
            ..RouterFleet::default()
        };
        let full = json!({
            "full": true, "ready": true, "generation": 2, "gone": [], "workers": [worker("w0", 1), worker("w1", 2)],
            "pools": [{ "name": "chat", "rates": { "requests_per_s": 3.0, "in_flight": 3 } }],
        });
        fleet.take(event("fleet", full));
        fleet
    }

    #[test]
    fn partial_events_change_the_picture_of_the_full_one() {
        let mut fleet = fleet_of_two();
        let part = json!({
            "full": false, "ready": true, "generation": 2, "gone": ["chat/w0"], "workers": [worker("w2", 9)],
            "pools": [],
        });
        fleet.take(event("fleet", part));
        let keys: Vec<&str> = fleet.workers.keys().map(String::as_str).collect();
        assert_eq!(keys, ["chat/w1", "chat/w2"]);
    }

    #[test]
    fn the_busiest_worker_is_the_first_and_a_lost_router_is_named() {
        let mut fleet = fleet_of_two();
        let changes: Vec<Value> = (0..9)
            .map(|at| json!({ "id": at, "at": at, "kind": "worker-drained", "summary": format!("change {at}") }))
            .collect();
        fleet.take(event("changes", json!({ "changes": changes })));
        let shown = frame(std::slice::from_ref(&fleet), TableLook::default());
        assert!(shown.starts_with("a:1: ready, generation 2\n"), "{shown}");
        assert!(shown.find("w1") < shown.find("w0"), "{shown}");
        assert!(
            shown.contains("change 8") && !shown.contains("change 3"),
            "{shown}"
        );
        fleet.take(Err(RemoteError::Stream {
            url: "http://a:1".to_owned(),
            cause: "the router ended it".to_owned(),
        }));
        let shown = frame(&[fleet], TableLook::default());
        assert!(shown.contains("the router ended it"), "{shown}");
    }

    #[test]
    fn repeated_changes_are_listed_once_and_those_of_a_lost_stream_no_more() {
        let changes = |ids: &[u64]| {
            let changes = ids.iter().map(|id| json!({ "id": id, "at": id }));
            event("changes", json!({ "changes": changes.collect::<Vec<_>>() }))
        };
        let ids = |fleet: &RouterFleet| -> Vec<_> {
            let ids = fleet.changes.iter().map(|change| change["id"].as_u64());
            ids.flatten().collect()
        };
        let mut fleet = fleet_of_two();
        fleet.take(changes(&[1, 2, 3]));
        fleet.take(changes(&[1, 2, 3, 4]));
        assert_eq!(ids(&fleet), [1, 2, 3, 4]);
        fleet.take(Err(RemoteError::Stream {
            url: "http://a:1".to_owned(),
            cause: "the router ended it".to_owned(),
        }));
        assert_eq!(ids(&fleet), [1, 2, 3, 4]);
        fleet.take(changes(&[1]));
        assert_eq!(ids(&fleet), [1]);
    }
}
