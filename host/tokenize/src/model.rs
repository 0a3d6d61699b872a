//! A model's tokenizer and chat templates, put together from its files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use minijinja::value::Value;
use thiserror::Error;
use tokenizers::Tokenizer;

use crate::boundary::{Boundaries, Boundary};
use crate::budget::Budget;
use crate::cache::{Node, PrefixCache};
use crate::chat::{self, Chat, ChatError};
use crate::config::Config;
use crate::content_format::ContentFormat;
use crate::files::Files;
use crate::lane::Lane;
use crate::probe::TemplateFacts;
use crate::template::{self, NOW, TemplateError, Templates};

/// Pieces shorter than this are not kept by themselves, in bytes: the node would be larger than what it saves.
const SHORTEST_PIECE: usize = 128;
/// Longer pieces are cut between words, in bytes.
const SEAM_EVERY: usize = 1024;
/// Longest end of a prompt that is kept by itself, in bytes.
const LONGEST_END: usize = 256;
/// Tells ends from prefixes in the cache, with the id of the boundary before them below it, or that of a seam, which no token has.
const ENDS: u64 = 1 << 32;
const SEAM: u32 = u32::MAX;

/// Turns a model's prompts into tokens.
#[derive(Debug)]
pub struct Model {
    /// Tells its texts from those of others in the cache.
    id: u64,
    /// Without post-processor: what that adds is in `affix`.
    tokenizer: Tokenizer,
    lane: Option<Lane>,
    boundaries: Boundaries,
    /// What `add_special_tokens` puts before and after a prompt.
    affix: [Box<[u32]>; 2],
    /// By name, as templates know them: `bos_token` and so on.
    special_tokens: Vec<(Value, Value)>,
    templates: Templates,
    facts: TemplateFacts,
}

