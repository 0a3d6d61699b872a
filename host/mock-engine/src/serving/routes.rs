//! Request routing: the handler of each path, and the faults of requests.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

use crate::config::MockConfig;
use crate::fault_script::RequestFault;
use crate::serving::body::{HttpResult, ReplyBody, empty_reply, json_reply, reply};
use crate::serving::context::{Context, unix_now};
use crate::serving::generate::generate;
use crate::serving::inference_request::InferenceRequest;
use crate::serving::messages::count;
use crate::serving::metrics;
use crate::serving::paths::{Inference, Route, route};
use crate::serving::pooling::pool;
use crate::serving::reading::read;
use crate::serving::realtime::open;
use crate::serving::refusal::Refusal;
use crate::serving::tokenize::{detokenize, tokenize};
use crate::transfer::{PdDialect, PdRole};

/// Largest body.
const MAX_BODY: usize = 16 << 20;
/// Content type of event streams.
const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";
/// Imitated version.
const VERSION: &str = "0.32.0";

/// Relevant headers of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    /// Request id of the client.
    pub(crate) id: Option<&'a str>,
    /// Requested data-parallel rank.
    pub(crate) rank: u16,
}

/// Answers one request.
pub(crate) async fn answer(context: Arc<Context>, request: Request<Incoming>) -> HttpResult {
    let path = request.uri().path().to_owned();
    let Some((method, route)) = route(&path) else {
        let detail = json!({"detail": "Not Found"});
        return Ok(json_reply(StatusCode::NOT_FOUND, &detail));
    };
    if *request.method() != method {
        let detail = json!({"detail": "Method Not Allowed"});
        let mut refused = json_reply(StatusCode::METHOD_NOT_ALLOWED, &detail);
        let allowed = if method == Method::GET { "GET" } else { "POST" };
        refused
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static(allowed));
        return Ok(refused);
    }
    let answer = serve(&context, route, request).await;
    Ok(answer.unwrap_or_else(|refusal| match route {
        Route::CountTokens | Route::Inference(_, Inference::Messages) => refusal.into_anthropic_reply(),
        _ => refusal.into_reply(),
    }))
}

async fn serve(
    context: &Arc<Context>,
    route: Route<'_>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Refusal> {
    let ok = |value: Value| Ok(json_reply(StatusCode::OK, &value));
    match route {
        Route::Health => Ok(empty_reply(context.faults.health().unwrap_or(StatusCode::OK))),
        Route::Version => ok(json!({"version": VERSION})),
        Route::Metrics => {
            let page = Bytes::from(metrics::page(&context.config, &context.stats()));
            let content_type = "text/plain; version=1.0.0; charset=utf-8";
            Ok(reply(StatusCode::OK, content_type, ReplyBody::Whole(page)))
        }
        Route::Models => ok(models(context)),
        Route::KvEventSources => ok(kv_event_sources(context)),
        Route::ServerInfo => Ok(server_info(context)),
        Route::Tokenize => {
            let body = read_body(request).await?;
            tokio::time::sleep(context.faults.tokenize_delay()).await;
            ok(tokenize(context, &body)?)
        }
        Route::Detokenize => ok(detokenize(context, &read_body(request).await?)?),
        Route::CountTokens => {
            let body = read_body(request).await?;
            ok(count(context, &body)?)
        }
        Route::Realtime => realtime(context, request).await,
        Route::LoadAdapter => {
            let body = read_body(request).await?;
            context.adapters.load(&context.config, &body).map(text_reply)
        }
        Route::UnloadAdapter => {
            let body = read_body(request).await?;
            context.adapters.unload(&body).map(text_reply)
        }
        Route::KeptResponse(id) if is_streamed(&request) => {
            let events = ReplyBody::Whole(context.kept.events(id)?);
            Ok(reply(StatusCode::OK, EVENT_STREAM, events))
        }
        Route::KeptResponse(id) => ok(context.kept.find(id)?),
        Route::CancelResponse(id) => ok(context.kept.cancel(id)?),
        Route::ResetPrefixCache => ok(json!({"success": context.reset_prefix_cache().await})),
        Route::Inference(path, kind) => infer(context, path, kind, request).await,
    }
}

fn text_reply(text: String) -> Response<ReplyBody> {
    reply(
        StatusCode::OK,
        "text/plain; charset=utf-8",
        ReplyBody::Whole(Bytes::from(text)),
    )
}

