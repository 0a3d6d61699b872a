//! OpenAI-style request and response bodies, SSE framing and error bodies, as bytes.
//!
//! Pure: it knows what bodies look like, not where they come from or go to. It reads only what routing needs
//! and never re-serialises a client's text, so whatever an engine adds to its API passes through untouched.

mod endpoint;
mod error_body;
mod models;
mod peek;
mod sse;
mod tail;
mod tokenize;

pub use endpoint::Endpoint;
pub use error_body::ErrorBody;
pub use models::{ModelsError, find_model, merge_models};
pub use peek::{BodyError, Peek, Prompt, peek};
pub use sse::error_event;
pub use tail::Tail;
pub use tokenize::{TokenizeError, Tokenized};
