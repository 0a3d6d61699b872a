//! Exposed listeners: sizes, framing, slowness, TLS, other origins.

mod capture;
mod connections;
mod framing;
mod raw;
mod tls;
mod workers;

use harness::TestRouter;

/// Returns the sum of a metric over all labels; 0 if it is missing.
async fn metric(router: &TestRouter, name: &str) -> f64 {
    router.metric(name).await.unwrap().unwrap_or(0.0)
}

/// Returns the number of refusals for this reason.
async fn turned(router: &TestRouter, reason: &str) -> f64 {
    let name = format!("conductor_edge_turned_away_total{{reason=\"{reason}\"}}");
    metric(router, &name).await
}
