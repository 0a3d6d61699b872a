//! A prompt's tokens as its engine would have them, without asking it: chat templates, Hugging Face tokenizers, and a
//! cache of prefixes that makes a conversation's next turn cost what is new in it.
//!
//! Read [`Model`] first. A prompt goes [`Model::render`] → [`Model::prepare`] → [`Model::complete`]; the first two are
//! cheap, the last takes time for each new byte, within a [`Budget`]. Must not know: HTTP, threads, who asks.

mod automaton;
mod boundary;
mod budget;
mod cache;
mod chat;
mod config;
mod content_format;
mod files;
mod lane;
mod message;
mod model;
mod probe;
mod split;
mod strftime;
mod sums;
mod template;
mod value;
mod words;

pub use budget::Budget;
pub use cache::PrefixCache;
pub use chat::{Chat, ChatError};
pub use content_format::ContentFormat;
pub use files::{FileError, FilePaths, Files, Stamp};
pub use model::{EncodeError, LoadError, Model, Prepared, Rendered, Tokens};
pub use probe::TemplateFacts;
pub use template::TemplateError;
