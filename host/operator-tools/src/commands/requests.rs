//! `conductor requests`: the recorded requests, and with `--follow` those that end.

use std::collections::{HashSet, VecDeque};

use anyhow::Result;
use futures_util::future::select_all;
use serde_json::Value;
use thiserror::Error;
use tokio::signal::ctrl_c;
use tokio::sync::mpsc;

use super::fleet_table::{FleetTable, TableLook, items, pages, short};
use super::reach::RouterReach;
use crate::admin::{AdminClient, RemoteError, RouterAnswer, RouterSet, in_a_path};
use crate::args::{RequestFilterArgs, RequestsArgs, RouterArgs};
use crate::table::{Side, TableCell, Tone};
use crate::units::{UNKNOWN, number, seconds, text};
use crate::{Exit, UsageError, paint, print};

/// Requests of a list unless the command line has a number.
const USUAL_COUNT: u16 = 20;
/// Most requests of one page.
const PAGE: u16 = 200;
/// Outcome that selects running requests.
const OPEN: &str = "open";
/// Requests that a follower remembers, so that it prints none twice.
const REMEMBERED: usize = 10_000;
/// Rows in wait for the output.
const WAITING: usize = 256;

/// More requests than a page has.
#[derive(Debug, Error)]
#[error("failed to list {count} requests: a list has at most {PAGE}; name fewer, or filter them")]
struct TooManyRequests {
    count: u16,
}

/// Running requests in a list of those that end.
#[derive(Debug, Error)]
#[error(
    "failed to follow running requests: --follow prints requests as they end; leave out --outcome open or --follow"
)]
struct OpenFollowed;

/// Runs `conductor requests`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn requests(args: &RequestsArgs) -> Result<Exit> {
    let routers = RouterSet::of(&args.router)?;
    if args.follow {
        if args.filter.outcome.as_deref() == Some(OPEN) {
            return Err(UsageError::new(OpenFollowed).into());
        }
        return follow(&routers, args);
    }
    let count = args.count.unwrap_or(USUAL_COUNT);
    if count > PAGE {
        return Err(UsageError::new(TooManyRequests { count }).into());
    }
    let path = query(&args.filter, count);
    let answers = routers.every(|client| client.get(&path));
    let look = TableLook {
        is_coloured: paint::on_stdout(),
        width: None,
        is_several: routers.is_several(),
    };
    routers.print(&answers, &table(&answers, look).to_string())
}

/// Returns the newest recorded request of the routers.
///
/// # Errors
/// If no router can be queried, or none has a recorded request.
pub fn newest_request(args: &RouterArgs) -> Result<String> {
    let routers = RouterSet::of(args)?;
    let path = query(&RequestFilterArgs::default(), 1);
    let mut answers = routers.every(|client| client.get(&path));
    let rows = pages(&answers).filter_map(|(_, page)| items(&page["requests"]).next());
    let newest = rows.max_by(|one, other| {
        let at = |row: &Value| row["at"].as_f64().unwrap_or_default();
        at(one).total_cmp(&at(other))
    });
    if let Some(row) = newest {
        return Ok(text(&row["id"]));
    }
    if let Some(failed) = answers.iter().position(|answer| answer.page.is_err()) {
        answers.swap_remove(failed).page?;
    }
    anyhow::bail!("failed to find the last request: none is recorded; see `explain-sample` of [record]")
}

/// Returns the path of the page of requests that a filter selects.
fn query(filter: &RequestFilterArgs, limit: u16) -> String {
    let slower = filter.slower.map(|slower| slower.to_string());
    let parts = [
        ("pool", filter.pool.as_deref()),
        ("worker", filter.worker.as_deref()),
        ("policy", filter.policy.as_deref()),
        ("model", filter.model.as_deref()),
        ("outcome", filter.outcome.as_deref()),
        ("slower_s", slower.as_deref()),
    ];
    let parts = parts.into_iter();
    let parts = parts.filter_map(|(key, value)| Some(format!("&{key}={}", in_a_path(value?))));
    format!("/admin/requests?limit={limit}{}", parts.collect::<String>())
}

