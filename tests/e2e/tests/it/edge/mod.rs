//! What clients may do to a router that listens where anybody can reach it: sizes, framing, slowness, TLS, other origins.

mod capture;
mod connections;
mod framing;
mod raw;
mod tls;
mod workers;

use harness::TestRouter;

/// What a metric of the router's says, whatever its labels; 0 where it is not there.
async fn metric(router: &TestRouter, name: &str) -> f64 {
    router.metric(name).await.unwrap().unwrap_or(0.0)
}

/// How many were turned away for this reason.
async fn turned(router: &TestRouter, reason: &str) -> f64 {
    let name = format!("conductor_edge_turned_away_total{{reason=\"{reason}\"}}");
    metric(router, &name).await
}
