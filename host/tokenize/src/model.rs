//! Model tokenizer: a model's tokenizer and chat templates, built from its files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use minijinja::value::Value;
use tokenizers::Tokenizer;

use crate::boundary::{BoundaryFinder, TextBoundary};
use crate::budget::Budget;
use crate::cache::{Node, TokenizationCache};
use crate::chat::{self, Chat, ChatError};
use crate::config::Config;
use crate::content_format::ContentFormat;
use crate::error::{EncodeError, LoadError};
use crate::fast_path::FastPath;
use crate::files::Files;
use crate::probe::TemplateFacts;
use crate::template::{self, ChatTemplates, NOW};

/// Shorter pieces have no node of their own, in bytes: the node would be larger than its savings.
const SHORTEST_PIECE: usize = 128;
/// Longer pieces are cut between words, in bytes.
const SEAM_EVERY: usize = 1024;
/// Longest end of a prompt that is cached by itself, in bytes.
const LONGEST_END: usize = 256;
/// Marks ends in cache keys, to separate them from prefixes. The lower bits are the id of the boundary before the end,
/// or a seam's, which no token has.
const ENDS: u64 = 1 << 32;
const SEAM: u32 = u32::MAX;

/// Tokenizer of a model's prompts.
#[derive(Debug)]
pub struct Model {
    /// Separates its texts from those of other models in the cache.
    id: u64,
    /// Tokenizer without post-processor: its tokens are in `affix`.
    tokenizer: Tokenizer,
    fast_path: Option<FastPath>,
    boundaries: BoundaryFinder,
    /// Tokens before and after a prompt with `add_special_tokens`.
    affix: [Box<[u32]>; 2],
    /// Special tokens by their names in templates: `bos_token` and so on.
    special_tokens: Vec<(Value, Value)>,
    templates: ChatTemplates,
    facts: TemplateFacts,
}

/// A prompt as the tokenizer's input.
#[derive(Debug)]
pub struct Rendered {
    text: String,
    /// The tokenizer adds its special tokens.
    special: bool,
}

/// A prompt, and its known tokens.
#[derive(Debug)]
pub struct Prepared {
    rendered: Rendered,
    cuts: Vec<TextCut>,
    /// Number of cuts covered by `known`.
    covered: usize,
    known: Option<Arc<Node>>,
}

#[derive(Debug, Clone, Copy)]
struct TextCut {
    at: TextBoundary,
    hash: u64,
}

/// Tokens of a prompt.
#[derive(Debug)]
pub struct Tokens {
    /// Their ids.
    pub ids: Vec<u32>,
    /// Number of tokens from the cache.
    pub cached: usize,
}