/// Returns whether a filter selects a row. The event stream has all of them.
fn selects(filter: &RequestFilterArgs, row: &Value) -> bool {
    let is = |key: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| row[key] == **wanted);
    let of_worker = is("worker", &filter.worker) || is("prefill_worker", &filter.worker);
    let is_slow = filter
        .slower
        .is_none_or(|slower| row["duration_s"].as_f64().is_some_and(|took| took >= slower));
    is("pool", &filter.pool)
        && is("policy", &filter.policy)
        && is("model", &filter.model)
        && is("outcome", &filter.outcome)
        && of_worker
        && is_slow
}

const COLUMNS: [(&str, Side); 13] = [
    ("time", Side::Left),
    ("request", Side::Left),
    ("model", Side::Left),
    ("pool", Side::Left),
    ("policy", Side::Left),
    ("worker", Side::Left),
    ("status", Side::Right),
    ("outcome", Side::Left),
    ("first token", Side::Right),
    ("duration", Side::Right),
    ("prompt", Side::Right),
    ("cached", Side::Right),
    ("output", Side::Right),
];

fn table(answers: &[RouterAnswer], look: TableLook) -> FleetTable {
    let mut table = FleetTable::new(look, &COLUMNS);
    for (router, page) in pages(answers) {
        for request in items(&page["requests"]) {
            table.add(router, row(request));
        }
    }
    table
}

fn row(request: &Value) -> Vec<TableCell> {
    let (outcome, tone) = match request["outcome"].as_str() {
        None => (OPEN.to_owned(), Tone::Doubtful),
        Some("complete") => ("complete".to_owned(), Tone::Good),
        Some(outcome) => (outcome.to_owned(), Tone::Bad),
    };
    let worker = match request["prefill_worker"].as_str() {
        Some(prefill) => format!("{prefill} > {}", text(&request["worker"])),
        None => text(&request["worker"]),
    };
    let policy = match request["fallback"] == true {
        true => "native fallback".to_owned(),
        false => text(&request["policy"]),
    };
    vec![
        clock(&request["at"]).into(),
        text(&request["id"]).into(),
        text(&request["model"]).into(),
        text(&request["pool"]).into(),
        policy.into(),
        worker.into(),
        number(&request["status"]).into(),
        TableCell::toned(outcome, tone),
        seconds(&request["ttft_s"]).into(),
        seconds(&request["duration_s"]).into(),
        number(&request["prompt_tokens"]).into(),
        number(&request["cached_tokens"]).into(),
        number(&request["output_tokens"]).into(),
    ]
}

/// Formats a time as the clock of the day in UTC.
fn clock(at: &Value) -> String {
    let Some(at) = at.as_f64() else {
        return UNKNOWN.to_owned();
    };
    let second = at as u64 % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{hour:02}:{minute:02}:{second:02}Z")
}

/// Widths of the columns of a list that grows.
const WIDTHS: [usize; COLUMNS.len()] = [9, 36, 20, 10, 16, 16, 6, 12, 11, 9, 7, 7, 7];

/// Prints requests as they end.
fn follow(routers: &RouterSet, args: &RequestsArgs) -> Result<Exit> {
    let is_json = routers.is_json();
    let mut printer = RowPrinter {
        is_several: routers.is_several(),
        is_json,
        known: HashSet::new(),
        arrived: VecDeque::new(),
        left: args.count.map(u64::from),
        has_reader: true,
    };
    let reach = RouterReach::of(routers);
    if !is_json {
        let header = COLUMNS.map(|(name, _)| name.to_owned());
        printer.print(&line(printer.is_several.then_some("router"), &header))?;
    }
    routers.wait(async {
        let (sender, mut rows) = mpsc::channel(WAITING);
        let followers = routers
            .clients()
            .iter()
            .map(|client| follow_one(client, sender.clone(), &reach));
        let followers = select_all(followers.map(Box::pin));
        tokio::select! {
            (failed, ..) = followers => Err(failed.into()),
            ended = printer.run(&mut rows, &args.filter) => ended.map(|()| match printer.has_reader {
                true => reach.exit(),
                false => Exit::Success,
            }),
            _ = ctrl_c() => Ok(Exit::Interrupted),
        }
    })
}

