//! `[models.NAME]`: tokenization of a model's prompts; `[tokens]`: limits of tokenization in the router.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Mark;
use crate::document::unit::TIMEOUTS;
use crate::document::value::Item;

/// `[models.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Unique name.
    pub name: String,
    /// Globs (`*`, `?`) of the model names that requests carry; never empty.
    pub names: Vec<String>,
    /// Tokenization of prompts.
    pub tokenize: ModelTokenize,
    /// Timeout of tokenization outside the request's own thread.
    pub timeout: Duration,
}

/// Tokenization of a model's prompts.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelTokenize {
    /// By the model's own tokenizer, in the router.
    Local(LocalTokenizer),
    /// By one of the methods of pools.
    As(Tokenize),
}

/// Files of a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalTokenizer {
    /// A model's folder, or a `tokenizer.json`, as written; a relative path starts at the file's folder.
    pub tokenizer: PathBuf,
    /// File with the chat template, as written, replacing the folder's.
    pub chat_template: Option<PathBuf>,
    /// Form of message contents passed to the template.
    pub content_format: ContentFormatConfig,
    /// Engine whose conversion of chats is followed.
    pub engine: ChatEngineConfig,
    /// Position of `tokenizer`.
    pub at: Mark,
}

/// Tokenization without files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokenize {
    /// By a worker's `/tokenize`.
    Worker,
    /// By a worker's `/v1/chat/completions/render` or `/v1/completions/render`.
    Render,
    /// By the text itself: four bytes are one token.
    Text,
    /// None: only prompts of token ids are looked up.
    Off,
}

/// Form of message contents passed to a chat template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentFormatConfig {
    /// Detected from the template's loops.
    Auto,
    /// Always text.
    String,
    /// Always a list of parts.
    OpenAi,
}

/// Engine that converts chats for their template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatEngineConfig {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
}

/// `[tokens]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensConfig {
    /// Memory limit of the tokenization cache, in bytes; 0 disables it.
    pub cache: u64,
    /// Memory limit of the states of conversations, in bytes; 0 disables them.
    pub conversations: u64,
    /// Longest body that is tokenized in the router, in bytes.
    pub longest: u64,
    /// A prompt with more new bytes than this is tokenized on a separate thread.
    pub in_place: u64,
    /// Number of those threads.
    pub threads: u32,
    /// Most prompts queued for them.
    pub queue: u32,
}

impl Default for TokensConfig {
    fn default() -> Self {
        Self {
            cache: 64 << 20,
            conversations: 32 << 20,
            longest: 4 << 20,
            in_place: 2 << 10,
            threads: 1,
            queue: 64,
        }
    }
}

const CACHES: RangeInclusive<u64> = 0..=64 << 30;
const LONGEST: RangeInclusive<u64> = 0..=1 << 30;
const IN_PLACE: RangeInclusive<u64> = 0..=1 << 20;

pub(crate) const TOKENIZE: [(&str, Tokenize); 4] = [
    ("worker", Tokenize::Worker),
    ("render", Tokenize::Render),
    ("text", Tokenize::Text),
    ("off", Tokenize::Off),
];

pub(crate) fn read_tokens(section: Option<Section<'_>>) -> TokensConfig {
    let default = TokensConfig::default();
    let Some(mut tokens) = section else {
        return default;
    };
    let count = |count: u64| u32::try_from(count).expect("within a range that ends at a u32");
    let config = TokensConfig {
        cache: tokens.size("cache", default.cache, CACHES),
        conversations: tokens.size("conversations", default.conversations, CACHES),
        longest: tokens.size("longest", default.longest, LONGEST),
        in_place: tokens.size("in-place", default.in_place, IN_PLACE),
        threads: count(tokens.count("threads", u64::from(default.threads), 1..=64)),
        queue: count(tokens.count("queue", u64::from(default.queue), 0..=10_000)),
    };
    tokens.finish();
    config
}

pub(crate) fn read(item: Option<&Item<'_>>, report: &Report) -> Vec<ModelConfig> {
    let section = item.and_then(|item| Section::of(item, "`[models.NAME]`".to_owned()));
    let entries = section.map(|models| models.entries()).unwrap_or_default();
    entries
        .iter()
        .filter_map(|entry| read_one(entry, report))
        .collect()
}

