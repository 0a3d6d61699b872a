//! Tokenizers that a configuration names, loaded from their configured places. A tokenizer whose files are unchanged is
//! not loaded again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use conductor_config::{
    Code, Config, ContentFormatConfig, Diagnostic, LocalTokenizer, ModelConfig, ModelTokenize,
};
use thiserror::Error;
use tokenize::{ContentFormat, FileError, FilePaths, LoadError, Model, Stamp};
use tracing::info;

use local_files::ConfigSource;
use observability::error_chain;

/// Tokenizers of a configuration. Two values are equal if they share the loaded tokenizers.
#[derive(Debug, Clone, Default)]
pub struct Tokenizers {
    loaded: HashMap<Wanted, LoadedTokenizers>,
    /// Base of relative paths.
    source: Option<ConfigSource>,
    /// Files of tokenizers that failed to load: watched for changes.
    refused: Arc<Mutex<HashMap<Wanted, (Stamp, String)>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    tokenizer: PathBuf,
    chat_template: Option<PathBuf>,
    format: Option<ContentFormat>,
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
            refused: before
                .map(|before| Arc::clone(&before.refused))
                .unwrap_or_default(),
        };
        let mut problems = Vec::new();
        for (model, local) in locals(config) {
            let wanted = Wanted::of(local, source);
            if next.loaded.contains_key(&wanted) {
                continue;
            }
            let kept = before.and_then(|before| before.loaded.get(&wanted));
            match next.load(&wanted, kept) {
                Ok(loaded) => {
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
        if problems.is_empty() {
            Ok(next)
        } else {
            Err(problems)
        }
    }

    /// Returns a diagnostic for every unavailable tokenizer.
    #[must_use]
    pub fn problems(config: &Config, source: &ConfigSource) -> Vec<Diagnostic> {
        Self::read(None, config, source).err().unwrap_or_default()
    }

    fn load(&self, wanted: &Wanted, kept: Option<&LoadedTokenizers>) -> Result<LoadedTokenizers, String> {
        let paths = wanted.paths();
        // Taken before the files are read, so that a concurrent change is noticed the next time.
        let stamp = paths.stamp();
        if let Some(kept) = kept.filter(|kept| kept.stamp == stamp) {
            return Ok(kept.clone());
        }
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, problem)) = refused.get(wanted).filter(|(refused, _)| *refused == stamp) {
            return Err(problem.clone());
        }
        match load(&paths, wanted.format) {
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
                refused.insert(wanted.clone(), (stamp, problem.clone()));
                Err(problem)
            }
        }
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

fn load(paths: &FilePaths, format: Option<ContentFormat>) -> Result<Model, TokenizerError> {
    let files = paths.read()?;
    Ok(Model::load(&files, format)?)
}
