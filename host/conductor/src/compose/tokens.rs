//! Sources of prompt tokens, as specs for the request path.

use std::sync::Arc;
use std::time::Duration;

use conductor_config::{Config, ModelConfig, ModelTokenize, Tokenize};
use proxy::{ModelSpec, ModelTokens, ModelsSpec, TokenSource, TokenizingLimits};

use external_resources::Tokenizers;

/// Returns the token source of a pool or a model.
pub(super) fn token_source(tokenize: Tokenize, timeout: Duration) -> TokenSource {
    match tokenize {
        Tokenize::Worker => TokenSource::Worker { timeout },
        Tokenize::Render => TokenSource::Render { timeout },
        Tokenize::Text => TokenSource::Text,
        Tokenize::Off => TokenSource::Off,
    }
}

/// Returns the models with the tokenizers that were read for this configuration.
pub(crate) fn models_spec(config: &Config, tokenizers: &Tokenizers) -> ModelsSpec {
    let model = |model: &ModelConfig| ModelSpec {
        names: model.names.clone(),
        tokens: match &model.tokenize {
            ModelTokenize::Local(local) => match tokenizers.of(local) {
                Some(loaded) => ModelTokens::Local {
                    model: Arc::clone(loaded),
                    timeout: model.timeout,
                },
                None => ModelTokens::As(TokenSource::Off),
            },
            ModelTokenize::As(tokenize) => ModelTokens::As(token_source(*tokenize, model.timeout)),
        },
    };
    let tokens = &config.tokens;
    ModelsSpec {
        models: config.models.iter().map(model).collect(),
        limits: TokenizingLimits {
            cache: usize::try_from(tokens.cache).unwrap_or(usize::MAX),
            conversations: usize::try_from(tokens.conversations).unwrap_or(usize::MAX),
            longest: usize::try_from(tokens.longest).unwrap_or(usize::MAX),
            in_place: usize::try_from(tokens.in_place).unwrap_or(usize::MAX),
            threads: tokens.threads as usize,
            queue: tokens.queue as usize,
        },
    }
}