async fn realtime(
    context: &Arc<Context>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Refusal> {
    let headers = request.headers().clone();
    context.recorder.record("/v1/realtime", headers, Bytes::new());
    let cut_after = meet_fault(context).await?;
    Ok(open(context, request, cut_after))
}

/// Acts out the fault that the script has for this request. Returns the tokens after which its answer is cut off.
async fn meet_fault(context: &Context) -> Result<Option<u32>, Refusal> {
    let Some(mut met) = context.faults.meet() else {
        return Ok(None);
    };
    match met.fault {
        RequestFault::Hang => {
            met.cleared().await;
            Ok(None)
        }
        RequestFault::Status { status, retry_after } => Err(Refusal::scripted(status, retry_after)),
        RequestFault::Cut { after_tokens } => Ok(Some(after_tokens)),
    }
}

async fn infer(
    context: &Context,
    path: &'static str,
    kind: Inference,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Refusal> {
    let headers = request.headers().clone();
    let body = read_body(request).await?;
    context.recorder.record(path, headers.clone(), body.clone());
    let cut_after = meet_fault(context).await?;
    let head = head(&context.config, &headers)?;
    let kind = match kind {
        Inference::Any => Inference::of_body(&read(&body)?),
        kind => kind,
    };
    let parsed = match kind {
        Inference::Chat => InferenceRequest::chat(context, &body)?,
        Inference::Completion => InferenceRequest::completion(context, &body)?,
        Inference::Responses => {
            context.kept.check_previous(&body)?;
            InferenceRequest::responses(context, &body)?
        }
        Inference::Messages => InferenceRequest::messages(context, &body)?,
        Inference::Any => {
            return Err(Refusal::plain(
                "Cannot find suitable handler for request.".to_owned(),
            ));
        }
        Inference::Generate => InferenceRequest::tokens(context, &body)?,
        Inference::Audio(dialect) => InferenceRequest::audio(context, dialect, &headers, &body)?,
        Inference::Pooling(kind) => {
            let answer = Bytes::from(pool(context, kind, &body, head.id).await?.to_string());
            let body = match cut_after {
                Some(_) => ReplyBody::torn(&answer),
                None => ReplyBody::Whole(answer),
            };
            return Ok(reply(StatusCode::OK, "application/json", body));
        }
    };
    let answer = generate(context, parsed, head, cut_after).await;
    context.faults.answers_released().await;
    answer
}

/// Returns `true` if the events of a stored response are requested.
fn is_streamed(request: &Request<Incoming>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| pair.eq_ignore_ascii_case("stream=true"))
}

fn head<'a>(config: &MockConfig, headers: &'a HeaderMap) -> Result<Head<'a>, Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // vLLM ignores values that are not numbers.
    let rank: i64 = text("x-data-parallel-rank")
        .and_then(|rank| rank.trim().parse().ok())
        .unwrap_or(0);
    let known = u16::try_from(rank).ok().filter(|rank| *rank < config.dp_ranks);
    Ok(Head {
        id: text("x-request-id"),
        rank: known.ok_or_else(|| Refusal::unknown_rank(rank, config.dp_ranks))?,
    })
}

async fn read_body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    body.map(|body| body.to_bytes())
        .map_err(|_| Refusal::unreadable())
}

fn models(context: &Context) -> Value {
    let config = &context.config;
    let model = |name: &str| {
        let base = name == config.model;
        json!({
            "id": name, "object": "model", "created": unix_now(), "owned_by": "vllm", "root": name,
            "parent": (!base).then_some(&config.model),
            "max_model_len": base.then(|| config.context_limit()),
            "permission": [],
        })
    };
    let adapters = context.adapters.names();
    let names = std::iter::once(&*config.model).chain(adapters.iter().map(|name| &**name));
    let data: Vec<Value> = names.map(model).collect();
    json!({"object": "list", "data": data})
}

/// Returns SGLang's page, as far as it contains a role. vLLM has the page in dev mode only.
fn server_info(context: &Context) -> Response<ReplyBody> {
    let pd = context.config.pd.as_ref();
    let Some(pd) = pd.filter(|pd| pd.dialect == PdDialect::Sglang) else {
        return json_reply(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"}));
    };
    let mode = match pd.role {
        PdRole::Prefill => "prefill",
        PdRole::Decode => "decode",
    };
    let bootstrap = context.power.side.as_ref().and_then(|side| side.bootstrap());
    let page = json!({
        "disaggregation_mode": mode,
        "disaggregation_bootstrap_port": bootstrap.map(|address| address.port()),
    });
    json_reply(StatusCode::OK, &page)
}

/// Returns vLLM's answer if events are on; empty if they are off.
fn kv_event_sources(context: &Context) -> Value {
    let config = &context.config;
    if !context.publisher.enabled() {
        return json!({});
    }
    json!({config.dp_rank.to_string(): {
        "enable_kv_cache_events": true, "publisher": "zmq",
        "endpoint": context.publisher.events(), "replay_endpoint": context.publisher.replay(),
        "buffer_steps": config.replay_batches, "hwm": 100_000, "max_queue_size": 100_000,
        "topic": config.topic,
    }})
}
