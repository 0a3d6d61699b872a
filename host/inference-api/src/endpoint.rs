//! Endpoint table: one row per path whose requests are placed on workers.
//!
//! A new endpoint is a new row. Its columns define the reading of its body, the splitting between two workers, the
//! shape of its errors, its metrics and its line in `/openapi.json`.

/// Location of a request's model name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelField {
    /// The member `model` of a JSON object.
    Json,
    /// The field `model` of a `multipart/form-data` body.
    Form,
    /// Either of them, if the body is one; other bodies name no model.
    Any,
    /// The parameter `model` of the URL's query; the request has no body.
    Query,
}

/// Members of the body with the prompt; they define its tokenization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptField {
    /// `messages`: a conversation, rendered by the model's chat template.
    Messages,
    /// `prompt`: text, token ids, or a batch of either.
    Prompt,
    /// `input`: text, token ids, or a batch of either; else `messages`, rendered by the model's own template.
    Input,
    /// `messages`, `system` and `tools` of Anthropic's Messages API: a conversation that the engine converts to a chat.
    AnthropicMessages,
    /// `input` of the Responses API: text is a conversation of one message.
    Response,
    /// `token_ids` or `input_ids`, else `text`.
    Tokens,
    /// `messages`, else `prompt`, else `input`: the endpoint takes the bodies of several others.
    Any,
    /// No member that is tokenized.
    Untokenized,
}

/// Shape of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorShape {
    /// `{"error": {...}}`.
    OpenAi,
    /// `{"error": {...}}` before a stream; in a stream an `error` event with its fields at the top level.
    Responses,
    /// Anthropic's: `{"type":"error","error":{...}}`, in a stream as an `error` event.
    Anthropic,
}

/// Cost of a request for its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointWork {
    /// The model runs: the request is admitted, placed by the route's policy, and counted as load.
    Model,
    /// Only the tokenizer or the chat template runs: any worker of the pool takes it, without the queue.
    Tokenizer,
}

/// Class of requests in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndpointClass {
    /// Chats.
    Chat,
    /// Completions of text.
    Completion,
    /// Embeddings.
    Embedding,
    /// The Responses API.
    Response,
    /// Anthropic's Messages API.
    Message,
    /// Tokens of a text, and texts of tokens.
    Tokenize,
    /// Documents in the order of their relevance.
    Rerank,
    /// Scores of pairs of texts, and of labels.
    Score,
    /// Hidden states, as a model pools them.
    Pooling,
    /// Classes of texts.
    Classify,
    /// Prompts that are tokens already.
    Generate,
    /// Bodies of any of the other kinds.
    Invocation,
    /// Structured decisions.
    Decision,
    /// Speech from text and text from speech.
    Audio,
    /// Images.
    Image,
    /// WebSockets.
    Realtime,
    /// Paths added by the configuration.
    Forwarded,
}

impl EndpointClass {
    /// All classes in the order of their discriminants, with their labels.
    pub const ALL: [(Self, &'static str); 17] = [
        (Self::Chat, "chat"),
        (Self::Completion, "completion"),
        (Self::Embedding, "embedding"),
        (Self::Response, "response"),
        (Self::Message, "message"),
        (Self::Tokenize, "tokenize"),
        (Self::Rerank, "rerank"),
        (Self::Score, "score"),
        (Self::Pooling, "pooling"),
        (Self::Classify, "classify"),
        (Self::Generate, "generate"),
        (Self::Invocation, "invocation"),
        (Self::Decision, "decision"),
        (Self::Audio, "audio"),
        (Self::Image, "image"),
        (Self::Realtime, "realtime"),
        (Self::Forwarded, "forwarded"),
    ];
}

/// Row of the table. An endpoint takes `POST`, or `GET` for a WebSocket. A path added by the configuration takes any
/// method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Path without its query; `*` for paths added by the configuration.
    pub path: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Location of the model's name.
    pub model: ModelField,
    /// Location of the prompt.
    pub prompt: PromptField,
    /// The member `stream` makes the answer an event stream.
    pub streams: bool,
    /// A prefill and a decode worker can share it, if the rest of the request allows that.
    pub splits: bool,
    /// A WebSocket: a `GET` with a connection upgrade.
    pub upgrades: bool,
    /// Shape of its errors.
    pub errors: ErrorShape,
    /// Cost for a worker.
    pub work: EndpointWork,
    /// Class in metrics.
    pub class: EndpointClass,
}

