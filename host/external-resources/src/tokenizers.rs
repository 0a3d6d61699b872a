//! Tokenizers that a configuration names, loaded from their configured places. A tokenizer whose files are unchanged is
//! not loaded again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conductor_config::{
    ChatEngineConfig, Code, Config, ContentFormatConfig, Diagnostic, LocalTokenizer, ModelConfig,
    ModelTokenize,
};
use thiserror::Error;
use tokenize::{ChatEngine, ContentFormat, EngineRenderer, FileError, FilePaths, LoadError, Model, Stamp};
use tracing::info;

use local_files::ConfigSource;
use observability::error_chain;

/// Tokenizers of a configuration. Two values are equal if they share the loaded tokenizers.
#[derive(Debug, Clone, Default)]
pub struct Tokenizers {
    loaded: HashMap<Wanted, LoadedTokenizers>,
    /// Base of relative paths.
    source: Option<ConfigSource>,
    attempts: Arc<Mutex<Attempts>>,
}

/// Results of loading, apart from the tokenizers of the active configuration. Unchanged files are not loaded again.
#[derive(Debug, Default)]
struct Attempts {
    /// Tokenizers that failed to load.
    refused: HashMap<Wanted, (Stamp, String)>,
    /// Tokenizers of the last configuration that needed new ones; it may be refused for another reason.
    spare: HashMap<Wanted, LoadedTokenizers>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    tokenizer: PathBuf,
    chat_template: Option<PathBuf>,
    format: Option<ContentFormat>,
    engine: ChatEngine,
}

#[derive(Debug, Clone)]
struct LoadedTokenizers {
    stamp: Stamp,
    model: Arc<Model>,
}

/// Error of loading a tokenizer.
#[derive(Debug, Error)]
enum TokenizerError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl PartialEq for Tokenizers {
    fn eq(&self, other: &Self) -> bool {
        let is_same = |(wanted, loaded): (&Wanted, &LoadedTokenizers)| {
            let other = other.loaded.get(wanted);
            other.is_some_and(|other| Arc::ptr_eq(&other.model, &loaded.model))
        };
        self.loaded.len() == other.loaded.len() && self.loaded.iter().all(is_same)
    }
}

impl Eq for Tokenizers {}

impl Tokenizers {
    /// Loads the tokenizers of a configuration. Those with unchanged files are taken from `before`.
    ///
    /// # Errors
    /// Every tokenizer that cannot be loaded. Nothing has changed then.
    pub fn read(
        before: Option<&Self>,
        config: &Config,
        source: &ConfigSource,
    ) -> Result<Self, Vec<Diagnostic>> {
        let mut next = Self {
            loaded: HashMap::new(),
            source: Some(source.clone()),
            attempts: before
                .map(|before| Arc::clone(&before.attempts))
                .unwrap_or_default(),
        };
        let (mut problems, mut spare) = (Vec::new(), HashMap::new());
        for (model, local) in locals(config) {
            let wanted = Wanted::of(local, source);
            if next.loaded.contains_key(&wanted) {
                continue;
            }
            let kept = before.and_then(|before| before.loaded.get(&wanted));
            match next.load(&wanted, kept) {
                Ok(loaded) => {
                    if !kept.is_some_and(|kept| Arc::ptr_eq(&kept.model, &loaded.model)) {
                        spare.insert(wanted.clone(), loaded.clone());
                    }
                    next.loaded.insert(wanted, loaded);
                }
                Err(problem) => problems.push(Diagnostic::new(
                    Code::TokenizerUnavailable,
                    &local.at,
                    format!("model `{}`: {problem}", model.name),
                    Some("correct its files, which are checked again when they change, or set tokenize = \"worker\"".to_owned()),
                )),
            }
        }
        if !spare.is_empty() {
            next.attempts().spare = spare;
        }
        if problems.is_empty() {
            Ok(next)
        } else {
            Err(problems)
        }
    }

    /// Returns a diagnostic for every unavailable tokenizer, or else the warnings.
    #[must_use]
    pub fn problems(config: &Config, source: &ConfigSource) -> Vec<Diagnostic> {
        match Self::read(None, config, source) {
            Ok(read) => read.warnings(config),
            Err(problems) => problems,
        }
    }

