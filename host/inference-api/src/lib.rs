//! Inference API bodies as bytes: requests and responses in OpenAI's style, SSE framing, and errors.
//!
//! Pure: it handles the contents of bodies, not their sources or destinations. It reads only what routing needs and
//! never re-serializes a client's text, so extensions of an engine's API pass through unchanged.

mod anthropic;
mod bootstrap;
mod cache_use;
mod digits;
mod endpoint;
mod engine_load;
mod error_body;
mod event_sources;
mod fields;
mod form;
mod handshake;
mod model_names;
mod models;
mod nesting;
mod object;
mod peek;
mod prompt_parts;
mod query;
mod reserved;
mod response_id;
mod sampling;
mod server_dialect;
mod sse;
mod store_status;
mod tail;
mod tokenize;
mod usage;
mod usage_scanner;

pub use anthropic::{DisabledThinking, MessagesPrompt, TemplateRules};
pub use bootstrap::engine_ids;
pub use cache_use::{CacheUse, cache_use};
pub use endpoint::{
    Endpoint, EndpointClass, EndpointSpec, EndpointWork, ErrorShape, ModelField, PromptField,
};
pub use engine_load::{EngineLoad, engine_loads, sglang_loads};
pub use error_body::{ErrorBody, anthropic_error_kind};
pub use event_sources::{EventSource, EventSourcesError, sglang_event_sources, vllm_event_sources};
pub use fields::Raw;
pub use form::{FormError, FormSize};
pub use handshake::{Handshake, HandshakeError, PrefillAnswer, PrefillAnswerError, Split, splits};
pub use model_names::{
    LONGEST_MODEL_NAME, MOST_MODEL_NAMES, ModelNames, ModelNamesError, is_model_not_found, model_names,
};
pub use models::{ModelsError, find_model, list_models, merge_models, select_models};
pub use nesting::is_deeper_than;
pub use object::list_elements;
pub use peek::{BodyError, Peek, Prompt, peek, read_body, read_ids, read_query, without_bom};
pub use prompt_parts::{ChatParts, PromptParts};
pub use query::QueryError;
pub use reserved::{ENGINE_ADMINISTRATION, OWN_PATHS, Reserved, reserved};
pub use response_id::{ResponseIdFinder, is_response_id};
pub use server_dialect::{server_dialect, shows_nixl};
pub use sse::{error_event, error_in_first_event};
pub use store_status::{StoreStatus, StoreStatusError};
pub use tail::Tail;
pub use tokenize::{TokenizeError, Tokenized};
pub use usage::CachedTokensFilter;
