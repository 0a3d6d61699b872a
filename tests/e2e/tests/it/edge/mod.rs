//! What clients may do to a router that listens where anybody can reach it: sizes, framing, slowness, TLS, other origins.

mod capture;
mod connections;
mod framing;
mod raw;
mod tls;
mod workers;

use anyhow::Result;
use harness::TestRouter;

/// What a metric of the router's says, whatever its labels; 0 where it is not there.
async fn metric(router: &TestRouter, name: &str) -> Result<f64> {
    let page = router.admin.get("/metrics").await?.text();
    let lines = page.lines().filter(|line| line.starts_with(name));
    let numbers = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(numbers.sum())
}

/// How many were turned away for this reason.
async fn turned(router: &TestRouter, reason: &str) -> f64 {
    let name = format!("conductor_edge_turned_away_total{{reason=\"{reason}\"}}");
    metric(router, &name).await.unwrap()
}