    /// Returns a warning for every model whose chats have no tokens.
    #[must_use]
    pub fn warnings(&self, config: &Config) -> Vec<Diagnostic> {
        let warning = |(model, local): (&ModelConfig, &LocalTokenizer)| {
            let renderer = self.of(local)?.engine_renderer()?;
            Some(Diagnostic::new(
                Code::ChatsWithoutTokens,
                &local.at,
                format!(
                    "model `{}`: the engine renders its chats by {renderer}, and not by a chat template: they have no tokens here",
                    model.name
                ),
                Some(renderer_help(renderer, local.engine).to_owned()),
            ))
        };
        locals(config).filter_map(warning).collect()
    }

    fn load(&self, wanted: &Wanted, kept: Option<&LoadedTokenizers>) -> Result<LoadedTokenizers, String> {
        let paths = wanted.paths();
        // Taken before the files are read, so that a concurrent change is noticed the next time.
        let stamp = paths.stamp();
        if let Some(kept) = kept.filter(|kept| kept.stamp == stamp) {
            return Ok(kept.clone());
        }
        let mut attempts = self.attempts();
        let Attempts { refused, spare } = &mut *attempts;
        if let Some(spare) = spare.get(wanted).filter(|spare| spare.stamp == stamp) {
            return Ok(spare.clone());
        }
        if let Some((_, problem)) = refused.get(wanted).filter(|(refused, _)| *refused == stamp) {
            return Err(problem.clone());
        }
        match load(&paths, wanted) {
            Ok(model) => {
                refused.remove(wanted);
                info!(tokenizer = %wanted.tokenizer.display(), "loaded a tokenizer");
                Ok(LoadedTokenizers {
                    stamp,
                    model: Arc::new(model),
                })
            }
            Err(error) => {
                let problem = error_chain(&error);
                // A file that could not be read may be readable the next time, without another stamp.
                if !matches!(error, TokenizerError::File(FileError::Read { .. })) {
                    refused.insert(wanted.clone(), (stamp, problem.clone()));
                }
                Err(problem)
            }
        }
    }

    /// Forgets the tokenizers that were loaded for a refused configuration.
    pub fn forget_spare(&self) {
        self.attempts().spare.clear();
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        // Each map is changed at once.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tokenizer of a model, in a configuration that these were read for.
    #[must_use]
    pub fn of(&self, local: &LocalTokenizer) -> Option<&Arc<Model>> {
        let wanted = Wanted::of(local, self.source.as_ref()?);
        self.loaded.get(&wanted).map(|loaded| &loaded.model)
    }

    /// Returns every file whose folder is to be watched.
    #[must_use]
    pub fn files(config: &Config, source: &ConfigSource) -> Vec<PathBuf> {
        let files = locals(config).flat_map(|(_, local)| Wanted::of(local, source).paths().files());
        files.collect()
    }
}

impl Wanted {
    fn of(local: &LocalTokenizer, source: &ConfigSource) -> Self {
        Self {
            tokenizer: source.resolve(&local.tokenizer),
            chat_template: local.chat_template.as_deref().map(|path| source.resolve(path)),
            format: match local.content_format {
                ContentFormatConfig::Auto => None,
                ContentFormatConfig::String => Some(ContentFormat::String),
                ContentFormatConfig::OpenAi => Some(ContentFormat::OpenAi),
            },
            engine: match local.engine {
                ChatEngineConfig::Vllm => ChatEngine::Vllm,
                ChatEngineConfig::Sglang => ChatEngine::SgLang,
            },
        }
    }

    fn paths(&self) -> FilePaths {
        FilePaths {
            tokenizer: self.tokenizer.clone(),
            chat_template: self.chat_template.clone(),
        }
    }
}

fn locals(config: &Config) -> impl Iterator<Item = (&ModelConfig, &LocalTokenizer)> {
    config.models.iter().filter_map(|model| match &model.tokenize {
        ModelTokenize::Local(local) => Some((model, local)),
        ModelTokenize::As(_) => None,
    })
}

/// Returns the way to the tokens of chats that an engine renders itself, and the router cannot.
fn renderer_help(renderer: EngineRenderer, engine: ChatEngineConfig) -> &'static str {
    match (renderer, engine) {
        (_, ChatEngineConfig::Sglang) => "set tokenize = \"worker\"",
        (EngineRenderer::Harmony, _) => {
            "name a byte-level tokenizer with Harmony's special tokens, or set tokenize = \"render\"; \"worker\" is \
             wrong too, since `/tokenize` renders the chat template"
        }
        (EngineRenderer::MistralCommon | EngineRenderer::OfArchitecture(_), _) => {
            "set tokenize = \"worker\" or \"render\", or name the template as `chat-template` if vLLM runs with \
             `--tokenizer-mode hf`"
        }
    }
}

