//! Faults, and the looks after each.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nats_server::{NatsServer, NatsSite};

use crate::load::Load;
use crate::relay::Relay;
use crate::routers::{COUNT, Routers};
use crate::table::Row;

/// Streams that are held open at each router.
const HELD: u64 = 2;
/// Longest wait for a state.
const PATIENCE: Duration = Duration::from_secs(30);
/// Duration of a partition, and of delays.
const PARTITION: Duration = Duration::from_secs(6);
/// Delay of messages.
const DELAY: Duration = Duration::from_secs(3);

/// A fault.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    RouterKilled,
    NatsKilled,
    Rollback,
    RouterRestarted,
    NatsPaused,
    MessagesDelayed,
    Resumption,
}

impl Fault {
    pub(crate) const ALL: [Self; 7] = [
        Self::RouterKilled,
        Self::NatsKilled,
        Self::Rollback,
        Self::RouterRestarted,
        Self::NatsPaused,
        Self::MessagesDelayed,
        Self::Resumption,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::RouterKilled => "router killed",
            Self::NatsKilled => "NATS killed, restarted",
            Self::Rollback => "rollback",
            Self::RouterRestarted => "router restarted",
            Self::NatsPaused => "NATS stopped for 6 s",
            Self::MessagesDelayed => "messages delayed 3 s",
            Self::Resumption => "resumption",
        }
    }
}

/// Plays a fault under load, then looks at the loads.
pub(crate) async fn play(
    fault: Fault,
    round: usize,
    routers: &mut Routers,
    site: &NatsSite,
    nats: &mut Option<NatsServer>,
    relay: &Relay,
    load: &Load,
) -> Result<Row> {
    let at = round % COUNT;
    let mut rollback = None;
    match fault {
        Fault::RouterKilled | Fault::RouterRestarted => {
            load.ending(Some(at));
            routers.0[at].end(matches!(fault, Fault::RouterKilled))?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            routers.0[at].start()?;
            routers.0[at].ready().await;
            load.ending(None);
        }
        Fault::NatsKilled => {
            drop(nats.take());
            tokio::time::sleep(Duration::from_secs(3)).await;
            *nats = site.start();
        }
        Fault::NatsPaused => {
            if let Some(nats) = nats {
                nats.pause()?;
                tokio::time::sleep(PARTITION).await;
                nats.resume()?;
            }
        }
        Fault::MessagesDelayed => {
            relay.delay(DELAY);
            tokio::time::sleep(PARTITION).await;
            relay.delay(Duration::ZERO);
            tokio::time::sleep(DELAY).await;
        }
        Fault::Rollback => rollback = Some(decide(routers, "rollback").await?),
        Fault::Resumption => rollback = Some(decide(routers, "resume").await?),
    }
    connected(routers).await?;
    load.pause().await;
    let held = load.hold(usize::try_from(HELD)?, None).await?;
    let converged = known(routers, HELD * u64::try_from(COUNT)?).await;
    drop(held);
    let freed = known(routers, 0).await;
    load.resume();
    Ok(Row {
        fault: fault.as_str(),
        round,
        converged,
        freed,
        rollback,
    })
}

/// Waits until each router receives messages of the others, and of the store.
async fn connected(routers: &Routers) -> Result<()> {
    let start = Instant::now();
    for router in &routers.0 {
        loop {
            let page = router.page("/admin/replicas").await?;
            let others = page["others"].as_array().into_iter().flatten();
            let ready = others.filter(|other| other["state"] == "ready").count();
            if ready >= COUNT - 1
                && page["agreement"]["synced"] == true
                && page["agreement"]["proposals"] == 0
            {
                break;
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "the routers do not find each other: {page}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

/// Returns the time until every router counts so many requests.
async fn known(routers: &Routers, requests: u64) -> Option<Duration> {
    let start = Instant::now();
    let mut last = Vec::new();
    while start.elapsed() < PATIENCE {
        let mut found = Vec::new();
        for router in &routers.0 {
            found.push(router.known_requests().await.ok());
        }
        if found.iter().all(|known| *known == Some(requests)) {
            return Some(start.elapsed());
        }
        if found != last {
            eprintln!(
                "after {:?} the routers know {found:?} of {requests} requests",
                start.elapsed()
            );
            last = found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// Lets one router decide, and returns how many obey, and how many decisions of that the store has.
async fn decide(routers: &Routers, action: &str) -> Result<(usize, u64)> {
    let before = revision(routers).await?;
    let mut made = false;
    for router in &routers.0 {
        // A router that has no version before refuses.
        made = router.act(action).await?;
        if made {
            break;
        }
    }
    ensure!(made, "no router could {action} the policy");
    let wants_held = action == "rollback";
    let is_held =
        |mine: &serde_json::Value| mine["held_back"].as_array().is_some_and(|held| !held.is_empty());
    let start = Instant::now();
    let mut obeyed = 0;
    while start.elapsed() < PATIENCE && obeyed < COUNT {
        obeyed = 0;
        for router in &routers.0 {
            let mine = router.mine("the policy is there", |_| true).await;
            obeyed += usize::from(is_held(&mine) == wants_held && mine["sha256"].is_string());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after = revision(routers).await?;
    Ok((obeyed, after - before))
}

/// Returns the number of accepted decisions of all routers, since their starts.
async fn revision(routers: &Routers) -> Result<u64> {
    let mut sum = 0;
    for router in &routers.0 {
        let page = router.admin.get("/metrics").await?.text();
        let line = page
            .lines()
            .find(|line| line.starts_with("conductor_replicas_agreed_accepted_total "));
        let number = line
            .and_then(|line| line.rsplit(' ').next())
            .and_then(|text| text.parse::<u64>().ok());
        sum += number.unwrap_or_default();
    }
    Ok(sum)
}
