//! Answering a request: validates it, queues it, and formats the result.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use hyper::Response;
use serde_json::Value;

use crate::sequence::{Finish, Submission};
use crate::serving::body::{ReplyBody, json_reply, reply};
use crate::serving::context::{Context, Tokens, unix_now};
use crate::serving::inference_request::InferenceRequest;
use crate::serving::refusal::Refusal;
use crate::serving::routes::Head;
use crate::serving::shapes::{AnswerSoFar, Dialect, Envelope};
use crate::serving::stream::Stream;
use crate::transfer::{Denied, Legs, Opening, Transfer};

/// Tokens to generate, and the finish reason at that limit.
type Length = (u32, Finish);

/// Serves one request; `cut_after` is the number of tokens delivered before a scripted cut.
pub(crate) async fn generate(
    context: &Context,
    parsed: InferenceRequest,
    head: Head<'_>,
    cut_after: Option<u32>,
) -> Result<Response<ReplyBody>, Refusal> {
    let mut lengths = lengths(context, &parsed).inspect_err(|_| {
        if let Some(side) = &context.power.side {
            side.refuse(&parsed.members);
        }
    })?;
    let envelope = envelope(context, &parsed, head.id);
    let legs = legs(context, &parsed, &envelope.id, head.rank).await?;
    if legs.one_token {
        lengths.fill((1, Finish::Length));
    }
    let answer = AnswerSoFar::new(parsed.prompts.len(), parsed.choices);
    if envelope.is_background {
        context.kept.keep(&envelope.id, envelope.queued(&answer));
    }
    let shape = (parsed.stream, parsed.include_usage, parsed.continuous_usage);
    let (mut tokens, settling) = (
        submit(context, parsed, &lengths, legs.transfers).await?,
        legs.settling,
    );
    let (stream, include_usage, continuous_usage) = shape;
    if stream {
        if settling.before_head {
            settling.params().await.map_err(|_| Refusal::transfer_failed())?;
        }
        let kept = (envelope.dialect == Dialect::Responses).then(|| Arc::clone(&context.kept));
        let shape = Stream::new(envelope, answer, include_usage, continuous_usage).kept_by(kept);
        let body = ReplyBody::tokens(tokens, shape, cut_after, Arc::clone(&context.faults));
        return Ok(reply(StatusCode::OK, "text/event-stream; charset=utf-8", body));
    }
    if envelope.is_background {
        return Ok(in_background(context, envelope, tokens, answer));
    }
    let answer = collect(&mut tokens, answer).await?;
    let mut params = settling.params().await.map_err(|_| Refusal::transfer_failed())?;
    if context.faults.loses_transfer_params() {
        params = Value::Null;
    }
    let answer = envelope.whole(&answer, &params);
    if envelope.dialect == Dialect::Responses {
        context.kept.keep(&envelope.id, answer.clone());
    }
    let answer = Bytes::from(answer.to_string());
    let body = match cut_after {
        Some(_) => ReplyBody::torn(&answer),
        None => ReplyBody::Whole(answer),
    };
    Ok(reply(StatusCode::OK, "application/json", body))
}

/// Answers that the response is queued, and generates it without the client.
fn in_background(
    context: &Context,
    envelope: Envelope,
    mut tokens: Tokens,
    answer: AnswerSoFar,
) -> Response<ReplyBody> {
    let queued = envelope.queued(&answer);
    let (id, kept) = (envelope.id.clone(), Arc::clone(&context.kept));
    let task = context.tasks.spawn(async move {
        if let Ok(answer) = collect(&mut tokens, answer).await {
            kept.keep(&envelope.id, envelope.response(&answer, true));
        }
    });
    context.kept.made_by(&id, task.abort_handle());
    json_reply(StatusCode::OK, &queued)
}

fn envelope(context: &Context, parsed: &InferenceRequest, id: Option<&str>) -> Envelope {
    let block = context.config.block_size as usize;
    let prefix = parsed.dialect.id_prefix();
    Envelope {
        dialect: parsed.dialect,
        id: match id {
            Some(id) => format!("{prefix}{id}"),
            None => format!("{prefix}{}", context.request_id()),
        },
        model: parsed.model.clone(),
        created: unix_now(),
        prompt_tokens: parsed.prompts.iter().map(Vec::len).sum(),
        cacheable_tokens: parsed
            .prompts
            .iter()
            .map(|prompt| prompt.len() / block * block)
            .sum(),
        recording: parsed.recording.clone(),
        is_background: parsed.is_background,
    }
}

