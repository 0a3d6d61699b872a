//! `conductor drain` and `conductor resume`: a worker gets no new requests, or gets requests again.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::time::sleep;

use super::fleet_table::{items, short};
use crate::Exit;
use crate::admin::{AdminClient, RemoteError, RouterSet};
use crate::args::{DrainArgs, DrainWaitArgs};
use crate::units::text;

/// Pause between two looks at a draining worker.
const PAUSE: Duration = Duration::from_millis(500);

/// Worker that a name does not select.
#[derive(Debug, Error)]
enum WorkerError {
    #[error("failed to find the worker `{name}`: the router has {known}")]
    Unknown { name: String, known: String },
    #[error("failed to select the worker `{name}`: the pools {pools} have one; name one with --pool")]
    Ambiguous { name: String, pools: String },
}

/// Worker of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WorkerPlace {
    pool: String,
    worker: String,
}

/// Runs `conductor drain`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn drain(args: &DrainWaitArgs) -> Result<Exit> {
    let routers = RouterSet::of(&args.drain.router)?;
    let places = places(&routers, &args.drain)?;
    let exit = change(&routers, &args.drain, &places, "drain")?;
    if !args.wait || exit != Exit::Success {
        return Ok(exit);
    }
    let limit = Duration::from_secs_f64(args.timeout);
    let answers = routers.every(|client| idle(client, place_at(&places, client), limit));
    let mut is_idle = true;
    for answer in answers {
        let router = short(&answer.router);
        let left = answer.page.map(|left| left.as_u64().unwrap_or_default());
        match &left {
            Ok(0) => eprintln!("{router}: it has no requests of this router left"),
            Ok(1) => eprintln!("{router}: it still has 1 request after {limit:?}"),
            Ok(left) => eprintln!("{router}: it still has {left} requests after {limit:?}"),
            Err(error) => eprintln!("conductor: {error}"),
        }
        is_idle &= matches!(left, Ok(0));
    }
    Ok(if is_idle { Exit::Success } else { Exit::Failure })
}

/// Runs `conductor resume`.
///
/// # Errors
/// If no router can be queried, or the output cannot be written.
pub fn resume(args: &DrainArgs) -> Result<Exit> {
    let routers = RouterSet::of(&args.router)?;
    change(&routers, args, &places(&routers, args)?, "resume")
}

/// Worker of each router, by the router's address.
type WorkerPlaces<'r> = Vec<(&'r str, WorkerPlace)>;

/// Finds the worker at every router. Each must have it before the first one changes.
fn places<'r>(routers: &'r RouterSet, args: &DrainArgs) -> Result<WorkerPlaces<'r>> {
    let mut places = Vec::new();
    for client in routers.clients() {
        let page = routers.wait(client.get("/status"))?;
        places.push((client.url(), find(&page, &args.worker, args.pool.as_deref())?));
    }
    Ok(places)
}

fn place_at<'p>(places: &'p WorkerPlaces<'_>, client: &AdminClient) -> Option<&'p WorkerPlace> {
    let mut places = places.iter();
    let (_, place) = places.find(|(url, _)| *url == client.url())?;
    Some(place)
}

fn change(routers: &RouterSet, args: &DrainArgs, places: &WorkerPlaces<'_>, action: &str) -> Result<Exit> {
    let path = format!("/admin/workers/{action}");
    let answers = routers.every(|client| {
        let place = place_at(places, client);
        let body =
            place.map(|place| json!({ "pool": place.pool, "worker": place.worker, "reason": args.reason }));
        let path = &path;
        async move { client.post(path, body.as_ref()).await }
    });
    let lines = answers.iter().filter_map(|answer| {
        let page = answer.page.as_ref().ok()?;
        let message = text(&page["message"]);
        Some(match routers.is_several() {
            true => format!("{}: {message}\n", short(&answer.router)),
            false => format!("{message}\n"),
        })
    });
    routers.print(&answers, &lines.collect::<String>())
}

