//! From what was asked to an answer: checks that it fits, queues it, and shapes what comes back.

use bytes::Bytes;
use http::StatusCode;
use hyper::Response;
use tokio::sync::mpsc;

use crate::sequence::{Finish, Output, Submission};
use crate::serving::ask::Ask;
use crate::serving::body::{ReplyBody, reply};
use crate::serving::refusal::Refusal;
use crate::serving::shapes::{Envelope, Said, Stream};
use crate::serving::{Context, unix_now};

/// Serves one request; `id` is the client's, `cut_after` the tokens that get through where a cut is scripted.
pub(crate) async fn generate(
    context: &Context,
    ask: Ask,
    id: Option<&str>,
    cut_after: Option<u32>,
) -> Result<Response<ReplyBody>, Refusal> {
    let (limit, finish) = answer_length(context, &ask)?;
    let block = context.config.block_size as usize;
    let envelope = Envelope {
        dialect: ask.dialect,
        id: match id {
            Some(id) => format!("{}{id}", ask.dialect.id_prefix()),
            None => format!("{}{}", ask.dialect.id_prefix(), context.request_id()),
        },
        model: ask.model,
        created: unix_now(),
        prompt_tokens: ask.prompt.len(),
        cacheable_tokens: ask.prompt.len() / block * block,
    };
    let (output, tokens) = mpsc::channel(limit as usize);
    let submission = Submission {
        prompt: ask.prompt,
        limit,
        finish,
        namespace: ask.namespace,
        output,
    };
    if !context.submit(submission).await {
        return Err(Refusal::overloaded());
    }
    if ask.stream {
        let shape = Stream::new(envelope, ask.include_usage, ask.continuous_usage);
        let body = ReplyBody::tokens(tokens, shape, cut_after);
        return Ok(reply(StatusCode::OK, "text/event-stream; charset=utf-8", body));
    }
    let answer = Bytes::from(envelope.whole(&collect(tokens).await?).to_string());
    let body = match cut_after {
        Some(_) => ReplyBody::torn(&answer),
        None => ReplyBody::Whole(answer),
    };
    Ok(reply(StatusCode::OK, "application/json", body))
}

/// Tokens to generate, and what ends the answer there.
fn answer_length(context: &Context, ask: &Ask) -> Result<(u32, Finish), Refusal> {
    let limit = context.config.context_limit();
    if ask.prompt.is_empty() {
        return Err(Refusal::bad("prompt", "the prompt is empty".to_owned()));
    }
    let room = u32::try_from(ask.prompt.len()).map_or(0, |prompt| limit.saturating_sub(prompt));
    if room == 0 {
        return Err(Refusal::prompt_too_long(limit, ask.prompt.len()));
    }
    if let Some(asked) = ask.max_tokens.filter(|&asked| asked > room) {
        return Err(Refusal::answer_too_long(limit, ask.prompt.len(), asked));
    }
    let most = ask.max_tokens.unwrap_or(room);
    let own = context.config.answer_tokens;
    if ask.ignore_eos || most <= own {
        Ok((most, Finish::Length))
    } else {
        Ok((own, Finish::Stop))
    }
}

/// Waits for the whole answer.
async fn collect(mut tokens: mpsc::Receiver<Output>) -> Result<Said, Refusal> {
    let mut said = Said::default();
    while let Some(output) = tokens.recv().await {
        said.add(&output);
        if output.finish.is_some() {
            return Ok(said);
        }
    }
    Err(Refusal::engine_dead())
}
