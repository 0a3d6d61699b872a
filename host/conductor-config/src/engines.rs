//! Engines of models and of pools: a model's tokenizer and its workers have to be of one engine.

use routing::Dialect;
use wildmatch::WildMatch;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::models::{ChatEngineConfig, ModelConfig, ModelTokenize};
use crate::pools::PoolConfig;
use crate::routes::RouteConfig;

/// Warns of tokenizers that prepare chats as vLLM does, for models that a route leads to SGLang workers.
pub(crate) fn check(models: &[ModelConfig], pools: &[PoolConfig], routes: &[RouteConfig], report: &Report) {
    let is_of_sglang = |pool: &&PoolConfig| {
        let dialect = pool.pd.as_ref().and_then(|pd| pd.dialect);
        dialect == Some(Dialect::Sglang)
    };
    for model in models {
        let ModelTokenize::Local(local) = &model.tokenize else {
            continue;
        };
        if local.engine != ChatEngineConfig::Vllm {
            continue;
        }
        let may_carry = |route: &&RouteConfig| {
            let overlaps = |a: &str, b: &str| WildMatch::new(a).matches(b) || WildMatch::new(b).matches(a);
            let patterns = &route.matches.models;
            let mut pairs = patterns
                .iter()
                .flat_map(|a| model.names.iter().map(move |b| (a, b)));
            patterns.is_empty() || pairs.any(|(a, b)| overlaps(a, b))
        };
        let mut led = routes.iter().filter(may_carry).map(|route| &*route.pool);
        let pool = led.find_map(|name| pools.iter().filter(is_of_sglang).find(|pool| pool.name == name));
        if let Some(pool) = pool {
            let message = format!(
                "the model `{}` has chats as vLLM prepares them, and the pool `{}` has SGLang workers: prompts with \
                 tools match nothing there",
                model.name, pool.name
            );
            let help = "add engine = \"sglang\", or set tokenize = \"worker\"";
            report.push(Problem::new(Code::OtherEngine, &local.at.span, message).help(help));
        }
    }
}