/// A model's files make no tokenizer.
#[derive(Debug, Error)]
pub enum LoadError {
    /// `tokenizer.json`.
    #[error("load `tokenizer.json`")]
    Tokenizer(#[source] tokenizers::Error),
    /// A file beside it.
    #[error("read `{0}` as JSON")]
    Json(&'static str, #[source] serde_json::Error),
    /// Its tokens are drawn by lot.
    #[error("load `tokenizer.json`: it drops out merges at random")]
    Dropout,
    /// What it puts around a prompt depends on the prompt.
    #[error("load `tokenizer.json`: its post-processor does more than put tokens around a prompt")]
    PostProcessor,
    /// A token that the configuration adds has another id in the tokenizer.
    #[error("add the token {0} of `tokenizer_config.json`: the tokenizer gives it another id")]
    AddedToken(u32),
    /// A chat template.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// A prompt was not tokenised.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// These tokenizers do not do that on purpose.
    #[error("tokenise a prompt")]
    Failed(#[source] tokenizers::Error),
    /// It takes more steps than its budget has.
    #[error("tokenise a prompt: it costs more than it may")]
    TooCostly,
    /// Its time was up.
    #[error("tokenise a prompt in time")]
    TooLate,
}

/// A prompt as the model's tokenizer gets it.
#[derive(Debug)]
pub struct Rendered {
    text: String,
    /// Whether the tokenizer puts its special tokens around it.
    special: bool,
}

/// A prompt, and what of its tokens is known already.
#[derive(Debug)]
pub struct Prepared {
    rendered: Rendered,
    cuts: Vec<Cut>,
    /// How many cuts `known` covers.
    covered: usize,
    known: Option<Arc<Node>>,
}

#[derive(Debug, Clone, Copy)]
struct Cut {
    at: Boundary,
    hash: u64,
}

/// A prompt's tokens.
#[derive(Debug)]
pub struct Tokens {
    /// Their ids.
    pub ids: Vec<u32>,
    /// How many of them were known from earlier prompts.
    pub cached: usize,
}

impl Model {
    /// Puts a model together. `format` is the form of contents that its engine is told to use; none: as the template
    /// shows it.
    ///
    /// # Errors
    /// [`LoadError`] for what cannot be used, or would not give the engine's tokens.
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
            boundaries: Boundaries::of(&tokenizer),
            lane: Lane::of(&tokenizer),
            tokenizer,
            affix,
            special_tokens: config.special_tokens(),
            templates: Templates::compile(templates, format)?,
            facts: TemplateFacts::default(),
        };
        model.facts = TemplateFacts::of(&model, &model.templates);
        Ok(model)
    }

    /// What its chat templates mean for requests of Anthropic's Messages API.
    #[must_use]
    pub fn template_facts(&self) -> TemplateFacts {
        self.facts
    }

    /// Whether it can render chats.
    #[must_use]
    pub fn has_template(&self) -> bool {
        self.templates.choose(false).is_some()
    }

    /// A chat as the engine would render it. `now` is the date that templates may print.
    ///
    /// # Errors
    /// [`ChatError`] where it has more than text, or the engine would refuse it too.
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

    /// Looks up what of a prompt's tokens is known. Costs no more than a look at each of its bytes.
    #[must_use]
    pub fn prepare(&self, rendered: Rendered, cache: &PrefixCache) -> Prepared {
        let text = &*rendered.text;
        let mut cuts: Vec<Cut> = Vec::new();
        let mut cut = |at: Boundary| {
            let before = cuts.last();
            let from = before.map_or(0, |cut| cut.at.end);
            let hash = cache.hash(self.id, before.map(|cut| cut.hash), &text[from..at.end]);
            cuts.push(Cut { at, hash });
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

    /// Cuts a long piece between words: what many prompts begin with may be the beginning of a message. Returns where the last cut is.
    fn seams(&self, text: &str, piece: Range<usize>, cut: &mut impl FnMut(Boundary)) -> usize {
        let mut from = piece.start;
        let seam = |from| {
            let lane = self.lane.as_ref()?;
            let at = from + lane.seam(&text[from..piece.end], SEAM_EVERY)?;
            // A short rest is no trouble, and a cut costs every prompt that has it.
            (piece.end - at >= SEAM_EVERY / 2).then_some(at)
        };
        while let Some(at) = seam(from) {
            cut(Boundary::seam(at));
            from = at;
        }
        from
    }

    /// The prompt's tokens; what was new of them is known from now on, also where the budget does not last to the end.
    ///
    /// # Errors
    /// [`EncodeError`] where the tokenizer fails, and where the budget is used up.
    pub fn complete(
        &self,
        prepared: Prepared,
        cache: &PrefixCache,
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
            node = Some(cache.insert((self.id, cut.hash), node, piece, &ids[from..]));
            behind = Some(cut.at);
        }
        self.end(&text, behind, (&mut ids, budget), cache)?;
        if special {
            ids.extend_from_slice(after);
        }
        Ok(Tokens { ids, cached })
    }

    /// Appends the tokens of what follows the last cut. Templates end many prompts the same way, and the tokens of an end depend
    /// on nothing but the boundary before it: short ends are kept by themselves.
    fn end(
        &self,
        text: &str,
        behind: Option<Boundary>,
        (ids, budget): (&mut Vec<u32>, &mut Budget<'_>),
        cache: &PrefixCache,
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
        drop(cache.insert((space, hash), None, end, &ids[from..]));
        Ok(())
    }

    /// Appends the tokens of `text` behind a boundary.
    fn encode_behind(
        &self,
        text: &str,
        behind: Option<Boundary>,
        ids: &mut Vec<u32>,
        budget: &mut Budget<'_>,
    ) -> Result<(), EncodeError> {
        let (from, skipped) = behind.map_or((0, 0), |at| (at.start, usize::from(at.id.is_some())));
        let new = &text[behind.map_or(0, |at| at.end)..];
        if behind.is_some() && new.is_empty() {
            return Ok(());
        }
        if let Some(lane) = &self.lane
            && lane.encode(&self.tokenizer, new, (ids, budget))?
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
    /// A prompt that is text. Engines put their special tokens around it unless they are told not to.
    #[must_use]
    pub fn text(text: String, add_special_tokens: bool) -> Self {
        Self {
            text,
            special: add_special_tokens,
        }
    }

    /// The text, without special tokens that are put around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Prepared {
    /// How many bytes have to be tokenised.
    #[must_use]
    pub fn new_bytes(&self) -> usize {
        let known = self
            .covered
            .checked_sub(1)
            .map_or(0, |last| self.cuts[last].at.end);
        self.rendered.text.len() - known
    }
}
