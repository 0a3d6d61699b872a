//! Probe of how one worker hands prompts over: its dialect, which the pool names or the worker's pages show, and its bootstrap server.
//!
//! The pages are those that the router detects a dialect by (`proxy/src/pd/detect.rs`), in the same order.

use inference_api::{engine_ids, metrics_dialect, server_dialect};
use proxy::{Authorization, ConnectionsSpec, WorkerClient};
use routing::{Dialect, Role};
use serde::Deserialize;

use super::observed::{Bootstrap, Connector, Page};
use super::probe::{PATIENCE, page, read_json};
use super::target::{HandOver, WorkerTarget};
use crate::compose::BOOTSTRAP_PORT;
use crate::policy_library::chain;

/// Everything that one worker shows of handing prompts over.
#[derive(Debug, Default)]
pub(super) struct HandingOver {
    pub(super) connector: Option<Connector>,
    /// What SGLang's `/server_info` says that it does: `prefill`, `decode` or `null`.
    pub(super) disaggregation: Option<String>,
    pub(super) bootstrap: Option<Page<Bootstrap>>,
}

/// Looks at the pages of a worker whose pool splits requests.
pub(super) async fn observe(client: &WorkerClient, target: &WorkerTarget) -> HandingOver {
    let connector = match target.hand_over {
        HandOver::Off => return HandingOver::default(),
        HandOver::Named(dialect) => Some(Connector {
            dialect,
            evidence: None,
            bootstrap: target.bootstrap.clone(),
        }),
        HandOver::Detected => detect(client, target).await,
    };
    let bootstrap = match &connector {
        Some(connector) => bootstrap(connector, target).await,
        None => None,
    };
    HandingOver {
        disaggregation: disaggregation(client, target).await,
        connector,
        bootstrap,
    }
}

/// Returns the connector that the pages of a worker show.
async fn detect(client: &WorkerClient, target: &WorkerTarget) -> Option<Connector> {
    let shows = |dialect: Dialect, evidence: String, bootstrap: Option<String>| {
        let bootstrap = bootstrap.filter(|_| dialect.has_bootstrap());
        Some(Connector {
            dialect,
            evidence: Some(evidence),
            bootstrap,
        })
    };
    let written = target.bootstrap.clone();
    if let Some(info) = read(client, "/server_info").await
        && let Some((dialect, port)) = server_dialect(&info)
    {
        let bootstrap = written.map(|address| told_port(address, port));
        return shows(dialect, "/server_info".to_owned(), bootstrap);
    }
    if let Some(address) = &written
        && target.role == Role::Prefill
        && let Page::Read(_) = engines(address).await
    {
        let evidence = format!("the bootstrap server {address}");
        return shows(Dialect::Mooncake, evidence, written);
    }
    let dialect = metrics_dialect(&read(client, "/metrics").await?)?;
    shows(dialect, "/metrics".to_owned(), written)
}

/// Returns the address of a bootstrap server with the port that the engine names, where no other than the usual one was written down.
fn told_port(address: String, port: Option<u16>) -> String {
    match (address.strip_suffix(&format!(":{BOOTSTRAP_PORT}")), port) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => address,
    }
}

async fn read(client: &WorkerClient, path: &str) -> Option<bytes::Bytes> {
    let reply = client.get(path).await.ok()?;
    reply.status.is_success().then_some(reply.body)
}

async fn disaggregation(client: &WorkerClient, target: &WorkerTarget) -> Option<String> {
    #[derive(Deserialize)]
    struct ServerInfo {
        disaggregation_mode: Option<String>,
    }
    if !matches!(
        target.hand_over,
        HandOver::Detected | HandOver::Named(Dialect::Sglang)
    ) {
        return None;
    }
    let info = read(client, "/server_info").await?;
    read_json::<ServerInfo>(&info).ok()?.disaggregation_mode
}

/// The bootstrap server of a prefill worker, where its connector has one.
async fn bootstrap(connector: &Connector, target: &WorkerTarget) -> Option<Page<Bootstrap>> {
    let address = connector.bootstrap.as_deref()?;
    if target.role != Role::Prefill {
        return None;
    }
    if connector.dialect != Dialect::Sglang {
        return Some(engines(address).await);
    }
    Some(match server(address) {
        Ok(client) => page(client.get("/health").await, |_| Ok(Bootstrap::Up)),
        Err(why) => Page::Failed(why),
    })
}

/// The engines that a Mooncake bootstrap server knows.
async fn engines(address: &str) -> Page<Bootstrap> {
    match server(address) {
        Ok(client) => page(client.get("/query").await, |body| {
            let engines = engine_ids(body).ok_or("the answer has no engine ids")?;
            Ok(Bootstrap::Engines(engines))
        }),
        Err(why) => Page::Failed(why),
    }
}

fn server(address: &str) -> Result<WorkerClient, String> {
    let connections = ConnectionsSpec::default();
    let client = WorkerClient::new(address, &connections, Authorization::Drop, PATIENCE);
    client.map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_own_bootstrap_port_replaces_the_usual_one_only() {
        let told = |address: &str, port| told_port(address.to_owned(), port);
        assert_eq!(told("http://p:8998", Some(9000)), "http://p:9000");
        assert_eq!(told("http://p:8998", None), "http://p:8998");
        assert_eq!(told("http://p:7000", Some(9000)), "http://p:7000");
    }
}
