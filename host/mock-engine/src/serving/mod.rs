//! HTTP service of the engine. It uses the scheduler only through the core's commands.

mod adapters;
mod audio;
mod body;
mod bootstrap;
mod context;
mod form;
mod generate;
mod inference_request;
mod kept;
mod listener;
mod messages;
mod metrics;
mod paths;
mod pooling;
mod reading;
mod realtime;
mod recorder;
mod refusal;
mod refusal_reply;
mod routes;
mod shapes;
mod stream;
mod token_prompt;
mod tokenize;

pub(crate) use adapters::LoadedAdapters;
pub(crate) use context::Context;
pub(crate) use kept::KeptResponses;
pub(crate) use listener::{ListenerService, Listening};
pub use recorder::Recorded;
pub(crate) use recorder::Recorder;