/// Prepares transfers with other engines. Never returns if the engine dies of the request.
async fn legs(context: &Context, parsed: &InferenceRequest, id: &str, rank: u16) -> Result<Legs, Refusal> {
    let Some(side) = &context.power.side else {
        return Ok(Legs::default());
    };
    let opening = Opening {
        members: &parsed.members,
        prompts: &parsed.prompts,
        choices: parsed.choices,
        namespace: &parsed.namespace,
        id,
        rank,
    };
    match side.open(&opening) {
        Ok(legs) => Ok(legs),
        Err(Denied::NoRoom) => Err(Refusal::no_room()),
        Err(Denied::Dies) => {
            let power = context.power.clone();
            // Not here: this request's connection is closed first.
            context.tasks.spawn(async move { power.die().await });
            std::future::pending().await
        }
    }
}

async fn submit(
    context: &Context,
    parsed: InferenceRequest,
    lengths: &[Length],
    transfers: Vec<Transfer>,
) -> Result<Tokens, Refusal> {
    let room: usize = lengths
        .iter()
        .map(|(limit, _)| *limit as usize * parsed.choices)
        .sum();
    let (output, tokens) = context.tokens(room);
    let mut transfers = transfers.into_iter();
    let mut submissions = Vec::with_capacity(parsed.prompts.len() * parsed.choices);
    for (prompt, &(limit, finish)) in parsed.prompts.iter().zip(lengths) {
        for variant in 0..parsed.choices {
            submissions.push(Submission {
                prompt: prompt.clone(),
                limit,
                finish,
                namespace: parsed.namespace.clone(),
                choice: u32::try_from(submissions.len()).unwrap_or(u32::MAX),
                variant: u32::try_from(variant).unwrap_or(u32::MAX),
                output: output.clone(),
                transfer: transfers.next(),
            });
        }
    }
    // The tokens end with the sequences.
    drop(output);
    if context.submit(submissions).await {
        Ok(tokens)
    } else {
        Err(Refusal::overloaded())
    }
}

fn lengths(context: &Context, parsed: &InferenceRequest) -> Result<Vec<Length>, Refusal> {
    parsed
        .prompts
        .iter()
        .map(|prompt| answer_length(context, parsed, prompt))
        .collect()
}

fn answer_length(context: &Context, parsed: &InferenceRequest, prompt: &[u32]) -> Result<Length, Refusal> {
    let limit = context.config.context_limit();
    if prompt.is_empty() {
        return Err(Refusal::bad("prompt", "the prompt is empty".to_owned()));
    }
    let room = u32::try_from(prompt.len()).map_or(0, |prompt| limit.saturating_sub(prompt));
    if room == 0 {
        return Err(Refusal::prompt_too_long(limit, prompt.len()));
    }
    if let Some(requested) = parsed.max_tokens.filter(|&requested| requested > room) {
        return Err(Refusal::answer_too_long(limit, prompt.len(), requested));
    }
    let stops = !parsed.ignore_eos || parsed.has_stops;
    if stops && context.faults.stops_at_first_token() {
        return Ok((1, Finish::Stop));
    }
    let most = parsed.max_tokens.unwrap_or(room);
    let own = context.config.answer_tokens;
    if parsed.ignore_eos || most <= own {
        Ok((most, Finish::Length))
    } else {
        Ok((own, Finish::Stop))
    }
}

/// Waits for the whole answer.
async fn collect(tokens: &mut Tokens, mut answer: AnswerSoFar) -> Result<AnswerSoFar, Refusal> {
    while !answer.is_over() {
        let output = tokens.receiver.recv().await.ok_or_else(Refusal::engine_dead)?;
        if output.finish == Some(Finish::Error) {
            return Err(Refusal::transfer_failed());
        }
        answer.add(&output);
    }
    Ok(answer)
}