/// Requests of one event of a router.
#[derive(Debug)]
struct RouterRows<'a> {
    router: &'a str,
    event: Value,
    /// Set for the first event, which has the requests that ended before.
    is_backlog: bool,
}

/// Sends the rows of a router's stream, and opens a lost stream again. Returns the failure that ends the command.
async fn follow_one<'a>(
    client: &'a AdminClient,
    rows: mpsc::Sender<RouterRows<'a>>,
    reach: &RouterReach,
) -> RemoteError {
    let path = "/admin/stream?topics=requests";
    let report = async |away: RemoteError| eprintln!("conductor: {away}; trying again");
    let mut stream = match reach.open(client, path, report).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    // The first event of a stream that is opened again has what the follower missed.
    let mut is_backlog = true;
    loop {
        let lost = match stream.next_of("requests").await {
            Ok(event) => {
                let router = client.url();
                let event = RouterRows {
                    router,
                    event,
                    is_backlog,
                };
                is_backlog = false;
                // The receiver lives as long as this.
                let _ = rows.send(event).await;
                continue;
            }
            Err(lost) => lost,
        };
        eprintln!("conductor: {lost}; trying again");
        reach.lost();
        stream = match reach.open_again(client, path).await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
    }
}

/// Output of a follower.
#[derive(Debug)]
struct RowPrinter {
    is_several: bool,
    is_json: bool,
    /// Keys of the ended requests that were printed, filtered out or in the backlog.
    known: HashSet<String>,
    /// The same keys, the oldest first.
    arrived: VecDeque<String>,
    /// Requests until the end.
    left: Option<u64>,
    has_reader: bool,
}

impl RowPrinter {
    async fn run(
        &mut self,
        rows: &mut mpsc::Receiver<RouterRows<'_>>,
        filter: &RequestFilterArgs,
    ) -> Result<()> {
        while let Some(rows) = rows.recv().await {
            self.take(&rows, filter)?;
            if self.left == Some(0) {
                break;
            }
        }
        Ok(())
    }

    /// Prints the ended requests of an event that are new. The backlog has none of them.
    fn take(&mut self, rows: &RouterRows<'_>, filter: &RequestFilterArgs) -> Result<()> {
        let ended = items(&rows.event["requests"]).filter(|request| !request["outcome"].is_null());
        for request in ended {
            if self.left == Some(0) {
                break;
            }
            let is_new = self.is_new(rows.router, request);
            if is_new && !rows.is_backlog && selects(filter, request) {
                self.show(rows.router, request)?;
            }
        }
        Ok(())
    }

