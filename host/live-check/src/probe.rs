//! Queries of one worker: the only part of the live check with I/O. Every query has a timeout.

use std::time::Duration;

use conductor_config::{KvEvents, Tokenize};
use http::StatusCode;
use http::header::DATE;
use inference_api::{EventSource, Tokenized, engine_ids, server_dialect, shows_nixl};
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
    Tokens, Unreached, UnreachedCause,
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
        Err(error) => return unreached(&error, UnreachedCause::Connection),
    };
    let reached = match client.get(&target.health_path).await {
        Ok(reply) => reached(&reply),
        Err(error) => return unreached(&error, unreached_cause(&error)),
    };
    let (models, version, events, (disaggregation, shown, bootstrap)) = tokio::join!(
        models(&client, target.served.list_path.as_deref()),
        version(&client),
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

fn unreached(error: &(dyn std::error::Error + 'static), cause: UnreachedCause) -> Observed {
    let why = error_chain(error);
    Observed {
        reached: Some(Err(Unreached { why, cause })),
        ..Observed::default()
    }
}

fn unreached_cause(error: &WorkerClientError) -> UnreachedCause {
    let WorkerClientError::Forward { source, .. } = error else {
        return UnreachedCause::Connection;
    };
    match source.downcast_ref::<SendError>() {
        Some(SendError::Connect(error)) if error.is_of_authority() => UnreachedCause::AuthorityCertificate,
        Some(SendError::Connect(ConnectError::Tls { .. })) => UnreachedCause::Tls,
        _ => UnreachedCause::Connection,
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

fn disaggregation(info: &WorkerReply) -> Option<String> {
    #[derive(Deserialize)]
    struct ServerInfo {
        disaggregation_mode: Option<String>,
    }
    read_json::<ServerInfo>(&info.body).ok()?.disaggregation_mode
}

/// Returns the model that the tokenizers are tried with: one that the router has a tokenizer for, else one for which
/// the worker makes the tokens, else the first.
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

/// Reads the role that SGLang shows. For a prefill worker, reads the dialect that it shows, if the router detects it or
/// it is a named `sglang`, and queries the bootstrap server of its connector.
async fn hand_over(
    client: &WorkerClient,
    target: &WorkerTarget,
) -> (
    Option<String>,
    Option<Page<ShownDialect>>,
    Option<Page<Bootstrap>>,
) {
    let info = match target.dialect {
        PoolDialect::Detected | PoolDialect::Named(Dialect::Sglang) => Some(client.get("/server_info").await),
        _ => None,
    };
    let disaggregation = info.as_ref().and_then(|info| disaggregation(info.as_ref().ok()?));
    if target.role != Role::Prefill {
        return (disaggregation, None, None);
    }
    let address = target.bootstrap.as_deref();
    match (target.dialect, info) {
        (PoolDialect::Named(dialect), info) => {
            let shown = info.and_then(|info| of_server_info(&read_dialect(info), address));
            (
                disaggregation,
                shown.map(Page::Read),
                bootstrap(dialect, address).await,
            )
        }
        (PoolDialect::Detected, Some(info)) => {
            let shown = shown_dialect(client, info, address).await;
            let bootstrap = match &shown {
                Page::Read(shown) => bootstrap(shown.dialect, shown.bootstrap.as_deref()).await,
                _ => None,
            };
            (disaggregation, Some(shown), bootstrap)
        }
        _ => (disaggregation, None, None),
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

/// Reads the dialect that a prefill worker shows on the pages which the router's detection queries. `info` is its
/// `/server_info`, and `address` that of its bootstrap server.
async fn shown_dialect(
    client: &WorkerClient,
    info: Result<WorkerReply, WorkerClientError>,
    address: Option<&str>,
) -> Page<ShownDialect> {
    let info = read_dialect(info);
    if let Some(shown) = of_server_info(&info, address) {
        return Page::Read(shown);
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
    let metrics = page(client.get("/metrics").await, |metrics| Ok(shows_nixl(metrics)));
    match (metrics, info) {
        (Page::Read(true), _) => Page::Read(ShownDialect {
            dialect: Dialect::Nixl,
            evidence: "/metrics".to_owned(),
            bootstrap: None,
        }),
        (_, Page::Unauthorized(status)) => Page::Unauthorized(status),
        (_, Page::Failed(why)) => Page::Failed(why),
        _ => Page::Absent,
    }
}

/// Reads the dialect and the bootstrap port on `/server_info`.
fn read_dialect(info: Result<WorkerReply, WorkerClientError>) -> Page<Option<(Dialect, Option<u16>)>> {
    page(info, |info| Ok(server_dialect(info)))
}

/// Returns the dialect that `/server_info` shows.
fn of_server_info(
    info: &Page<Option<(Dialect, Option<u16>)>>,
    address: Option<&str>,
) -> Option<ShownDialect> {
    let Page::Read(Some((dialect, port))) = *info else {
        return None;
    };
    let address = address.filter(|_| dialect.has_bootstrap());
    Some(ShownDialect {
        dialect,
        evidence: "/server_info".to_owned(),
        bootstrap: address.map(|address| bootstrap_address(address, port)),
    })
}

/// Returns the address of a bootstrap server. The port that the engine names replaces only the usual one, as it does in
/// the router.
fn bootstrap_address(configured: &str, named: Option<u16>) -> String {
    match (configured.rsplit_once(':'), named) {
        (Some((host, port)), Some(named)) if port.parse() == Ok(Dialect::USUAL_BOOTSTRAP_PORT) => {
            format!("{host}:{named}")
        }
        _ => configured.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::judge::tests::worker;

    /// Answers 503 to this number of requests, and returns their paths.
    fn serve_errors(listener: &TcpListener, count: usize) -> Vec<String> {
        let one = |_| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let path = lines
                .next()
                .and_then(|line| Some(line.split(' ').nth(1)?.to_owned()));
            lines.find(String::is_empty);
            let answer =
                b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer).unwrap();
            path.unwrap_or_default()
        };
        (0..count).map(one).collect()
    }

    #[tokio::test]
    async fn the_page_of_a_connector_is_read_once_and_its_error_is_not_an_absent_connector() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = std::thread::spawn(move || serve_errors(&listener, 2));
        let target = WorkerTarget {
            role: Role::Prefill,
            dialect: PoolDialect::Detected,
            ..worker()
        };
        let (_, shown, _) = hand_over(&bootstrap_client(&url).unwrap(), &target).await;
        let Some(Page::Failed(why)) = shown else {
            panic!("expected an error, not {shown:?}");
        };
        assert!(why.contains("503"), "{why}");
        assert_eq!(serving.join().unwrap(), ["/server_info", "/metrics"]);
    }

    #[test]
    fn a_named_port_replaces_only_the_usual_one() {
        let (usual, mapped) = ("http://a:8998", "http://a:9000");
        assert_eq!(bootstrap_address(usual, Some(8997)), "http://a:8997");
        assert_eq!(bootstrap_address(usual, None), usual);
        assert_eq!(bootstrap_address(mapped, Some(8997)), mapped);
    }
}
