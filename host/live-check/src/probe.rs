//! Queries of one worker: the only part of the live check with I/O. Every query has a timeout.

use std::time::Duration;

use conductor_config::{KvEvents, Tokenize};
use http::StatusCode;
use http::header::DATE;
use inference_api::{EventSource, Tokenized, engine_ids, server_dialect};
use kv_feed::{CurveKeys, probe};
use routing::{Dialect, Role};
use serde::Deserialize;
use serde_json::json;
use tokenize::{Budget, Model, Rendered, TokenizationCache};
use worker_client::{
    Authorization, ConnectError, ConnectionsSpec, SendError, UrlError, WorkerClient, WorkerClientError,
    WorkerReply,
};

use crate::clock;
use crate::observed::{
    Bootstrap, EndpointProbe, EventEndpoint, Events, ListedModel, Observed, Page, Reached, ShownDialect,
    Tokens, Unreached,
};
use crate::target::{PoolDialect, TokenMethod, WorkerTarget};
use kv_plane::{PageTls, SourceAnswer, SourceClient, trusted_sources};
use observability::error_chain;

/// Timeout of one HTTP query.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for a publisher to take a subscriber and to answer a request for a replay.
const PUBLISHER_PATIENCE: Duration = Duration::from_secs(3);
/// Text for both tokenizers: words, spaces, digits, accents, another script and an emoji.
const PROBE_TEXT: &str = "Where does request 42 go?  Naïve café,\n你好 🚀 <|end|> x_y";
/// Port of a bootstrap server that the configuration does not name.
const USUAL_PORT: &str = ":8998";
/// Most models read of one list.
const MOST_MODELS: usize = 10_000;

/// Makes all queries of a worker.
pub(crate) async fn observe(target: &WorkerTarget) -> Observed {
    let access = &target.access;
    let client = WorkerClient::new(
        &target.url,
        &access.connections,
        access.authorization.clone(),
        PATIENCE,
    );
    let client = match client {
        Ok(client) => client,
        Err(error) => return unreached(&error, false),
    };
    let reached = match client.get(&target.health_path).await {
        Ok(reply) => reached(&reply),
        Err(error) => return unreached(&error, is_of_tls(&error)),
    };
    let (models, version, disaggregation, events, (shown, bootstrap)) = tokio::join!(
        models(&client, target.served.list_path.as_deref()),
        version(&client),
        disaggregation(&client, target),
        events(target),
        hand_over(&client, target),
    );
    let model = probed_model(target, models.as_ref());
    let tokens = tokens(&client, target, model).await;
    Observed {
        reached: Some(Ok(reached)),
        models,
        version: Some(version),
        tokens,
        events: Some(events),
        bootstrap,
        disaggregation,
        shown,
    }
}

fn unreached(error: &(dyn std::error::Error + 'static), is_tls: bool) -> Observed {
    let why = error_chain(error);
    Observed {
        reached: Some(Err(Unreached { why, is_tls })),
        ..Observed::default()
    }
}

/// Returns whether the TLS handshake failed.
fn is_of_tls(error: &WorkerClientError) -> bool {
    match error {
        WorkerClientError::Forward { source, .. } => matches!(
            source.downcast_ref::<SendError>(),
            Some(SendError::Connect(ConnectError::Tls { .. }))
        ),
        _ => false,
    }
}

fn reached(reply: &WorkerReply) -> Reached {
    let date = reply.headers.get(DATE).and_then(|date| date.to_str().ok());
    Reached {
        status: reply.status.as_u16(),
        took: reply.took,
        skew: date.and_then(|date| clock::skew(date, reply.sent, reply.took)),
    }
}

/// Reads a page.
fn page<T>(
    reply: Result<WorkerReply, WorkerClientError>,
    read: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Page<T> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return Page::Failed(error_chain(&error)),
    };
    match reply.status {
        status if status.is_success() => match read(&reply.body) {
            Ok(value) => Page::Read(value),
            Err(why) => Page::Failed(why),
        },
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Page::Absent,
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Page::Unauthorized(status.as_u16()),
        status => Page::Failed(format!("the worker answered {status}")),
    }
}

fn read_json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the answer cannot be read: {error}"))
}

/// Reads the list of models, if the router does.
async fn models(client: &WorkerClient, path: Option<&str>) -> Option<Page<Vec<ListedModel>>> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        id: String,
        parent: Option<String>,
    }
    let read = |body: &[u8]| {
        let list: List = read_json(body)?;
        let listed = list.data.into_iter().take(MOST_MODELS);
        Ok(listed
            .map(|Listed { id, parent }| ListedModel { id, parent })
            .collect())
    };
    Some(page(client.get(path?).await, read))
}

/// Reads the version from vLLM's `/version` or SGLang's `/server_info`.
async fn version(client: &WorkerClient) -> Page<String> {
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    let read = |body: &[u8]| Ok(read_json::<Version>(body)?.version);
    match page(client.get("/version").await, read) {
        Page::Absent => match page(client.get("/server_info").await, read) {
            // Another engine's page of that name.
            Page::Failed(_) => Page::Absent,
            found => found,
        },
        found => found,
    }
}