impl EndpointSpec {
    /// Defaults of most rows.
    const COMMON: Self = Self {
        path: "",
        summary: "",
        model: ModelField::Json,
        prompt: PromptField::Untokenized,
        streams: false,
        splits: false,
        upgrades: false,
        errors: ErrorShape::OpenAi,
        work: EndpointWork::Model,
        class: EndpointClass::Completion,
    };
}

macro_rules! endpoints {
    ($($name:ident = $path:literal, $summary:literal { $($column:ident: $value:expr),* $(,)? })+) => {
        /// Endpoint whose requests are placed on workers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Endpoint {
            $(
                #[doc = concat!("`", $path, "`")]
                $name,
            )+
            /// A path added by the configuration.
            Forwarded,
        }

        impl Endpoint {
            /// All endpoints with a path of their own.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the endpoint at a path without its query.
            #[must_use]
            pub fn of_path(path: &str) -> Option<Self> {
                match path {
                    $($path => Some(Self::$name),)+
                    _ => None,
                }
            }
        }

        /// Rows by the discriminant of the endpoint.
        const TABLE: &[EndpointSpec] = &[
            $(EndpointSpec {
                path: $path,
                summary: $summary,
                $($column: $value,)*
                ..EndpointSpec::COMMON
            },)+
            EndpointSpec {
                path: "*",
                summary: "A path of `[server] forward`",
                model: ModelField::Any,
                streams: true,
                class: EndpointClass::Forwarded,
                ..EndpointSpec::COMMON
            },
        ];
    };
}

