//! Errors of loading a tokenizer and of tokenizing a prompt.

use thiserror::Error;

use crate::template::TemplateError;

/// A model's files are not a usable tokenizer.
#[derive(Debug, Error)]
pub enum LoadError {
    /// `tokenizer.json`.
    #[error("load `tokenizer.json`")]
    Tokenizer(#[source] tokenizers::Error),
    /// Another JSON file.
    #[error("read `{0}` as JSON")]
    Json(&'static str, #[source] serde_json::Error),
    /// The tokens are random.
    #[error("load `tokenizer.json`: it drops out merges at random")]
    Dropout,
    /// The tokens around a prompt depend on the prompt.
    #[error("load `tokenizer.json`: its post-processor does more than put tokens around a prompt")]
    PostProcessor,
    /// A token added by the configuration has another id in the tokenizer.
    #[error("add the token {0} of `tokenizer_config.json`: the tokenizer gives it another id")]
    AddedToken(u32),
    /// A chat template is invalid.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// A prompt was not tokenized.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// The tokenizer failed.
    #[error("tokenize a prompt")]
    Failed(#[source] tokenizers::Error),
    /// The step budget is used up.
    #[error("tokenize a prompt: it costs more than it may")]
    TooCostly,
    /// The deadline has passed.
    #[error("tokenize a prompt in time")]
    TooLate,
}
