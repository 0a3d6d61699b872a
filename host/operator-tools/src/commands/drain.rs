//! `conductor drain` and `conductor resume`: a worker gets no new requests, or gets requests again.

use std::collections::BTreeSet;
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
    let answers = routers.every_with(&places, |client, place| idle(client, place, limit));
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

/// Finds the worker at each router. Each must have it before the first one changes.
fn places(routers: &RouterSet, args: &DrainArgs) -> Result<Vec<WorkerPlace>> {
    let mut places = Vec::new();
    for client in routers.clients() {
        let page = routers.wait(client.get("/status"))?;
        places.push(find(&page, &args.worker, args.pool.as_deref())?);
    }
    Ok(places)
}

fn change(routers: &RouterSet, args: &DrainArgs, places: &[WorkerPlace], action: &str) -> Result<Exit> {
    let path = &format!("/admin/workers/{action}");
    let answers = routers.every_with(places, |client, place| {
        let body = json!({ "pool": place.pool, "worker": place.worker, "reason": args.reason });
        async move { client.post(path, Some(&body)).await }
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

/// Returns the worker that a name selects. All ranks of a data-parallel worker are one, as they drain together.
fn find(status: &Value, name: &str, pool: Option<&str>) -> Result<WorkerPlace, WorkerError> {
    let mut known = BTreeSet::new();
    let mut meant = BTreeSet::new();
    for (pool_name, worker) in members(status) {
        let place = WorkerPlace {
            worker: base_name(worker),
            pool: pool_name,
        };
        let is_named = [&place.worker, &text(&worker["name"])].into_iter().any(|worker| {
            let in_pool = name
                .strip_prefix(&*place.pool)
                .and_then(|rest| rest.strip_prefix('/'));
            worker == name || in_pool == Some(&**worker)
        });
        if is_named && pool.is_none_or(|pool| pool == place.pool) {
            meant.insert(place.clone());
        }
        known.insert(place);
    }
    if meant.len() > 1 {
        let pools: Vec<&str> = meant.iter().map(|place| &*place.pool).collect();
        return Err(WorkerError::Ambiguous {
            name: name.to_owned(),
            pools: pools.join(", "),
        });
    }
    meant.pop_first().ok_or_else(|| {
        let known = known
            .iter()
            .map(|place| format!("{}/{}", place.pool, place.worker));
        WorkerError::Unknown {
            name: name.to_owned(),
            known: listed(&known.collect::<Vec<_>>()),
        }
    })
}

/// Returns the workers with the names of their pools.
fn members(status: &Value) -> impl Iterator<Item = (String, &Value)> {
    items(&status["pools"])
        .flat_map(|pool| items(&pool["workers"]).map(move |worker| (text(&pool["name"]), worker)))
}

/// Returns the name of a worker in the configuration: that of a data-parallel rank is `NAME@RANK` on the page.
fn base_name(worker: &Value) -> String {
    let name = text(&worker["name"]);
    let rank = worker["rank"].as_u64().map(|rank| format!("@{rank}"));
    let base = rank.and_then(|rank| name.strip_suffix(&*rank).map(str::to_owned));
    base.unwrap_or(name)
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
async fn idle(client: &AdminClient, place: &WorkerPlace, limit: Duration) -> Result<Value, RemoteError> {
    let began = Instant::now();
    loop {
        let page = client.get("/status").await?;
        // A worker that left the fleet has none.
        let left = requests_of(&page, place);
        if left == 0 || began.elapsed() >= limit {
            return Ok(json!(left));
        }
        sleep(PAUSE.min(limit)).await;
    }
}

/// Returns the requests of all ranks of a worker.
fn requests_of(status: &Value, place: &WorkerPlace) -> u64 {
    let ranks =
        members(status).filter(|(pool, worker)| *pool == place.pool && base_name(worker) == place.worker);
    ranks
        .filter_map(|(_, worker)| worker["load"]["requests"].as_u64())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Value {
        let worker = |name: &str, rank: Option<u32>, requests: u64| {
            let load = json!({ "requests": requests });
            json!({ "name": name, "rank": rank, "load": load })
        };
        json!({ "pools": [
            { "name": "a", "workers": [worker("w0@0", Some(0), 1), worker("w0@1", Some(1), 2), worker("w1", None, 0)] },
            { "name": "b", "workers": [worker("w1", None, 4), worker("w2@0", None, 8)] },
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
        assert!(unknown.to_string().contains("a/w0, a/w1, b/w1"), "{unknown}");
        let at_sign = find(&page, "w2@0", None).unwrap();
        assert_eq!((&at_sign, requests_of(&page, &at_sign)), (&place("b", "w2@0"), 8));
    }

    #[test]
    fn a_name_of_a_worker_or_of_a_rank_selects_all_its_ranks_and_their_requests() {
        for name in ["w0", "a/w0", "w0@0", "a/w0@1"] {
            let place = find(&status(), name, None).unwrap();
            assert_eq!(place.worker, "w0");
            assert_eq!(requests_of(&status(), &place), 3);
        }
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
