//! Exchange of loads between the routers of a simulation, as the arguments mean it.

use std::collections::BTreeSet;

use anyhow::bail;
use simulator::{BusCut, RouterBalance, RouterDeath, SharingSpec};

use crate::args::{BalanceKind, RouterEnd, ShareKind, SimulatedRouterArgs};

/// Returns the exchange; `None` where routers share nothing.
pub(super) fn spec(args: &SimulatedRouterArgs) -> anyhow::Result<Option<SharingSpec>> {
    if args.sharing.share == ShareKind::None {
        if args.sharing.share_loss > 0.0 || !args.sharing.cuts.is_empty() || args.sharing.share_expected {
            bail!(
                "failed to take --share-loss, --share-expected or --cut: without --share, routers send no messages"
            );
        }
        return Ok(None);
    }
    let routers = args.replicas as usize;
    if routers < 2 {
        bail!("failed to take --share: it needs several routers, such as --replicas 4");
    }
    if !(0.0..=1.0).contains(&args.sharing.share_loss) {
        bail!(
            "failed to take --share-loss {}: it is a share, from 0 to 1",
            args.sharing.share_loss
        );
    }
    let unknown = |router: &usize| *router >= routers;
    if let Some(router) = args
        .sharing
        .cuts
        .iter()
        .filter_map(|cut| cut.router)
        .find(unknown)
    {
        bail!("failed to take --cut: there is no router {router}; there are {routers}, counted from 0");
    }
    let micros = |seconds: f64| (seconds * 1e6) as u64;
    let cuts = args.sharing.cuts.iter().map(|cut| BusCut {
        router: cut.router,
        from_us: micros(cut.from_s),
        until_us: micros(cut.until_s),
    });
    Ok(Some(SharingSpec {
        every_us: args.sharing.share_ms * 1_000,
        lag_us: args.sharing.share_lag_ms * 1_000,
        loss: args.sharing.share_loss,
        queue: matches!(args.sharing.share, ShareKind::Queue | ShareKind::All),
        costs: args.sharing.share == ShareKind::All,
        expected: args.sharing.share_expected,
        cuts: cuts.collect(),
    }))
}

/// Returns the choice of the router of a request.
pub(super) fn balance(args: &SimulatedRouterArgs) -> RouterBalance {
    match args.sharing.balance {
        BalanceKind::Turn => RouterBalance::Turn,
        BalanceKind::Session => RouterBalance::Session,
    }
}

/// Returns the deaths of routers, of which one must live.
pub(super) fn deaths(args: &SimulatedRouterArgs) -> anyhow::Result<Vec<RouterDeath>> {
    let routers = args.replicas as usize;
    let deaths = &args.sharing.deaths;
    if let Some(death) = deaths.iter().find(|death| death.router >= routers) {
        bail!(
            "failed to take --router-fail {death}: there is no router {}; there are {routers}, counted from 0",
            death.router
        );
    }
    let dying: BTreeSet<usize> = deaths.iter().map(|death| death.router).collect();
    if dying.len() == routers {
        bail!("failed to take --router-fail: no router would be left of {routers}");
    }
    if dying.len() < deaths.len() {
        bail!("failed to take --router-fail: a router dies once");
    }
    let death = |death: &RouterEnd| RouterDeath {
        router: death.router,
        at_us: (death.at_s * 1e6) as u64,
    };
    Ok(deaths.iter().map(death).collect())
}
