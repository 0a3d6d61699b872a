//! Tokenization in the router, equal to the engine's: chat templates, Hugging Face tokenizers, and a cache of tokens,
//! which limits the cost of a conversation's next turn to its new part.
//!
//! Start with [`Model`]. A prompt passes [`Model::render`], [`Model::prepare`] and [`Model::complete`]. The first two
//! are cheap; the last one takes time for each new byte, within a [`Budget`]. The crate does not know HTTP, threads,
//! or clients.

mod automaton;
mod boundary;
mod budget;
mod cache;
mod chat;
mod config;
mod content_format;
mod error;
mod fast_path;
mod files;
mod message;
mod model;
mod probe;
mod split;
mod strftime;
mod sums;
mod template;
mod value;
mod word_cache;

pub use budget::Budget;
pub use cache::TokenizationCache;
pub use chat::{Chat, ChatError};
pub use content_format::ContentFormat;
pub use error::{EncodeError, LoadError};
pub use files::{FileError, FilePaths, Files, Stamp};
pub use model::{Model, Prepared, Rendered, Tokens};
pub use probe::TemplateFacts;
pub use template::TemplateError;
