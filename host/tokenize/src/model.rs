//! Model tokenizer: a model's tokenizer and chat templates, built from its files.

use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use minijinja::ErrorKind;
use minijinja::value::Value;
use tokenizers::Tokenizer;

use crate::boundary::BoundaryFinder;
use crate::chat::{self, Chat, ChatError};
use crate::chat_engine::ChatEngine;
use crate::config::Config;
use crate::content_format::ContentFormat;
use crate::conversation::Frames;
use crate::engine_renderer::EngineRenderer;
use crate::error::LoadError;
use crate::fast_path::FastPath;
use crate::files::Files;
use crate::harmony;
use crate::joined::{self, JoinedParts};
use crate::message::Message;
use crate::probe::TemplateFacts;
use crate::rendered::Rendered;
use crate::sglang;
use crate::template::{self, ChatTemplates, NOW};

const TOOLS: &str = "tools";

/// Bytes that a template usually adds to the messages at most; a longer text is copied as it grows.
const ADDED_TEXT: usize = 1024;

/// Tokenizer of a model's prompts.
#[derive(Debug)]
pub struct Model {
    /// Separates its texts from those of other models in the cache.
    pub(crate) id: u64,
    /// Tokenizer without post-processor: its tokens are in `affix`.
    pub(crate) tokenizer: Tokenizer,
    pub(crate) fast_path: Option<FastPath>,
    pub(crate) boundaries: BoundaryFinder,
    /// Tokens before and after a prompt with `add_special_tokens`.
    pub(crate) affix: [Box<[u32]>; 2],
    /// Special tokens by their names in templates: `bos_token` and so on.
    special_tokens: Vec<(Value, Value)>,
    templates: ChatTemplates,
    facts: TemplateFacts,
    frames: Frames,
    joined: Option<JoinedParts>,
}

impl Model {
    /// Builds a model of vLLM. `format` is the configured form of contents of its engine; `None` to detect it from the
    /// template.
    ///
    /// # Errors
    /// [`LoadError`] for unusable files, or files that would not give the engine's tokens.
    pub fn load(files: &Files, format: Option<ContentFormat>) -> Result<Self, LoadError> {
        Self::load_for(ChatEngine::Vllm, files, format)
    }