endpoints! {
    ChatCompletions = "/v1/chat/completions", "Answers a conversation" {
        prompt: PromptField::Messages, streams: true, splits: true, class: EndpointClass::Chat,
    }
    Completions = "/v1/completions", "Continues a text" {
        prompt: PromptField::Prompt, streams: true, splits: true, class: EndpointClass::Completion,
    }
    Embeddings = "/v1/embeddings", "Embeds texts" {
        prompt: PromptField::Input, class: EndpointClass::Embedding,
    }
    Responses = "/v1/responses", "Answers a conversation that the engine may keep" {
        prompt: PromptField::Response, streams: true, errors: ErrorShape::Responses, class: EndpointClass::Response,
    }
    Messages = "/v1/messages", "Answers a conversation in Anthropic's Messages API" {
        prompt: PromptField::AnthropicMessages, streams: true, splits: true, errors: ErrorShape::Anthropic,
        class: EndpointClass::Message,
    }
    CountTokens = "/v1/messages/count_tokens", "Counts the tokens of an Anthropic conversation" {
        work: EndpointWork::Tokenizer, errors: ErrorShape::Anthropic, class: EndpointClass::Tokenize,
    }
    ChatCompletionsBatch = "/v1/chat/completions/batch", "Answers several conversations" {
        class: EndpointClass::Chat,
    }
    Rerank = "/rerank", "Orders documents by their relevance to a query" { class: EndpointClass::Rerank }
    RerankV1 = "/v1/rerank", "Orders documents by their relevance to a query" { class: EndpointClass::Rerank }
    RerankV2 = "/v2/rerank", "Orders documents by their relevance to a query" { class: EndpointClass::Rerank }
    Score = "/score", "Scores pairs of texts" { class: EndpointClass::Score }
    ScoreV1 = "/v1/score", "Scores pairs of texts" { class: EndpointClass::Score }
    GenerativeScoring = "/generative_scoring", "Scores labels as continuations of a text" {
        class: EndpointClass::Score,
    }
    Pooling = "/pooling", "Returns the pooled hidden states of texts" {
        prompt: PromptField::Input, class: EndpointClass::Pooling,
    }
    Classify = "/classify", "Classifies texts" { prompt: PromptField::Input, class: EndpointClass::Classify }
    SystemOne = "/v1/systemone", "Decides questions about a state" { class: EndpointClass::Decision }
    Invocations = "/invocations", "SageMaker: the body of any endpoint" {
        prompt: PromptField::Any, streams: true, class: EndpointClass::Invocation,
    }
    InferenceGenerate = "/inference/v1/generate", "Continues tokens (vLLM)" {
        prompt: PromptField::Tokens, streams: true, class: EndpointClass::Generate,
    }
    Generate = "/generate", "Continues a text or tokens (SGLang)" {
        prompt: PromptField::Tokens, streams: true, class: EndpointClass::Generate,
    }
    Transcriptions = "/v1/audio/transcriptions", "Writes speech down" {
        model: ModelField::Form, streams: true, class: EndpointClass::Audio,
    }
    Translations = "/v1/audio/translations", "Translates speech into English text" {
        model: ModelField::Form, streams: true, class: EndpointClass::Audio,
    }
    Speech = "/v1/audio/speech", "Reads a text out" { class: EndpointClass::Audio }
    ImageGenerations = "/v1/images/generations", "Draws images" { streams: true, class: EndpointClass::Image }
    ImageEdits = "/v1/images/edits", "Changes images" {
        model: ModelField::Form, streams: true, class: EndpointClass::Image,
    }
    ImageVariations = "/v1/images/variations", "Varies an image" {
        model: ModelField::Form, class: EndpointClass::Image,
    }
    Realtime = "/v1/realtime", "Transcribes speech as it comes, over a WebSocket" {
        model: ModelField::Query, upgrades: true, class: EndpointClass::Realtime,
    }
    Tokenize = "/tokenize", "Returns the tokens of a text or a conversation" {
        prompt: PromptField::Prompt, work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    Detokenize = "/detokenize", "Returns the text of tokens" {
        work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    RenderChat = "/v1/chat/completions/render", "Renders a conversation to tokens and parameters" {
        prompt: PromptField::Messages, work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    RenderCompletion = "/v1/completions/render", "Renders a text to tokens and parameters" {
        prompt: PromptField::Prompt, work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    RenderMessages = "/v1/messages/render", "Renders an Anthropic conversation to tokens and parameters" {
        work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    RenderResponse = "/v1/responses/render", "Renders the input of a response to tokens and parameters" {
        work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    DerenderChat = "/v1/chat/completions/derender", "Makes a chat answer of generated tokens" {
        work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
    DerenderCompletion = "/v1/completions/derender", "Makes a completion of generated tokens" {
        work: EndpointWork::Tokenizer, class: EndpointClass::Tokenize,
    }
}

impl Endpoint {
    /// Returns the row of the endpoint.
    #[must_use]
    pub fn spec(self) -> &'static EndpointSpec {
        &TABLE[self as usize]
    }

    /// Returns its path.
    #[must_use]
    pub fn path(self) -> &'static str {
        self.spec().path
    }

    /// Returns its method. A path added by the configuration takes others too.
    #[must_use]
    pub fn method(self) -> &'static str {
        if self.spec().upgrades { "GET" } else { "POST" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_found_at_its_own_path() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::of_path(endpoint.path()), Some(*endpoint));
        }
        assert_eq!(Endpoint::of_path("/v1/completions/"), None);
    }

    #[test]
    fn every_class_stands_at_its_discriminant() {
        for (at, (class, _)) in EndpointClass::ALL.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
    }

    #[test]
    fn only_work_of_the_model_streams_or_splits() {
        for endpoint in Endpoint::ALL {
            let spec = endpoint.spec();
            let is_model = spec.work == EndpointWork::Model;
            assert!(is_model || !spec.streams && !spec.splits, "{endpoint:?}");
        }
    }
}
