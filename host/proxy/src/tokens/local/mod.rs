//! Tokenization in the router by the model's own tokenizer.

mod check;

use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use inference_api::{ChatParts, DisabledThinking, Endpoint, Peek, PromptParts, TemplateRules, list_elements};
use tokenize::{
    Budget, Chat, ChatEngine, ChatError, EncodeError, EngineFields, Model, Prepared, Rendered, TemplateFacts,
    TokenizationCache, Tokens,
};
use tokio::time::timeout_at;
use tracing::debug;

use self::check::SampledTokens;
use crate::base::label::TokensKind;
use crate::tokens::spec::{Local, Tokenizing};
use crate::tokens::threads::{JobOrder, NoTurn};
use crate::tokens::tokenize_request::{PromptSender, PromptTokens, TokenizeRequest, TokensResult};

/// Maximum size in bytes of bodies, or of new messages of known conversations, that are rendered and looked up on the
/// request's own thread.
const SHORT_BODY: usize = 64 << 10;
/// Maximum number of messages of chats that are rendered on the request's own thread, unless their conversation is
/// known.
const SHORT_CHAT: usize = 256;
/// Maximum size in bytes of bodies whose messages are hashed on the request's own thread.
const HASHED_BODY: usize = 1 << 20;
/// Work limit: steps of a prompt per millisecond of its timeout, i.e. ten nanoseconds each. In a prompt of four million
/// spaces, a step took twenty.
const STEPS_PER_MS: u64 = 100_000;

/// Tokenizes a prompt. Short prompts that are cached or have few new bytes stay on the request's thread, and so do
/// turns of known conversations. All others go to the thread pool.
pub(super) async fn tokens(
    local: &Local,
    tokenizing: &Tokenizing,
    request: &TokenizeRequest<'_>,
) -> TokensResult {
    let began = Instant::now();
    let metrics = &tokenizing.metrics;
    let work = Work {
        model: Arc::clone(&local.model),
        cache: if request.is_kept {
            Arc::clone(&tokenizing.cache)
        } else {
            Arc::new(TokenizationCache::new(0))
        },
        longest: tokenizing.limits.longest,
        steps: steps(local.timeout),
        deadline: began + local.timeout,
        now: SystemTime::now(),
    };
    let now = work.now;
    let sender = request.sender.clone();
    let tokens = match work.prepare_in_place(request)? {
        Some(prepared) if prepared.new_bytes() <= tokenizing.limits.in_place => {
            let tokens = work.complete(prepared)?;
            if request.is_kept {
                metrics.in_place(began);
            }
            tokens
        }
        prepared => {
            let (endpoint, body) = (request.endpoint, Bytes::clone(request.body));
            let step = move |work: &Work| match prepared {
                Some(prepared) => work.complete(prepared),
                None => work.whole(endpoint, &body),
            };
            let tokens = apart(local, sender, work, step).await?;
            if request.is_kept {
                metrics.apart(began);
            }
            tokens
        }
    };
    if request.is_kept {
        if tokens.is_sampled {
            let ids = tokens.ids.to_vec();
            check::check_later(local, tokenizing, request, SampledTokens { ids, now });
        }
        metrics.count(&tokens, &tokenizing.cache);
    }
    let Tokens { ids, beginning, .. } = tokens;
    Ok((TokensKind::Local, PromptTokens { ids, beginning }))
}

type Made<T> = Result<T, TokensKind>;

/// Tokenizes on the thread pool.
async fn apart(
    local: &Local,
    sender: PromptSender,
    work: Work,
    step: impl FnOnce(&Work) -> Made<Tokens> + Send + 'static,
) -> Made<Tokens> {
    let deadline = work.deadline;
    let waiting = local
        .threads
        .do_by(JobOrder { sender, deadline }, move || step(&work))
        .map_err(|_| TokensKind::QueueFull)?;
    match timeout_at(deadline.into(), waiting).await {
        Ok(Ok(Ok(made))) => made,
        Ok(Ok(Err(NoTurn::GaveWay))) => Err(TokensKind::QueueFull),
        Ok(Ok(Err(NoTurn::TooLate)) | Err(_)) | Err(_) => Err(TokensKind::Timeout),
    }
}

/// Steps from a prompt to its tokens. The length of a prompt and the work on its tokens are bounded, and the time is
/// checked between steps.
struct Work {
    model: Arc<Model>,
    cache: Arc<TokenizationCache>,
    /// Maximum bytes of a prompt.
    longest: usize,
    /// Maximum steps of tokenization.
    steps: u64,
    deadline: Instant,
    /// Date for templates that print it.
    now: SystemTime,
}

/// Returns the maximum steps of a prompt: about its timeout's worth on a slow machine.
fn steps(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).map_or(u64::MAX, |ms| ms.saturating_mul(STEPS_PER_MS))
}

impl Work {
    fn whole(&self, endpoint: Endpoint, body: &[u8]) -> Made<Tokens> {
        // The body was parsed before.
        let peek = inference_api::peek(endpoint, body).map_err(|_| TokensKind::Failed)?;
        let prepared = self.prepare(&peek, false)?;
        if Instant::now() >= self.deadline {
            return Err(TokensKind::Timeout);
        }
        self.complete(prepared)
    }

    /// Prepares a prompt on the request's thread. Returns `None` if that takes too long.
    fn prepare_in_place(&self, request: &TokenizeRequest<'_>) -> Made<Option<Prepared>> {
        let bytes = request.body.len();
        if bytes <= SHORT_BODY && request.peek.message_positions().len() <= SHORT_CHAT {
            return match self.prepare(request.peek, true) {
                Err(TokensKind::TooCostly) => Ok(None),
                prepared => prepared.map(Some),
            };
        }
        // The known messages of a conversation are only hashed.
        if bytes <= HASHED_BODY {
            return self.continued(request.peek);
        }
        Ok(None)
    }