async fn disaggregation(client: &WorkerClient, target: &WorkerTarget) -> Option<String> {
    #[derive(Deserialize)]
    struct ServerInfo {
        disaggregation_mode: Option<String>,
    }
    if !matches!(
        target.dialect,
        PoolDialect::Detected | PoolDialect::Named(Dialect::Sglang)
    ) {
        return None;
    }
    let reply = client.get("/server_info").await.ok()?;
    read_json::<ServerInfo>(&reply.body).ok()?.disaggregation_mode
}

/// Returns the model that the tokenizers are tried with: one that the router has a tokenizer for, else one for which the
/// worker makes the tokens, else the first.
fn probed_model(target: &WorkerTarget, models: Option<&Page<Vec<ListedModel>>>) -> Option<String> {
    let listed = match models {
        Some(Page::Read(listed)) => &listed[..],
        _ => &[],
    };
    let listed = listed.iter().map(|model| &model.id);
    // The worker refuses a name that it does not list; `models` fails there.
    let is_served = |name: &&String| listed.clone().any(|known| known == *name) || listed.len() == 0;
    let configured = target.served.models.iter().filter(is_served);
    let names: Vec<&String> = configured.chain(listed.clone()).collect();
    let rank = |name: &&&String| match target.tokenizing.of(name) {
        TokenMethod::Local(_) => 0,
        TokenMethod::As(Tokenize::Worker) => 1,
        TokenMethod::As(_) => 2,
    };
    names.iter().min_by_key(rank).map(|name| (*name).clone())
}

async fn tokens(client: &WorkerClient, target: &WorkerTarget, model: Option<String>) -> Option<Tokens> {
    let model = model?;
    let local = match target.tokenizing.of(&model) {
        TokenMethod::Local(local) => Some(local),
        TokenMethod::As(Tokenize::Off | Tokenize::Text) => return None,
        TokenMethod::As(_) => None,
    };
    let body = json!({ "model": model, "prompt": PROBE_TEXT, "add_special_tokens": true });
    let reply = client.post("/tokenize", body.to_string().into()).await;
    let refusal = reply.as_ref().ok().and_then(refusal_of_model);
    let of_worker = match refusal {
        Some(why) => Page::Failed(why),
        None => page(reply, |body| {
            let tokenized = Tokenized::parse(body).map_err(|error| error_chain(&error))?;
            Ok(tokenized.tokens)
        }),
    };
    Some(Tokens {
        of_worker,
        of_router: local.as_deref().map(own_tokens),
        model,
    })
}

/// Returns the message of a page that exists, and that has no such model. A missing page has no error of the API.
fn refusal_of_model(reply: &WorkerReply) -> Option<String> {
    #[derive(Deserialize)]
    struct Refused {
        error: Option<Message>,
        message: Option<String>,
    }
    #[derive(Deserialize)]
    struct Message {
        message: String,
    }
    if reply.status != StatusCode::NOT_FOUND {
        return None;
    }
    let refused: Refused = serde_json::from_slice(&reply.body).ok()?;
    let message = refused.error.map(|error| error.message).or(refused.message)?;
    Some(format!("the worker answered {}: {message}", reply.status))
}

fn own_tokens(model: &Model) -> Result<Vec<u32>, String> {
    let cache = TokenizationCache::new(0);
    let prepared = model.prepare(Rendered::text(PROBE_TEXT.to_owned(), true), &cache);
    let tokens = model.complete(prepared, &cache, &mut Budget::unlimited());
    tokens
        .map(|tokens| tokens.ids.to_vec())
        .map_err(|error| error_chain(&error))
}

/// Probes each endpoint that discovery finds.
async fn events(target: &WorkerTarget) -> Events {
    let found = match &target.events.events {
        KvEvents::Off => return Events::Off,
        KvEvents::At(feeds) => {
            let endpoints = feeds.iter().map(|feed| async {
                let (endpoint, replay) = (feed.endpoint.clone(), feed.replay.clone());
                if feed.bind {
                    let probe = EndpointProbe::Bound;
                    return EventEndpoint {
                        endpoint,
                        replay,
                        probe,
                    };
                }
                probe_endpoint(endpoint, replay, target.events.curve.clone()).await
            });
            return Events::Endpoints(futures_util::future::join_all(endpoints).await);
        }
        KvEvents::Auto => {
            let tls = PageTls(target.access.connections.tls.clone());
            SourceClient::new()
                .event_sources(&target.url, &tls, &target.access.authorization)
                .await
        }
    };
    match found {
        SourceAnswer::Sources(sources) if !sources.is_empty() => {
            let (followed, refused) = match &target.events.discovery {
                Some(discovery) => trusted_sources(discovery, sources),
                None => (sources, Vec::new()),
            };
            let probes = followed.into_iter().map(|EventSource { endpoint, replay, .. }| {
                probe_endpoint(endpoint, replay, target.events.curve.clone())
            });
            let mut endpoints = futures_util::future::join_all(probes).await;
            endpoints.extend(refused.into_iter().map(|refused| EventEndpoint {
                endpoint: refused.endpoint,
                replay: None,
                probe: EndpointProbe::Failed(format!("the router does not follow it: {}", refused.reason)),
            }));
            Events::Endpoints(endpoints)
        }
        SourceAnswer::Sources(_) | SourceAnswer::Absent => Events::None,
        SourceAnswer::Failed(error) => Events::Failed(error_chain(&error)),
    }
}