fn read_one(entry: &Item<'_>, report: &Report) -> Option<ModelConfig> {
    let mut model = Section::of(entry, format!("`[models.{}]`", entry.key))?;
    let names = match model.item("names") {
        None => vec![entry.key.clone()],
        Some(item) => read_names(&item),
    };
    let tokenizer = model.item("tokenizer");
    let template = model.item("chat-template");
    let format = model.item("content-format");
    let engine = model.item("engine");
    let how = model.item("tokenize");
    let choices = TOKENIZE.map(|(name, tokenize)| (name, Some(tokenize)));
    let choices: Vec<_> = std::iter::once(("local", None)).chain(choices).collect();
    let chosen = how.as_ref().map(|item| item.choice(&choices));
    // A worker is called over the network, and maybe a second one.
    let queries_workers = matches!(chosen, Some(Some(Some(_))));
    let default = Duration::from_millis(if queries_workers { 500 } else { 50 });
    let timeout = model.duration("tokenize-timeout", default, TIMEOUTS);
    model.finish();
    let tokenize = match chosen {
        // Already reported.
        Some(None) => return None,
        Some(Some(Some(tokenize))) => {
            for file in [&tokenizer, &template, &format, &engine].into_iter().flatten() {
                let message = format!(
                    "`{}` has no effect with another `tokenize` than \"local\"",
                    file.key
                );
                report.push(Problem::new(Code::ConflictingKeys, &file.key_span, message));
            }
            ModelTokenize::As(tokenize)
        }
        Some(Some(None)) | None => {
            let Some(tokenizer) = &tokenizer else {
                let message = format!("the model `{}` has no tokenizer", entry.key);
                let help =
                    "name its folder, for example tokenizer = \"models/llama\", or say tokenize = \"worker\"";
                report.push(Problem::new(Code::MissingKey, &entry.key_span, message).help(help));
                return None;
            };
            ModelTokenize::Local(LocalTokenizer {
                at: report.mark(&tokenizer.span),
                tokenizer: read_path(tokenizer)?,
                chat_template: template.as_ref().and_then(read_path),
                content_format: format.map_or(ContentFormatConfig::Auto, |item| read_format(&item)),
                engine: engine.map_or(ChatEngineConfig::Vllm, |item| read_engine(&item)),
            })
        }
    };
    Some(ModelConfig {
        name: entry.key.clone(),
        names,
        tokenize,
        timeout,
    })
}

fn read_format(item: &Item<'_>) -> ContentFormatConfig {
    let formats = [
        ("auto", ContentFormatConfig::Auto),
        ("string", ContentFormatConfig::String),
        ("openai", ContentFormatConfig::OpenAi),
    ];
    item.choice(&formats).unwrap_or(ContentFormatConfig::Auto)
}

fn read_engine(item: &Item<'_>) -> ChatEngineConfig {
    let engines = [
        ("vllm", ChatEngineConfig::Vllm),
        ("sglang", ChatEngineConfig::Sglang),
    ];
    item.choice(&engines).unwrap_or(ChatEngineConfig::Vllm)
}

fn read_names(item: &Item<'_>) -> Vec<String> {
    let names = item.texts().unwrap_or_default();
    if names.is_empty() || names.iter().any(|name| name.text.is_empty()) {
        let problem = Problem::new(
            Code::InvalidValue,
            &item.span,
            "`names` has no name, or an empty one",
        );
        item.report.push(
            problem.help("list the names that requests carry, or leave the key out for the table's own"),
        );
    }
    names.into_iter().map(|name| name.text.to_owned()).collect()
}

fn read_path(item: &Item<'_>) -> Option<PathBuf> {
    let text = item.text()?;
    if text.text.is_empty() {
        let problem = Problem::new(Code::InvalidValue, &text.span, format!("`{}` is empty", item.key));
        item.report
            .push(problem.help("name a file, or the model's folder"));
        return None;
    }
    Some(PathBuf::from(text.text))
}