/// Returns the worker that a name selects.
fn find(status: &Value, name: &str, pool: Option<&str>) -> Result<WorkerPlace, WorkerError> {
    let members: Vec<(String, String)> = items(&status["pools"])
        .flat_map(|pool| {
            items(&pool["workers"]).map(move |worker| (text(&pool["name"]), text(&worker["name"])))
        })
        .collect();
    let is_meant = |(of, worker): &&(String, String)| {
        let in_pool = pool.is_none_or(|pool| pool == of);
        in_pool && (worker == name || name.strip_prefix(&**of) == Some(&format!("/{worker}")))
    };
    let mut meant: Vec<&(String, String)> = members.iter().filter(is_meant).collect();
    // The ranks of a worker have one name.
    meant.dedup();
    match &meant[..] {
        [(pool, worker)] => Ok(WorkerPlace {
            pool: pool.clone(),
            worker: worker.clone(),
        }),
        [] => {
            let known: Vec<String> = members
                .iter()
                .map(|(pool, worker)| format!("{pool}/{worker}"))
                .collect();
            Err(WorkerError::Unknown {
                name: name.to_owned(),
                known: listed(&known),
            })
        }
        several => Err(WorkerError::Ambiguous {
            name: name.to_owned(),
            pools: several
                .iter()
                .map(|(pool, _)| &**pool)
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// Returns a list of names that is not too long.
fn listed(names: &[String]) -> String {
    match names.len() {
        0 => "no workers".to_owned(),
        1..=12 => names.join(", "),
        count => format!("{}, and {} more", names[..12].join(", "), count - 12),
    }
}

/// Waits until a worker has no requests of a router, and returns the number of those that are left. The name alone may
/// select another worker by now.
async fn idle(
    client: &AdminClient,
    place: Option<&WorkerPlace>,
    limit: Duration,
) -> Result<Value, RemoteError> {
    let began = Instant::now();
    loop {
        let page = client.get("/status").await?;
        // A worker that left the fleet has none.
        let left = place.map_or(0, |place| requests_of(&page, place));
        if left == 0 || began.elapsed() >= limit {
            return Ok(json!(left));
        }
        sleep(PAUSE.min(limit)).await;
    }
}

fn requests_of(status: &Value, place: &WorkerPlace) -> u64 {
    let pool = items(&status["pools"]).filter(|pool| pool["name"] == *place.pool);
    let workers = pool.flat_map(|pool| items(&pool["workers"]));
    let ranks = workers.filter(|worker| worker["name"] == *place.worker);
    ranks
        .filter_map(|worker| worker["load"]["requests"].as_u64())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        let worker = |name: &str, requests: u64| json!({ "name": name, "load": { "requests": requests } });
        json!({ "pools": [
            { "name": "a", "workers": [worker("w0", 1), worker("w0", 2), worker("w1", 0)] },
            { "name": "b", "workers": [worker("w1", 4)] },
        ] })
    }

    #[test]
    fn a_worker_is_found_by_its_name_or_with_its_pool() {
        let place = |pool: &str, worker: &str| WorkerPlace {
            pool: pool.to_owned(),
            worker: worker.to_owned(),
        };
        let page = status();
        assert_eq!(find(&page, "w0", None).unwrap(), place("a", "w0"));
        assert_eq!(find(&page, "b/w1", None).unwrap(), place("b", "w1"));
        assert_eq!(find(&page, "w1", Some("a")).unwrap(), place("a", "w1"));
        let ambiguous = find(&page, "w1", None).unwrap_err();
        assert!(ambiguous.to_string().contains("a, b"), "{ambiguous}");
        let unknown = find(&page, "w9", None).unwrap_err();
        assert!(unknown.to_string().contains("a/w0"), "{unknown}");
    }

    #[test]
    fn requests_of_all_ranks_count() {
        let place = find(&status(), "w0", None).unwrap();
        assert_eq!(requests_of(&status(), &place), 3);
    }

    #[test]
    fn a_later_worker_of_the_same_name_in_another_pool_hides_no_requests() {
        let place = find(&status(), "w0", None).unwrap();
        let mut page = status();
        let other = json!({ "name": "w0", "load": { "requests": 0 } });
        page["pools"][1]["workers"] = json!([other]);
        assert!(find(&page, "w0", None).is_err());
        assert_eq!(requests_of(&page, &place), 3);
        page["pools"][0]["workers"] = json!([]);
        assert_eq!(requests_of(&page, &place), 0, "it left the fleet");
    }
}