impl Model {
    /// Builds a model. `format` is the configured form of contents of its engine; `None` to detect it from the
    /// template.
    ///
    /// # Errors
    /// [`LoadError`] for unusable files, or files that would not give the engine's tokens.
    pub fn load(files: &Files, format: Option<ContentFormat>) -> Result<Self, LoadError> {
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
        let mut templates = if files.only_these_templates {
            BTreeMap::new()
        } else {
            config.templates()
        };
        templates.extend(files.templates.clone());
        let mut model = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed) << 33,
            boundaries: BoundaryFinder::of(&tokenizer),
            fast_path: FastPath::of(&tokenizer),
            tokenizer,
            affix,
            special_tokens: config.special_tokens(),
            templates: ChatTemplates::compile(templates, format)?,
            facts: TemplateFacts::default(),
        };
        model.facts = TemplateFacts::of(&model, &model.templates);
        Ok(model)
    }

    /// Returns the properties of its chat templates that matter for Anthropic's Messages API.
    #[must_use]
    pub fn template_facts(&self) -> TemplateFacts {
        self.facts
    }

    /// Returns `true` if it can render chats.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.templates.choose(false).is_some()
    }

    /// Renders a chat as the engine does. `now` is the date for templates that print it.
    ///
    /// # Errors
    /// [`ChatError`] if it has more than text, or the engine would refuse it too.
    pub fn render(&self, chat: &Chat<'_>, now: SystemTime) -> Result<Rendered, ChatError> {
        let chosen = self.templates.choose(chat.has_tools());
        let (name, facts) = chosen.ok_or(ChatError::Unsupported("no chat template"))?;
        let variables = chat.variables(facts)?;
        let mut context = self.special_tokens.clone();
        context.extend(variables.extra);
        context.extend([
            (Value::from("messages"), Value::from(variables.messages)),
            (Value::from("tools"), variables.tools),
            (Value::from("documents"), variables.documents),
            (
                Value::from("add_generation_prompt"),
                Value::from(variables.add_generation_prompt),
            ),
            (Value::from(NOW), Value::from(template::seconds(now))),
        ]);
        let context = Value::from_pairs(context);
        let text = self
            .templates
            .render(name, context)
            .map_err(ChatError::Template)?;
        Ok(Rendered {
            text: match &variables.continued {
                Some(continued) => chat::cut(text, continued)?,
                None => text,
            },
            special: chat.adds_special_tokens(),
        })
    }

    /// Looks up the known tokens of a prompt. Costs at most one scan of its bytes.
    #[must_use]
    pub fn prepare(&self, rendered: Rendered, cache: &TokenizationCache) -> Prepared {
        let text = &*rendered.text;
        let mut cuts: Vec<TextCut> = Vec::new();
        let mut cut = |at: TextBoundary| {
            let before = cuts.last();
            let from = before.map_or(0, |cut| cut.at.end);
            let hash = cache.hash(self.id, before.map(|cut| cut.hash), &text[from..at.end]);
            cuts.push(TextCut { at, hash });
        };
        let mut from = 0;
        for at in self.boundaries.find(text) {
            from = self.seams(text, from..at.start, &mut cut);
            if at.end - from >= SHORTEST_PIECE {
                cut(at);
                from = at.end;
            }
        }
        self.seams(text, from..text.len(), &mut cut);
        let known = cuts.iter().enumerate().rev().find_map(|(index, cut)| {
            let node = cache.get(self.id, cut.hash, &text[..cut.at.end])?;
            Some((index + 1, node))
        });
        let (covered, known) = known.map_or((0, None), |(covered, node)| (covered, Some(node)));
        Prepared {
            rendered,
            cuts,
            covered,
            known,
        }
    }

    /// Cuts a long piece between words: many prompts may share the beginning of a message. Returns the position of the
    /// last cut.
    fn seams(&self, text: &str, piece: Range<usize>, cut: &mut impl FnMut(TextBoundary)) -> usize {
        let mut from = piece.start;
        let seam = |from| {
            let fast_path = self.fast_path.as_ref()?;
            let at = from + fast_path.seam(&text[from..piece.end], SEAM_EVERY)?;
            // A short rest is cheap, and a cut costs every prompt that has it.
            (piece.end - at >= SEAM_EVERY / 2).then_some(at)
        };
        while let Some(at) = seam(from) {
            cut(TextBoundary::seam(at));
            from = at;
        }
        from
    }

    /// Returns the prompt's tokens. New ones are cached, also if the budget does not last to the end.
    ///
    /// # Errors
    /// [`EncodeError`] if the tokenizer fails or the budget is used up.
    pub fn complete(
        &self,
        prepared: Prepared,
        cache: &TokenizationCache,
        budget: &mut Budget<'_>,
    ) -> Result<Tokens, EncodeError> {
        let Prepared {
            rendered: Rendered { text, special },
            cuts,
            covered,
            known,
        } = prepared;
        let [before, after] = &self.affix;
        let cached = known.as_ref().map_or(0, |node| node.count);
        let mut ids = Vec::with_capacity(cached + (text.len() / 3).max(64));
        if special {
            ids.extend_from_slice(before);
        }
        if let Some(node) = &known {
            node.tokens_into(&mut ids);
        }
        let mut node = known;
        let mut behind = covered.checked_sub(1).map(|last| cuts[last].at);
        for cut in &cuts[covered..] {
            let from = ids.len();
            self.encode_behind(&text[..cut.at.end], behind, &mut ids, budget)?;
            let piece = &text[behind.map_or(0, |at| at.end)..cut.at.end];
            node = Some(cache.insert(self.id, cut.hash, node, piece, &ids[from..]));
            behind = Some(cut.at);
        }
        self.end(&text, behind, &mut ids, budget, cache)?;
        if special {
            ids.extend_from_slice(after);
        }
        Ok(Tokens { ids, cached })
    }

    /// Appends the tokens after the last cut. Templates end many prompts alike, and the tokens of an end depend only
    /// on the boundary before it, so short ends are cached by themselves.
    fn end(
        &self,
        text: &str,
        behind: Option<TextBoundary>,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
        cache: &TokenizationCache,
    ) -> Result<(), EncodeError> {
        let (Some(at), from) = (behind, ids.len()) else {
            return self.encode_behind(text, behind, ids, budget);
        };
        let end = &text[at.end..];
        if end.len() > LONGEST_END {
            return self.encode_behind(text, behind, ids, budget);
        }
        let space = self.id | ENDS | u64::from(at.id.unwrap_or(SEAM));
        let hash = cache.hash(space, None, end);
        if let Some(known) = cache.get(space, hash, end) {
            known.tokens_into(ids);
            return Ok(());
        }
        self.encode_behind(text, behind, ids, budget)?;
        drop(cache.insert(space, hash, None, end, &ids[from..]));
        Ok(())
    }

    /// Appends the tokens of `text` after a boundary.
    fn encode_behind(
        &self,
        text: &str,
        behind: Option<TextBoundary>,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<(), EncodeError> {
        let (from, skipped) = behind.map_or((0, 0), |at| (at.start, usize::from(at.id.is_some())));
        let new = &text[behind.map_or(0, |at| at.end)..];
        if behind.is_some() && new.is_empty() {
            return Ok(());
        }
        if let Some(fast_path) = &self.fast_path
            && fast_path.encode(&self.tokenizer, new, ids, budget)?
        {
            return Ok(());
        }
        budget.long_way(text.len() - from)?;
        let encoding = self
            .tokenizer
            .encode_fast(&text[from..], false)
            .map_err(EncodeError::Failed)?;
        let found = encoding.get_ids();
        debug_assert_eq!(
            found.first().copied().filter(|_| skipped == 1),
            behind.and_then(|at| at.id)
        );
        ids.extend_from_slice(&found[skipped..]);
        Ok(())
    }
}

impl Rendered {
    /// Creates a text prompt. By default engines add their special tokens.
    #[must_use]
    pub fn text(text: String, add_special_tokens: bool) -> Self {
        Self {
            text,
            special: add_special_tokens,
        }
    }

    /// Returns the text without added special tokens.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Prepared {
    /// Returns the number of bytes that must be tokenized.
    #[must_use]
    pub fn new_bytes(&self) -> usize {
        let known = self
            .covered
            .checked_sub(1)
            .map_or(0, |last| self.cuts[last].at.end);
        self.rendered.text.len() - known
    }
}