    /// Builds a model of an engine.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_for(
        engine: ChatEngine,
        files: &Files,
        format: Option<ContentFormat>,
    ) -> Result<Self, LoadError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let json = std::str::from_utf8(&files.tokenizer);
        let mut tokenizer = json
            .map_err(tokenizers::Error::from)
            .and_then(Tokenizer::from_str)
            .map_err(LoadError::Tokenizer)?;
        if let tokenizers::ModelWrapper::BPE(model) = tokenizer.get_model()
            && model.dropout.is_some_and(|dropout| dropout > 0.0)
        {
            return Err(LoadError::Dropout);
        }
        let config = Config::read(files)?;
        config.complete(&mut tokenizer)?;
        let affix = Config::take_affix(&mut tokenizer)?;
        let mut templates = config.all_templates(files)?;
        let engine_renderer = EngineRenderer::of(files, engine);
        let mut probed = None;
        if let Some(renderer) = engine_renderer {
            // The engine renders none of them.
            let unused = std::mem::take(&mut templates);
            // Nevertheless it probes them.
            if renderer == EngineRenderer::Harmony {
                probed = ChatTemplates::compile(unused, format, engine).ok();
            }
        }
        let mut model = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed) << 33,
            boundaries: BoundaryFinder::of(&tokenizer),
            fast_path: FastPath::of(&tokenizer),
            tokenizer,
            affix,
            special_tokens: config.special_tokens(),
            templates: ChatTemplates::compile(templates, format, engine)?,
            facts: TemplateFacts::default(),
            frames: Frames::default(),
            joined: None,
        };
        model.templates.engine_renderer = engine_renderer;
        model.templates.is_harmony = engine_renderer == Some(EngineRenderer::Harmony) && model.has_harmony();
        model.facts = TemplateFacts::of(&model, probed.as_ref().unwrap_or(&model.templates));
        // SGLang's conversion of a message depends on those behind it: each of its turns is rendered whole.
        if engine == ChatEngine::Vllm {
            model.frames = Frames::of(&model);
            model.joined = joined::probe::parts(&model);
        }
        Ok(model)
    }

    /// Returns `true` if its tokenizer can tokenize chats in Harmony.
    fn has_harmony(&self) -> bool {
        let fast_path = self.fast_path.as_ref();
        fast_path.is_some_and(|fast_path| harmony::is_possible(&self.tokenizer, &self.boundaries, fast_path))
    }

    pub(crate) fn templates(&self) -> &ChatTemplates {
        &self.templates
    }

    pub(crate) fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Returns the parts of plain chats, unless a joined text has differed from its rendering.
    pub(crate) fn joined(&self) -> Option<&JoinedParts> {
        self.joined
            .as_ref()
            .filter(|joined| self.frames.is_on(&joined.template))
    }

    /// Returns the properties of its chat templates that matter for Anthropic's Messages API.
    #[must_use]
    pub fn template_facts(&self) -> TemplateFacts {
        self.facts
    }

    /// Returns the engine whose conversion of chats it follows.
    #[must_use]
    pub fn engine(&self) -> ChatEngine {
        self.templates.engine
    }

    /// Returns the code of the engine that renders its chats, if they are [`ChatError::Unsupported`] here.
    #[must_use]
    pub fn engine_renderer(&self) -> Option<EngineRenderer> {
        self.templates
            .engine_renderer
            .filter(|_| !self.templates.is_harmony)
    }

    /// Returns `true` if it can render chats.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.templates.is_harmony || self.templates.choose(false).is_some()
    }

    /// Renders a chat as the engine does. `now` is the date for templates and formats that print it.
    ///
    /// # Errors
    /// [`ChatError`] if it has more than text, or the engine would refuse it too.
    pub fn render(&self, chat: &Chat<'_>, now: SystemTime) -> Result<Rendered, ChatError> {
        self.render_chat(chat, now).map(|(rendered, _)| rendered)
    }

    /// Renders a chat; also returns its messages as sent.
    pub(crate) fn render_chat(
        &self,
        chat: &Chat<'_>,
        now: SystemTime,
    ) -> Result<(Rendered, Vec<Message>), ChatError> {
        if let Some(fast_path) = self.fast_path.as_ref().filter(|_| self.templates.is_harmony) {
            return Ok((harmony::render(fast_path, chat, now)?, Vec::new()));
        }
        let chosen = self.templates.choose(chat.has_tools());
        let (name, facts) = chosen.ok_or(ChatError::Unsupported("no chat template"))?;
        let variables = match self.engine() {
            ChatEngine::Vllm => chat.variables(facts)?,
            ChatEngine::SgLang => sglang::variables(chat, facts)?,
        };
        let mut context = self.special_tokens.clone();
        // The engine leaves out documents that the request does not have: those of the arguments stay.
        context.push((Value::from("documents"), Value::from(())));
        context.extend(variables.extra);
        context.extend(
            variables
                .documents
                .map(|documents| (Value::from("documents"), documents)),
        );
        context.extend([
            (Value::from("messages"), Value::from(variables.messages)),
            (Value::from(TOOLS), variables.tools.clone()),
            (
                Value::from("add_generation_prompt"),
                Value::from(variables.add_generation_prompt),
            ),
            (Value::from(NOW), Value::from(template::seconds(now))),
        ]);
        let render = |context: &[(Value, Value)]| {
            let context = Value::from_pairs(context.to_vec());
            let likely = chat.messages.len() + ADDED_TEXT;
            self.templates.render(name, context, likely, chat.is_brief)
        };
        let text = match render(&context) {
            Err(error) if self.engine() == ChatEngine::SgLang && error.kind() != ErrorKind::OutOfFuel => {
                let Some(bare) = sglang::bare_tools(&variables.tools) else {
                    return Err(error.into());
                };
                context.push((Value::from(TOOLS), bare));
                render(&context)?
            }
            rendered => rendered?,
        };
        let text = match &variables.continued {
            Some(continued) => chat::cut(text, continued)?,
            None => text,
        };
        let add_special_tokens = self.engine() == ChatEngine::Vllm && chat.adds_special_tokens();
        Ok((Rendered::text(text, add_special_tokens), variables.given))
    }
}