fn load(paths: &FilePaths, wanted: &Wanted) -> Result<Model, TokenizerError> {
    let files = paths.read()?;
    Ok(Model::load_for(wanted.engine, &files, wanted.format)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_config::parsed;

    const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}}"#;

    #[test]
    fn chats_that_the_engine_renders_itself_are_warned_of_at_the_tokenizers_place() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("tokenizer.json", TOKENIZER);
        let text = "[models.m]\ntokenizer = \".\"\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        let config = parsed(&source, text);
        assert_eq!(Tokenizers::problems(&config, &source), []);
        let before = Tokenizers::read(None, &config, &source).unwrap();
        write("config.json", r#"{"model_type": "gpt_oss"}"#);
        let after = Tokenizers::read(Some(&before), &config, &source).unwrap();
        assert_ne!(before, after, "the file is one of the tokenizer's");
        let warnings = after.warnings(&config);
        let found: Vec<_> = warnings
            .iter()
            .map(|item| (item.primary.location.line, item.code))
            .collect();
        assert_eq!(found, [(2, Code::ChatsWithoutTokens)]);
        assert!(warnings[0].help.as_deref().unwrap().contains("\"render\""));
        assert_eq!(Tokenizers::problems(&config, &source), warnings);
    }

    #[test]
    fn a_tokenizer_with_the_special_tokens_of_gpt_oss_is_not_warned_of() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tokenize/tests/fixtures");
        let text = "[models.m]\ntokenizer = \"gpt-oss\"\n[[pools.a.workers]]\nurl = \"http://a:1\"\n";
        let source = ConfigSource::File(folder.join("conductor.toml"));
        assert_eq!(Tokenizers::problems(&parsed(&source, text), &source), []);
    }

    #[test]
    fn a_tokenizer_of_a_configuration_that_is_refused_for_another_one_is_loaded_once() {
        let folder = tempfile::tempdir().unwrap();
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        let text = "[models.a]\ntokenizer = \"good.json\"\n[models.b]\ntokenizer = \"bad.json\"\n\
                    [pools.p]\nworkers = [{ url = \"http://a:1\" }]\n";
        let config = parsed(&source, text);
        std::fs::write(folder.path().join("good.json"), TOKENIZER).unwrap();
        let active = Tokenizers::default();
        let read = || Tokenizers::read(Some(&active), &config, &source);
        let spare = || {
            let attempts = active.attempts();
            let models = attempts.spare.values().map(|loaded| Arc::as_ptr(&loaded.model));
            models.collect::<Vec<_>>()
        };
        assert_eq!(read().unwrap_err().len(), 1);
        let first = spare();
        assert_eq!(first.len(), 1);
        assert_eq!(read().unwrap_err().len(), 1);
        assert_eq!(spare(), first);
        std::fs::write(folder.path().join("bad.json"), TOKENIZER).unwrap();
        let accepted = read().unwrap();
        let mut models = accepted.loaded.values();
        assert!(models.any(|loaded| Arc::as_ptr(&loaded.model) == first[0]));
        accepted.forget_spare();
        assert!(spare().is_empty());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_read_again_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        let text = "[models.a]\ntokenizer = \"unreadable.json\"\n[models.b]\ntokenizer = \"bad.json\"\n\
                    [pools.p]\nworkers = [{ url = \"http://a:1\" }]\n";
        let config = parsed(&source, text);
        // The kind of failure that the system's administrator has too.
        std::os::unix::fs::symlink("unreadable.json", folder.path().join("unreadable.json")).unwrap();
        std::fs::write(folder.path().join("bad.json"), "{").unwrap();
        let active = Tokenizers::default();
        let problems = Tokenizers::read(Some(&active), &config, &source).unwrap_err();
        assert_eq!(problems.len(), 2);
        let attempts = active.attempts();
        let refused = attempts.refused.keys().map(|wanted| wanted.tokenizer.file_name());
        assert_eq!(refused.collect::<Vec<_>>(), [Some("bad.json".as_ref())]);
    }
}