    /// Remembers a request. Returns whether it was unknown.
    fn is_new(&mut self, router: &str, request: &Value) -> bool {
        let key = format!("{router} {} {}", request["seq"], request["id"]);
        if self.known.contains(&key) {
            return false;
        }
        self.arrived.push_back(key.clone());
        self.known.insert(key);
        // A restarted router counts from 1 again, so the oldest row need not have the lowest number.
        if self.arrived.len() > REMEMBERED
            && let Some(oldest) = self.arrived.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    fn show(&mut self, router: &str, request: &Value) -> Result<()> {
        let router = self.is_several.then(|| short(router));
        let text = if self.is_json {
            let mut request = request.clone();
            if let Some(router) = router {
                request["router"] = router.into();
            }
            request.to_string()
        } else {
            let cells = row(request);
            let texts: Vec<String> = cells.iter().map(|cell| cell.text().to_owned()).collect();
            line(router.as_deref(), &texts)
        };
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.print(&text)
    }

    /// Prints a line. Without a reader it is the last one.
    fn print(&mut self, line: &str) -> Result<()> {
        if !print::write(format!("{line}\n"))? {
            (self.has_reader, self.left) = (false, Some(0));
        }
        Ok(())
    }
}

/// Returns a line of a list that grows.
fn line(router: Option<&str>, texts: &[String]) -> String {
    let first = router.map(|router| format!("{router:<22}"));
    let cells = texts.iter().zip(WIDTHS).zip(COLUMNS);
    let cells = cells.map(|((text, width), (_, side))| match side {
        Side::Left => format!("{text:<width$}"),
        Side::Right => format!("{text:>width$}"),
    });
    let cells: Vec<String> = first.into_iter().chain(cells).collect();
    cells.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(id: &str) -> Value {
        json!({
            "id": id, "seq": 7, "at": 1_795_452_095.5, "pool": "chat", "model": "llama", "policy": "mine",
            "worker": "w1", "prefill_worker": "w0", "fallback": false, "status": 200, "outcome": "complete",
            "ttft_s": 0.2, "duration_s": 3.25, "prompt_tokens": 812, "cached_tokens": 800, "output_tokens": null,
        })
    }

    #[test]
    fn a_request_is_one_line_with_its_way() {
        let texts = row(&request("req-1"));
        let texts: Vec<&str> = texts.iter().map(TableCell::text).collect();
        let expected = [
            "16:41:35Z",
            "req-1",
            "llama",
            "chat",
            "mine",
            "w0 > w1",
            "200",
            "complete",
            "200 ms",
            "3.2 s",
            "812",
            "800",
            "-",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_follower_prints_and_counts_only_what_ends_after_its_start() {
        let mut printer = RowPrinter {
            is_several: false,
            is_json: true,
            known: HashSet::new(),
            arrived: VecDeque::new(),
            left: Some(2),
            has_reader: true,
        };
        let mut take = |ids: &[&str], is_backlog: bool| {
            let requests: Vec<Value> = ids.iter().map(|id| request(id)).collect();
            let event = json!({ "requests": requests });
            let rows = RouterRows {
                router: "http://a:1",
                event,
                is_backlog,
            };
            printer.take(&rows, &RequestFilterArgs::default()).unwrap();
            printer.left
        };
        assert_eq!(take(&["old-1", "old-2", "old-3"], true), Some(2));
        assert_eq!(take(&["old-3", "new-1"], false), Some(1));
        assert_eq!(take(&["new-1", "new-2", "new-3"], false), Some(0));
    }

    #[test]
    fn a_row_of_a_router_that_began_again_is_printed_once() {
        let mut printer = RowPrinter {
            is_several: false,
            is_json: true,
            known: HashSet::new(),
            arrived: VecDeque::new(),
            left: None,
            has_reader: true,
        };
        let before = 1_000_000;
        for seq in before..before + REMEMBERED as u64 {
            assert!(printer.is_new("http://a:1", &json!({ "seq": seq, "id": "x" })));
        }
        let first = json!({ "seq": 1, "id": "y" });
        assert!(printer.is_new("http://a:1", &first));
        assert!(!printer.is_new("http://a:1", &first));
        assert_eq!(printer.known.len(), REMEMBERED);
    }

    #[test]
    fn a_filter_is_a_query_and_selects_rows_of_the_stream_alike() {
        let filter = RequestFilterArgs {
            worker: Some("w0".to_owned()),
            model: Some("a/b c".to_owned()),
            slower: Some(2.0),
            ..RequestFilterArgs::default()
        };
        assert_eq!(
            query(&filter, 5),
            "/admin/requests?limit=5&worker=w0&model=a%2Fb%20c&slower_s=2"
        );
        let mut row = request("req-1");
        assert!(!selects(&filter, &row), "another model");
        row["model"] = json!("a/b c");
        assert!(selects(&filter, &row));
        row["duration_s"] = json!(1.0);
        assert!(!selects(&filter, &row));
    }
}
