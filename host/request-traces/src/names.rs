//! Names of spans, attributes and events. The GenAI conventions are in development: their names change in this file.

/// Revision of the conventions that the names follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";
/// Name of the instrumentation scope.
pub const SCOPE: &str = "conductor";

// Spans of the router.
pub(crate) const SPAN_READ: &str = "conductor.read";
pub(crate) const SPAN_TOKENS: &str = "conductor.tokens";
pub(crate) const SPAN_QUEUE: &str = "conductor.queue";
pub(crate) const SPAN_DECIDE: &str = "conductor.decide";
pub(crate) const SPAN_SHADOW: &str = "conductor.shadow";

// HTTP and network, stable.
pub(crate) const HTTP_METHOD: &str = "http.request.method";
pub(crate) const HTTP_ROUTE: &str = "http.route";
pub(crate) const HTTP_STATUS: &str = "http.response.status_code";
pub(crate) const HTTP_BODY_SIZE: &str = "http.request.body.size";
pub(crate) const HTTP_RESENDS: &str = "http.request.resend_count";
pub(crate) const URL_PATH: &str = "url.path";
pub(crate) const SERVER_ADDRESS: &str = "server.address";
pub(crate) const SERVER_PORT: &str = "server.port";
pub(crate) const ERROR_TYPE: &str = "error.type";

// GenAI, in development.
pub(crate) const GEN_AI_OPERATION: &str = "gen_ai.operation.name";
pub(crate) const GEN_AI_PROVIDER: &str = "gen_ai.provider.name";
pub(crate) const GEN_AI_MODEL: &str = "gen_ai.request.model";
pub(crate) const GEN_AI_STREAM: &str = "gen_ai.request.stream";
pub(crate) const GEN_AI_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
pub(crate) const GEN_AI_FINISH: &str = "gen_ai.response.finish_reasons";
pub(crate) const GEN_AI_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
pub(crate) const GEN_AI_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(crate) const GEN_AI_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(crate) const GEN_AI_CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
pub(crate) const GEN_AI_CONVERSATION: &str = "gen_ai.conversation.id";
/// Provider of an engine that serves OpenAI's API.
pub(crate) const PROVIDER: &str = "openai";

// The router's own.
pub(crate) const POOL: &str = "conductor.pool";
pub(crate) const ROUTE: &str = "conductor.route";
pub(crate) const OUTCOME: &str = "conductor.outcome";
pub(crate) const REQUEST_ID: &str = "conductor.request_id";
pub(crate) const CLIENT: &str = "conductor.client";
pub(crate) const GENERATION: &str = "conductor.generation";
pub(crate) const LATE: &str = "conductor.late";
pub(crate) const PROMPT_TOKENS: &str = "conductor.prompt_tokens";
pub(crate) const EXPLAIN: &str = "conductor.explain";
pub(crate) const READ_SECONDS: &str = "conductor.read_seconds";
pub(crate) const TOKENS_SECONDS: &str = "conductor.tokens_seconds";
pub(crate) const QUEUE_SECONDS: &str = "conductor.queue_seconds";
pub(crate) const DECIDE_SECONDS: &str = "conductor.decide_seconds";
pub(crate) const HELD: &str = "conductor.held";
pub(crate) const CLASS: &str = "conductor.class";
pub(crate) const POLICY: &str = "conductor.policy";
pub(crate) const POLICY_VERSION: &str = "conductor.policy_version";
pub(crate) const ARM: &str = "conductor.arm";
pub(crate) const ATTEMPT: &str = "conductor.attempt";
pub(crate) const PHASE: &str = "conductor.phase";
pub(crate) const CANDIDATES: &str = "conductor.candidates";
pub(crate) const WORKER: &str = "conductor.worker";
pub(crate) const PREFILL_WORKER: &str = "conductor.prefill_worker";
pub(crate) const MATCHED_TOKENS: &str = "conductor.matched_tokens";
pub(crate) const BEST_TOKENS: &str = "conductor.best_tokens";
pub(crate) const SCORE: &str = "conductor.score";
pub(crate) const RESULT: &str = "conductor.result";
pub(crate) const VERDICT: &str = "conductor.verdict";
pub(crate) const FALLBACK: &str = "conductor.fallback";
pub(crate) const FAULT: &str = "conductor.fault";
pub(crate) const GATHER_SECONDS: &str = "conductor.gather_seconds";
pub(crate) const CALL_SECONDS: &str = "conductor.call_seconds";
pub(crate) const LEG: &str = "conductor.leg";
pub(crate) const DIALECT: &str = "conductor.dialect";

// Events of an attempt.
pub(crate) const EVENT_CONNECTED: &str = "connected";
pub(crate) const EVENT_HEAD: &str = "head";
pub(crate) const EVENT_FIRST_BYTE: &str = "first_byte";
pub(crate) const EVENT_LAST_BYTE: &str = "last_byte";

/// Result of a shadow that failed.
pub(crate) const RESULT_FAULT: &str = "fault";
/// Error type of a client that left.
pub(crate) const CLIENT_LEFT: &str = "client_left";
