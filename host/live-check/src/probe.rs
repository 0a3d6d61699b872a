//! Queries of one worker: the only part of the live check with I/O. Every query has a timeout.

use std::time::Duration;

use conductor_config::{KvEvents, Tokenize};
use http::StatusCode;
use http::header::DATE;
use inference_api::{EventSource, Tokenized, engine_ids};
use kv_feed::{CurveKeys, probe};
use routing::{Dialect, Role};
use serde::Deserialize;
use serde_json::json;
use tokenize::{Budget, Model, Rendered, TokenizationCache};
use worker_client::{Authorization, ConnectionsSpec, WorkerClient, WorkerClientError, WorkerReply};

use crate::clock;
use crate::observed::{
    Bootstrap, EndpointProbe, EventEndpoint, Events, ListedModel, Observed, Page, Reached, Tokens,
};
use crate::target::{TokenMethod, WorkerTarget};
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
        Err(error) => return unreached(&error),
    };
    let reached = match client.get(&target.health_path).await {
        Ok(reply) => reached(&reply),
        Err(error) => return unreached(&error),
    };
    let (models, version, disaggregation, events, bootstrap) = tokio::join!(
        models(&client, target.served.list_path.as_deref()),
        version(&client),
        disaggregation(&client, target),
        events(target),
        bootstrap(target),
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
    }
}

fn unreached(error: &(dyn std::error::Error + 'static)) -> Observed {
    Observed {
        reached: Some(Err(error_chain(error))),
        ..Observed::default()
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
    if target.dialect != Some(Dialect::Sglang) {
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
    let names: Vec<&String> = target.served.models.iter().chain(listed).collect();
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
    let of_worker = page(reply, |body| {
        let tokenized = Tokenized::parse(body).map_err(|error| error_chain(&error))?;
        Ok(tokenized.tokens)
    });
    Some(Tokens {
        of_worker,
        of_router: local.as_deref().map(own_tokens),
        model,
    })
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

/// Queries the bootstrap server of a prefill worker, where its connector has one.
async fn bootstrap(target: &WorkerTarget) -> Option<Page<Bootstrap>> {
    let address = target.bootstrap.as_deref()?;
    if target.role != Role::Prefill {
        return None;
    }
    let client = WorkerClient::new(
        address,
        &ConnectionsSpec::default(),
        Authorization::Drop,
        PATIENCE,
    );
    let client = match client {
        Ok(client) => client,
        Err(error) => return Some(Page::Failed(error_chain(&error))),
    };
    Some(match target.dialect {
        Some(Dialect::Sglang) => page(client.get("/health").await, |_| Ok(Bootstrap::Up)),
        _ => page(client.get("/query").await, |body| {
            let engines = engine_ids(body).ok_or("the answer has no engine ids")?;
            Ok(Bootstrap::Engines(engines))
        }),
    })
}
