//! `POST /admin/index/lookup`: how much of a prompt each worker holds, and on which tier. The prompt is in no log, in
//! no answer and in no cache of the router.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use proxy::{HeldPrefix, LookupError, PrefixLookup, PrefixQuery, PromptForm};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::state::ExplorePages;
use crate::access::Listener;
use crate::body::{BodyLimits, invalid, members};
use crate::refusal::{Refusal, only_post};

const LIMITS: BodyLimits = BodyLimits::slow(1 << 20);
const EXAMPLE: &str = r#"{"model": "m", "prompt": "..."}"#;
/// Members that are passed on to the tokenizer, beside the prompt.
const PASSED: [&str; 11] = [
    "model",
    "tools",
    "documents",
    "cache_salt",
    "add_special_tokens",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
    "reasoning_effort",
    "reasoning",
    "tool_choice",
];

pub(super) fn pages() -> Router<ExplorePages> {
    let look_up = |State(pages): State<ExplorePages>, request| async move { pages.look_up(request).await };
    Router::new().route("/admin/index/lookup", post(look_up).fallback(only_post))
}

impl ExplorePages {
    async fn look_up(self, request: Request) -> Response<Body> {
        match Box::pin(self.found(request)).await {
            Ok(found) => Json(page(&found)).into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn found(&self, request: Request) -> Result<PrefixLookup, Refusal> {
        let (head, body) = request.into_parts();
        self.key.check(&head.headers, Listener::Operators)?;
        let _turn = self.turns.lookups.try_acquire().map_err(|_| Refusal::busy())?;
        let query = query(&LIMITS.collect(body).await?)?;
        let found = self.proxy.look_up(&query).await;
        found.map_err(|error| refusal(&error))
    }
}

/// Makes an inference request of the body. Its members stay as they are written: tokens depend on the order of keys.
fn query(body: &[u8]) -> Result<PrefixQuery, Refusal> {
    let mut body: BTreeMap<String, &RawValue> = members(body, EXAMPLE)?;
    let mut take_text = |name: &'static str| match body.remove(name).map(text) {
        None => Ok(None),
        Some(Ok(text)) => Ok(text),
        Some(Err(_)) => Err(invalid(name, format!("`{name}` is no text"))),
    };
    let (pool, tenant) = (take_text("pool")?, take_text("tenant")?);
    if !body
        .get("model")
        .is_some_and(|model| matches!(text(model), Ok(Some(_))))
    {
        return Err(invalid("model", "`model` is missing, or no text"));
    }
    let prompts: Vec<&str> = ["prompt", "messages", "tokens"]
        .into_iter()
        .filter(|name| body.contains_key(*name))
        .collect();
    let &[name] = &prompts[..] else {
        let message = "send exactly one of `prompt`, `messages` and `tokens`";
        return Err(invalid("prompt", message));
    };
    let (form, member) = match name {
        "messages" => (PromptForm::Chat, "messages"),
        _ => (PromptForm::Completion, "prompt"),
    };
    let prompt = body.remove(name).filter(|prompt| match name {
        "prompt" => prompt.get().starts_with('"'),
        "tokens" => serde_json::from_str::<Vec<u32>>(prompt.get()).is_ok(),
        _ => prompt.get().starts_with('['),
    });
    let Some(prompt) = prompt else {
        let message = "`prompt` is a text, `messages` an array, `tokens` an array of token ids";
        return Err(invalid("prompt", message));
    };
    let mut request: BTreeMap<&str, &RawValue> = PASSED
        .iter()
        .filter_map(|name| Some((*name, body.remove(*name)?)))
        .collect();
    if !body.is_empty() {
        // Its name is not shown: it may be a misplaced prompt.
        let message = format!(
            "the body has {} unknown members; beside the prompt it takes `pool`, `tenant` and {}",
            body.len(),
            PASSED.join(", ")
        );
        return Err(invalid("body", message));
    }
    request.insert(member, prompt);
    let body =
        serde_json::to_vec(&request).map_err(|_| invalid("body", "the body cannot be written again"))?;
    Ok(PrefixQuery {
        pool,
        form,
        body: body.into(),
        tenant,
    })
}

/// Reads a text, or nothing.
fn text(raw: &RawValue) -> Result<Option<String>, serde_json::Error> {
    serde_json::from_str(raw.get())
}

fn refusal(error: &LookupError) -> Refusal {
    let message = format!("failed to {error}");
    match error {
        LookupError::Prompt => invalid("prompt", message),
        LookupError::NoPool(_) => Refusal::new(StatusCode::NOT_FOUND, "pool_not_found", message).of("pool"),
        LookupError::NoRoute(_) | LookupError::NotServed { .. } => {
            Refusal::new(StatusCode::NOT_FOUND, "model_not_served", message).of("model")
        }
        LookupError::NoTokens(_) => Refusal::new(StatusCode::CONFLICT, "tokens_unknown", message),
    }
}

fn page(found: &PrefixLookup) -> Value {
    let size = found.workers.iter().find_map(|worker| worker.block_size);
    json!({
        "pool": found.pool,
        "model": found.model,
        "tokens": found.tokens,
        "block_size": size,
        "blocks": size.and_then(|size| found.tokens.checked_div(size as usize)),
        "how": found.source,
        "workers": found.workers.iter().map(worker).collect::<Vec<_>>(),
    })
}

/// Returns the match of a worker. The tiers add up to it.
fn worker(worker: &HeldPrefix) -> Value {
    let held = worker.held;
    json!({
        "worker": worker.worker,
        "live": worker.is_live,
        "matched_tokens": held.any_tokens,
        "matched_blocks": worker.block_size.and_then(|size| held.any_tokens.checked_div(size)),
        "tiers": {
            "device": held.device_tokens,
            "host": held.host_tokens.saturating_sub(held.device_tokens),
            "disk": held.any_tokens.saturating_sub(held.host_tokens),
        },
        "expected_tokens": held.expected_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: Value, expected: Result<(PromptForm, Value), &str>) {
        let found = query(body.to_string().as_bytes()).map(|query| {
            let body = serde_json::from_slice(&query.body).unwrap();
            (query.form, body)
        });
        assert_eq!(found.map_err(|refusal| refusal.param.unwrap()), expected);
    }

    #[test]
    fn a_body_becomes_an_inference_request_without_the_lookups_own_members() {
        check(
            json!({ "model": "m", "pool": "p", "tenant": "t", "prompt": "a", "cache_salt": "s" }),
            Ok((
                PromptForm::Completion,
                json!({ "model": "m", "prompt": "a", "cache_salt": "s" }),
            )),
        );
        check(
            json!({ "model": "m", "tokens": [1, 2] }),
            Ok((PromptForm::Completion, json!({ "model": "m", "prompt": [1, 2] }))),
        );
        check(
            json!({ "model": "m", "messages": [], "tools": [] }),
            Ok((
                PromptForm::Chat,
                json!({ "model": "m", "messages": [], "tools": [] }),
            )),
        );
    }

    #[test]
    fn members_stay_as_they_are_written() {
        let [messages, tools] = [
            r#"[{"role": "user", "content": "\u0061"}]"#,
            r#"[{"type":"function", "function":{"b":1,"a":12345678901234567890123}}]"#,
        ];
        let body = format!(r#"{{"tools":{tools},"model":"m","messages":{messages}}}"#);
        let query = query(body.as_bytes()).unwrap();
        let passed = format!(r#"{{"messages":{messages},"model":"m","tools":{tools}}}"#);
        assert_eq!(query.body, passed);
    }

    #[test]
    fn a_body_without_one_prompt_and_a_model_is_refused() {
        check(json!({ "prompt": "a" }), Err("model"));
        check(json!({ "model": "m" }), Err("prompt"));
        check(
            json!({ "model": "m", "prompt": "a", "tokens": [1] }),
            Err("prompt"),
        );
        check(json!({ "model": "m", "tokens": ["a"] }), Err("prompt"));
        check(json!({ "model": "m", "tokens": [-1] }), Err("prompt"));
        check(json!({ "model": "m", "prompt": ["a"] }), Err("prompt"));
        check(
            json!({ "model": "m", "prompt": "a", "stream": true }),
            Err("body"),
        );
        check(json!({ "model": "m", "prompt": "a", "pool": 1 }), Err("pool"));
    }
}
