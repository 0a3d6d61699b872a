//! Tokenizer files of a model, in the layout of the engines' model folders.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use thiserror::Error;

/// Longest file, in bytes: several times the largest known tokenizer.
const LONGEST: u64 = 256 << 20;

const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const TEMPLATE: &str = "chat_template.jinja";
const MODEL_CONFIG: &str = "config.json";
const PROCESSOR_TEMPLATE: &str = "chat_template.json";
const MORE_TEMPLATES: &str = "additional_chat_templates";

/// Location of a model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePaths {
    /// The model's folder, or a `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// A chat template that replaces all in the folder.
    pub chat_template: Option<PathBuf>,
}

/// Contents of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `tokenizer_config.json`.
    pub config: Option<Vec<u8>>,
    /// `special_tokens_map.json`.
    pub special_tokens: Option<Vec<u8>>,
    /// `config.json`.
    pub model_config: Option<Vec<u8>>,
    /// `chat_template.json`, if there is no `chat_template.jinja`.
    pub processor_template: Option<Vec<u8>>,
    /// Set if the folder has Mistral's own weights and tokenizer.
    pub has_mistral_format: bool,
    /// Chat templates in files of their own, by name.
    pub templates: BTreeMap<String, String>,
    /// Set if these templates replace all others.
    pub only_these_templates: bool,
}

/// Stamps of the files; equal if no file was written or replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp(Vec<Option<FileStamp>>);

/// Inode, size and times of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    place: (u64, u64),
    size: u64,
    written: SystemTime,
    /// Time of the last change of content or metadata, in seconds and nanoseconds: no user sets it. Copies that keep
    /// modification times may put other bytes of equal size and time into the file.
    changed: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            place: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            written: metadata.modified().ok()?,
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// A file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// An I/O error.
    #[error("read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path is no regular file.
    #[error("read `{}`: it is no file", .0.display())]
    NoFile(PathBuf),
    /// Longer than any tokenizer.
    #[error("read `{}`: it has more than {LONGEST} bytes", .0.display())]
    TooLong(PathBuf),
    /// A template is not UTF-8.
    #[error("read `{}`: it is not UTF-8", .0.display())]
    NoText(PathBuf),
}

impl FilePaths {
    /// Returns the folder with the other files; `None` for a tokenizer with another file name.
    fn folder(&self) -> Option<&Path> {
        if self.tokenizer.is_dir() {
            return Some(&self.tokenizer);
        }
        let is_models = self.tokenizer.file_name().is_some_and(|name| name == TOKENIZER);
        self.tokenizer.parent().filter(|_| is_models)
    }

    fn tokenizer_file(&self) -> PathBuf {
        if self.tokenizer.is_dir() {
            self.tokenizer.join(TOKENIZER)
        } else {
            self.tokenizer.clone()
        }
    }

    /// Returns the files whose folders must be watched for changes.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let template = self.chat_template.clone();
        std::iter::once(self.tokenizer_file()).chain(template).collect()
    }

    /// Returns the current state of the files, without reading them.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let mut paths = vec![self.tokenizer_file()];
        paths.extend(self.chat_template.clone());
        if let Some(folder) = self.folder() {
            let names = [
                CONFIG,
                SPECIAL_TOKENS,
                TEMPLATE,
                PROCESSOR_TEMPLATE,
                MODEL_CONFIG,
                MORE_TEMPLATES,
            ];
            paths.extend(names.map(|name| folder.join(name)));
            paths.extend(more_templates(folder));
            paths.extend(mistral_files(folder).into_iter().flatten());
        }
        Stamp(paths.iter().map(|path| FileStamp::of(path)).collect())
    }

    /// Reads the available files; only the tokenizer and a configured template are required.
    ///
    /// # Errors
    /// [`FileError`] for the first existing file that cannot be read.
    pub fn read(&self) -> Result<Files, FileError> {
        let mut files = Files {
            tokenizer: read(&self.tokenizer_file())?,
            config: None,
            special_tokens: None,
            model_config: None,
            processor_template: None,
            has_mistral_format: false,
            templates: BTreeMap::new(),
            only_these_templates: self.chat_template.is_some(),
        };
        if let Some(folder) = self.folder() {
            files.config = if_there(&folder.join(CONFIG))?;
            files.special_tokens = if_there(&folder.join(SPECIAL_TOKENS))?;
            files.model_config = if_there(&folder.join(MODEL_CONFIG))?;
            files.has_mistral_format = mistral_files(folder).iter().all(Option::is_some);
            if self.chat_template.is_none() {
                let named = more_templates(folder).into_iter().filter_map(|path| {
                    let name = path.file_stem()?.to_str()?.to_owned();
                    Some((name, path))
                });
                let own = (String::from("default"), folder.join(TEMPLATE));
                for (name, path) in named.chain([own]) {
                    if let Some(template) = if_there(&path)? {
                        files.templates.insert(name, text(template, &path)?);
                    }
                }
                if !files.templates.contains_key("default") {
                    files.processor_template = if_there(&folder.join(PROCESSOR_TEMPLATE))?;
                }
            }
        }
        if let Some(path) = &self.chat_template {
            files
                .templates
                .insert("default".to_owned(), text(read(path)?, path)?);
        }
        Ok(files)
    }
}

fn more_templates(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.join(MORE_TEMPLATES))
        .into_iter()
        .flatten()
        .flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "jinja"))
        .collect();
    paths.sort();
    paths
}

/// Returns one file of Mistral's own weights, and one of its own tokenizer.
fn mistral_files(folder: &Path) -> [Option<PathBuf>; 2] {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: [Option<PathBuf>; 2] = [None, None];
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_weights = name.starts_with("consolidated") && name.ends_with(".safetensors");
        let is_tokenizer = name == "tekken.json" || name.starts_with("tokenizer.model.v");
        for (place, is_kind) in found.iter_mut().zip([is_weights, is_tokenizer]) {
            // The order of a folder is not fixed.
            if is_kind && place.as_ref().is_none_or(|path| entry.path() < *path) {
                *place = Some(entry.path());
            }
        }
    }
    found
}

fn text(bytes: Vec<u8>, path: &Path) -> Result<String, FileError> {
    String::from_utf8(bytes).map_err(|_| FileError::NoText(path.to_owned()))
}

fn if_there(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(FileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    // Checked before opening: opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(FileError::NoFile(path.to_owned()));
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(FileError::TooLong(path.to_owned()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_of_equal_size_and_time_have_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (file, fresh) = (folder.path().join(TOKENIZER), folder.path().join("fresh"));
        let paths = FilePaths {
            tokenizer: file.clone(),
            chat_template: None,
        };
        let write = |path: &Path, text: &str| {
            fs::write(path, text).unwrap();
            let written = File::options().write(true).open(path).unwrap();
            written.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write(&file, "one");
        let first = paths.stamp();
        assert_eq!(first, paths.stamp());
        write(&fresh, "two");
        fs::rename(&fresh, &file).unwrap();
        assert_ne!(first, paths.stamp());
    }
}