/// Probes an endpoint in a thread, since waiting for the sockets blocks.
async fn probe_endpoint(endpoint: String, replay: Option<String>, curve: Option<CurveKeys>) -> EventEndpoint {
    let (at, replay_at) = (endpoint.clone(), replay.clone());
    let tried = move || probe(&at, replay_at.as_deref(), curve.as_ref(), PUBLISHER_PATIENCE);
    let tried = tokio::task::spawn_blocking(tried).await;
    let probe = match tried {
        Ok(Ok(probe)) => EndpointProbe::Tried(probe),
        Ok(Err(error)) => EndpointProbe::Failed(error_chain(&error)),
        Err(error) => EndpointProbe::Failed(error_chain(&error)),
    };
    EventEndpoint {
        endpoint,
        replay,
        probe,
    }
}

/// Reads the dialect that a prefill worker shows, if the router detects it, and queries the bootstrap server of its
/// connector.
async fn hand_over(
    client: &WorkerClient,
    target: &WorkerTarget,
) -> (Option<Page<ShownDialect>>, Option<Page<Bootstrap>>) {
    if target.role != Role::Prefill {
        return (None, None);
    }
    match target.dialect {
        PoolDialect::Absent => (None, None),
        PoolDialect::Named(dialect) => (None, bootstrap(dialect, target.bootstrap.as_deref()).await),
        PoolDialect::Detected => {
            let shown = shown_dialect(client, target).await;
            let bootstrap = match &shown {
                Page::Read(shown) => bootstrap(shown.dialect, shown.bootstrap.as_deref()).await,
                _ => None,
            };
            (Some(shown), bootstrap)
        }
    }
}

/// Queries the bootstrap server of a prefill worker, where its connector has one.
async fn bootstrap(dialect: Dialect, address: Option<&str>) -> Option<Page<Bootstrap>> {
    let client = match bootstrap_client(address?) {
        Ok(client) => client,
        Err(error) => return Some(Page::Failed(error_chain(&error))),
    };
    Some(match dialect {
        Dialect::Sglang => page(client.get("/health").await, |_| Ok(Bootstrap::Up)),
        _ => engines(&client).await,
    })
}

fn bootstrap_client(address: &str) -> Result<WorkerClient, UrlError> {
    WorkerClient::new(
        address,
        &ConnectionsSpec::default(),
        Authorization::Drop,
        PATIENCE,
    )
}

/// Reads the engine ids of Mooncake's bootstrap server.
async fn engines(client: &WorkerClient) -> Page<Bootstrap> {
    page(client.get("/query").await, |body| {
        let engines = engine_ids(body).ok_or("the answer has no engine ids")?;
        Ok(Bootstrap::Engines(engines))
    })
}

/// Reads the dialect that a prefill worker shows on the pages which the router's detection queries.
async fn shown_dialect(client: &WorkerClient, target: &WorkerTarget) -> Page<ShownDialect> {
    let address = target.bootstrap.as_deref();
    let info = page(client.get("/server_info").await, |info| Ok(server_dialect(info)));
    if let Page::Read(Some((dialect, port))) = info {
        let address = address.filter(|_| dialect.has_bootstrap());
        return Page::Read(ShownDialect {
            dialect,
            evidence: "/server_info".to_owned(),
            bootstrap: address.map(|address| bootstrap_address(address, port)),
        });
    }
    if let Some(address) = address
        && let Ok(client) = bootstrap_client(address)
        && let Page::Read(_) = engines(&client).await
    {
        return Page::Read(ShownDialect {
            dialect: Dialect::Mooncake,
            evidence: format!("the bootstrap server {address}"),
            bootstrap: Some(address.to_owned()),
        });
    }
    let has_nixl = |metrics: &[u8]| Ok(String::from_utf8_lossy(metrics).contains("vllm:nixl_"));
    match (page(client.get("/metrics").await, has_nixl), info) {
        (Page::Read(true), _) => Page::Read(ShownDialect {
            dialect: Dialect::Nixl,
            evidence: "/metrics".to_owned(),
            bootstrap: None,
        }),
        (_, Page::Unauthorized(status)) => Page::Unauthorized(status),
        _ => Page::Absent,
    }
}

/// Returns the address of a bootstrap server. The port that the engine names replaces only the usual one, as it does in
/// the router.
fn bootstrap_address(configured: &str, named: Option<u16>) -> String {
    match (configured.strip_suffix(USUAL_PORT), named) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        _ => configured.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_port_replaces_only_the_usual_one() {
        let (usual, mapped) = ("http://a:8998", "http://a:9000");
        assert_eq!(bootstrap_address(usual, Some(8997)), "http://a:8997");
        assert_eq!(bootstrap_address(usual, None), usual);
        assert_eq!(bootstrap_address(mapped, Some(8997)), mapped);
    }
}
