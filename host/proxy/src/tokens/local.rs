//! Tokenization in the router by the model's own tokenizer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use inference_api::{DisabledThinking, Endpoint, Peek, PromptParts, TemplateRules};
use tokenize::{
    Budget, Chat, EncodeError, Model, Prepared, Rendered, TemplateFacts, TokenizationCache, Tokens,
};
use tokio::time::timeout_at;
use tracing::debug;

use super::question::{Learnt, PromptSender, Question};
use super::spec::{Local, Tokenizing};
use super::threads::{JobOrder, NoTurn};
use crate::base::label::TokensKind;

/// Maximum size in bytes of bodies that are rendered and looked up on the request's own thread.
const SHORT_BODY: usize = 64 << 10;
/// Work limit: steps of a prompt per millisecond of its timeout, i.e. ten nanoseconds each. In a prompt of four million
/// spaces, a step took twenty.
const STEPS_PER_MS: u64 = 100_000;

/// Tokenizes a prompt. Short prompts that are cached or have few new bytes stay on the request's thread; all others go
/// to the thread pool.
pub(super) async fn tokens(local: &Local, tokenizing: &Tokenizing, question: &Question<'_>) -> Learnt {
    let began = Instant::now();
    let metrics = &tokenizing.metrics;
    let work = Work {
        model: Arc::clone(&local.model),
        cache: if question.is_kept {
            Arc::clone(&tokenizing.cache)
        } else {
            Arc::new(TokenizationCache::new(0))
        },
        longest: tokenizing.limits.longest,
        steps: steps(local.timeout),
        deadline: began + local.timeout,
    };
    let sender = question.sender.clone();
    let tokens = if question.body.len() > SHORT_BODY {
        let (endpoint, body) = (question.endpoint, Bytes::clone(question.body));
        let tokens = apart(local, sender, work, move |work| work.whole(endpoint, &body)).await?;
        metrics.apart(began);
        tokens
    } else {
        let prepared = work.prepare(question.peek)?;
        if prepared.new_bytes() <= tokenizing.limits.in_place {
            let tokens = work.complete(prepared)?;
            metrics.in_place(began);
            tokens
        } else {
            let step = |work: &Work| work.complete(prepared);
            let tokens = apart(local, sender, work, step).await?;
            metrics.apart(began);
            tokens
        }
    };
    let Tokens { ids, cached } = tokens;
    if question.is_kept {
        metrics.count(&ids, cached, &tokenizing.cache);
    }
    Ok((TokensKind::Local, ids))
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
}

/// Returns the maximum steps of a prompt: about its timeout's worth on a slow machine.
fn steps(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).map_or(u64::MAX, |ms| ms.saturating_mul(STEPS_PER_MS))
}

impl Work {
    fn whole(&self, endpoint: Endpoint, body: &[u8]) -> Made<Tokens> {
        // The body was parsed before.
        let peek = inference_api::peek(endpoint, body).map_err(|_| TokensKind::Failed)?;
        let prepared = self.prepare(&peek)?;
        if Instant::now() >= self.deadline {
            return Err(TokensKind::Timeout);
        }
        self.complete(prepared)
    }

