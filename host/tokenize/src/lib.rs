//! Tokenization in the router, equal to the engine's: chat templates, Hugging Face tokenizers, and a cache of tokens,
//! which limits the cost of a conversation's next turn to its new part.
//!
//! Start with [`Model`]. A text passes [`Model::prepare`] and [`Model::complete`], a chat [`Model::prepare_chat`] and
//! [`Model::complete`]. The first is cheap. The last takes time for each new byte, within a [`Budget`].
//! The crate does not know HTTP, threads, or clients.

mod automaton;
mod boundary;
mod budget;
mod cache;
mod chat;
mod chat_engine;
mod clock_use;
mod config;
mod content_format;
mod conversation;
mod costs;
mod engine_renderer;
mod error;
mod fast_path;
mod files;
mod growth;
mod harmony;
mod id_list;
mod joined;
mod kept_hashes;
mod literal;
mod long_integer;
mod message;
mod model;
mod node_table;
mod probe;
mod prompt;
mod python;
mod rendered;
mod sglang;
mod special_tokens;
mod split;
mod statements;
mod strftime;
mod sums;
mod template;
mod token_ids;
mod value;
mod word_cache;

pub use budget::Budget;
pub use cache::{CacheLimits, TokenizationCache};
pub use chat::{Chat, ChatError, EngineFields};
pub use chat_engine::ChatEngine;
pub use content_format::ContentFormat;
pub use engine_renderer::EngineRenderer;
pub use error::{EncodeError, LoadError};
pub use files::{FileError, FilePaths, Files, Stamp};
pub use id_list::{IdListReader, ListedIds};
pub use kept_hashes::{HashSpace, KnownBeginning};
pub use model::Model;
pub use probe::TemplateFacts;
pub use prompt::{Prepared, Tokens};
pub use rendered::Rendered;
pub use template::TemplateError;
pub use token_ids::{SharedTokens, TokenIds};