    /// Prepares a prompt. A brief preparation is `TooCostly` after a few milliseconds.
    fn prepare(&self, peek: &Peek<'_>, is_brief: bool) -> Made<Prepared> {
        let prompt = PromptInput::of(&self.model, peek).ok_or(TokensKind::Unsupported)?;
        let prepare = || match prompt {
            PromptInput::Text(rendered) => Ok(self.model.prepare(rendered, &self.cache)),
            PromptInput::Chat(chat) => self.model.prepare_chat(
                &Chat {
                    is_brief,
                    ..chat.chat()
                },
                self.now,
                &self.cache,
            ),
        };
        let prepared = guarded(prepare).ok_or(TokensKind::Failed)?.map_err(|error| {
            // Without its source: a template's error may quote the prompt.
            debug!(%error, "a chat is not rendered here");
            match error {
                ChatError::TooCostly => TokensKind::TooCostly,
                _ => TokensKind::Unsupported,
            }
        })?;
        self.within_limit(prepared)
    }

    /// Prepares a turn of a known conversation, unless its new messages are long.
    fn continued(&self, peek: &Peek<'_>) -> Made<Option<Prepared>> {
        let Some(PromptInput::Chat(chat)) = PromptInput::of(&self.model, peek) else {
            return Ok(None);
        };
        let prepare = || {
            let chat = Chat {
                is_brief: true,
                ..chat.chat()
            };
            self.model.continue_chat(&chat, self.now, SHORT_BODY, &self.cache)
        };
        let prepared = guarded(prepare).ok_or(TokensKind::Failed)?;
        prepared.map(|prepared| self.within_limit(prepared)).transpose()
    }

    /// Refuses a prompt that a template made too long: it may repeat parts.
    fn within_limit(&self, prepared: Prepared) -> Made<Prepared> {
        match prepared.text_bytes() > self.longest {
            true => Err(TokensKind::TooLong),
            false => Ok(prepared),
        }
    }

    fn complete(&self, prepared: Prepared) -> Made<Tokens> {
        let is_over = || Instant::now() >= self.deadline;
        let mut budget = Budget::new(self.steps, &is_over);
        let made = guarded(|| self.model.complete(prepared, &self.cache, &mut budget));
        made.ok_or(TokensKind::Failed)?.map_err(|error| {
            let kind = match &error {
                EncodeError::Failed(_) => TokensKind::Failed,
                EncodeError::TooCostly => TokensKind::TooCostly,
                EncodeError::TooLate => TokensKind::Timeout,
            };
            let error = &error as &dyn std::error::Error;
            debug!(error, "failed to tokenize a prompt");
            kind
        })
    }
}

/// Catches a panic of the tokenizer: it costs the request its tokens, but no thread. The cache stays consistent,
/// because it keeps only finished entries.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Prompt for the tokenizer.
enum PromptInput<'a> {
    Text(Rendered),
    Chat(ChatInput<'a>),
}

/// A chat, and the positions of its messages.
struct ChatInput<'a> {
    parts: ChatParts<'a>,
    positions: Cow<'a, [Range<usize>]>,
}

impl<'a> PromptInput<'a> {
    /// Returns the prompt of a request; `None` if only the engine can render it.
    fn of(model: &Model, peek: &'a Peek<'a>) -> Option<Self> {
        let is_vllm = model.engine() == ChatEngine::Vllm;
        let parts = match peek.prompt_parts()? {
            PromptParts::Text {
                text,
                add_special_tokens,
            } => {
                // SGLang has no such field.
                let special = add_special_tokens || !is_vllm;
                return Some(Self::Text(Rendered::text(text.into_owned(), special)));
            }
            // SGLang converts the requests of other APIs in its own way.
            _ if !is_vllm && peek.endpoint() != Endpoint::ChatCompletions => return None,
            PromptParts::Chat(chat) => chat,
            PromptParts::Messages(prompt) => prompt.chat(Some(rules(model.template_facts())))?,
        };
        let positions = match &parts.messages {
            Cow::Borrowed(_) => Cow::Borrowed(peek.message_positions()),
            Cow::Owned(messages) => Cow::Owned(list_elements(messages).unwrap_or_default()),
        };
        Some(Self::Chat(ChatInput { parts, positions }))
    }
}

impl ChatInput<'_> {
    fn chat(&self) -> Chat<'_> {
        let parts = &self.parts;
        Chat {
            messages: &parts.messages,
            tools: parts.tools.as_deref(),
            documents: parts.documents,
            reasoning_effort: parts.reasoning_effort,
            chat_template_kwargs: parts.chat_template_kwargs,
            add_generation_prompt: parts.add_generation_prompt,
            continue_final_message: parts.continue_final_message,
            of_engines: EngineFields {
                add_special_tokens: parts.add_special_tokens,
                tool_choice: parts.tool_choice,
                reasoning: parts.reasoning,
            },
            positions: &self.positions,
            is_brief: false,
        }
    }
}

/// Returns the rules by which the model's engine converts Messages requests.
fn rules(facts: TemplateFacts) -> TemplateRules {
    TemplateRules {
        merges_system: facts.refuses_inline_system,
        disabled_thinking: match facts.supports_effort_none {
            true => DisabledThinking::None,
            false => DisabledThinking::Low,
        },
    }
}

#[cfg(test)]
mod tests;