    fn prepare(&self, peek: &Peek<'_>) -> Made<Prepared> {
        let rendered = rendered(&self.model, peek).ok_or(TokensKind::Unsupported)?;
        // A template may repeat parts of the prompt.
        if rendered.as_str().len() > self.longest {
            return Err(TokensKind::TooLong);
        }
        guarded(|| self.model.prepare(rendered, &self.cache)).ok_or(TokensKind::Failed)
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

/// Renders the prompt for the tokenizer. Returns `None` if only the engine knows how.
fn rendered(model: &Model, peek: &Peek<'_>) -> Option<Rendered> {
    let chat = match peek.prompt_parts()? {
        PromptParts::Text {
            text,
            add_special_tokens,
        } => return Some(Rendered::text(text.into_owned(), add_special_tokens)),
        PromptParts::Chat(chat) => chat,
        PromptParts::Messages(prompt) => prompt.chat(Some(rules(model.template_facts())))?,
    };
    let chat = Chat {
        messages: &chat.messages,
        tools: chat.tools.as_deref(),
        documents: chat.documents,
        reasoning_effort: chat.reasoning_effort,
        chat_template_kwargs: chat.chat_template_kwargs,
        add_generation_prompt: chat.add_generation_prompt,
        continue_final_message: chat.continue_final_message,
        add_special_tokens: chat.add_special_tokens,
    };
    match guarded(|| model.render(&chat, SystemTime::now()))? {
        Ok(rendered) => Some(rendered),
        Err(error) => {
            // Without its source: a template's error may quote the prompt.
            debug!(%error, "a chat is not rendered here");
            None
        }
    }
}

/// Returns the rules by which the model's engine converts Messages requests.
fn rules(facts: TemplateFacts) -> TemplateRules {
    TemplateRules {
        merges_system: facts.refuses_inline_system,
        disabled_thinking: match facts.knows_effort_none {
            true => DisabledThinking::None,
            false => DisabledThinking::Low,
        },
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use tokenize::Files;

    use super::*;
    use crate::base::timeouts::RequestLimits;
    use crate::tokens::metrics::TokensMetrics;
    use crate::tokens::spec::{
        ModelSpec, ModelTokens, ModelsSpec, Source, TokenSource, TokenizingLimits, TokenizingPlan,
    };

    const SECOND: Duration = Duration::from_secs(1);
    const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"#;

    /// Tokenizes a chat whose only message is `words` times "a", on a pool whose threads take no jobs.
    async fn asked(words: usize, longest: usize) -> Learnt {
        let files = Files {
            tokenizer: TOKENIZER.into(),
            templates: [(
                "default".to_owned(),
                "{{ messages[0].content }}{{ messages[0].content }}".to_owned(),
            )]
            .into(),
            config: None,
            special_tokens: None,
            only_these_templates: false,
        };
        let model = ModelSpec {
            names: vec!["*".to_owned()],
            tokens: ModelTokens::Local {
                model: Arc::new(Model::load(&files, None).unwrap()),
                timeout: Duration::from_secs(60),
            },
        };
        let limits = TokenizingLimits {
            longest,
            in_place: usize::MAX,
            queue: 0,
            ..TokenizingLimits::default()
        };
        let spec = ModelsSpec {
            models: vec![model],
            limits,
        };
        let tokenizing = Tokenizing::new(
            TokenizingPlan::new(None, spec).unwrap(),
            None,
            &TokensMetrics::new(&crate::base::buckets::BucketBounds::default()),
        );
        let Source::Local(local) = tokenizing.source("m", TokenSource::Off) else {
            panic!("the model has a tokenizer");
        };
        let body: Bytes = format!(
            r#"{{"messages":[{{"role":"user","content":"{}"}}]}}"#,
            "a ".repeat(words)
        )
        .into();
        let endpoint = Endpoint::ChatCompletions;
        let question = Question {
            peek: &inference_api::peek(endpoint, &body).unwrap(),
            body: &body,
            endpoint,
            headers: &HeaderMap::new(),
            sender: PromptSender::Unknown,
            seq: 1,
            limits: &RequestLimits {
                attempts: 1,
                body_bytes: usize::MAX,
                connect_timeout: SECOND,
                first_byte_timeout: SECOND,
                first_token_timeout: None,
                idle_timeout: SECOND,
                request_timeout: None,
            },
            is_kept: true,
        };
        tokens(local, &tokenizing, &question).await
    }

    #[tokio::test]
    async fn a_long_body_is_left_to_a_thread_with_its_rendering() {
        let learnt = asked(8, 4 << 20).await;
        assert_eq!(learnt, Ok((TokensKind::Local, vec![0; 16])));
        assert_eq!(
            asked(SHORT_BODY, 4 << 20).await,
            Err(TokensKind::QueueFull.into())
        );
    }

    #[tokio::test]
    async fn what_a_template_makes_too_long_is_not_tokenized() {
        assert_eq!(asked(100, 300).await, Err(TokensKind::TooLong.into()));
    }
}
