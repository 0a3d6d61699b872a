//! Secret keys outside the file: their locations, and the pools' handling of a client's key.

use std::path::PathBuf;

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::section::Section;
use crate::document::source::Mark;
use crate::document::value::Item;

/// Location of a key, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySource {
    /// Location to read the key from.
    pub place: KeyPlace,
    /// Position in the configuration.
    pub at: Mark,
}

/// Location of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// This environment variable.
    Env(String),
    /// First line of this file; a relative path starts at the configuration's folder.
    File(PathBuf),
}

/// Handling of a client's `Authorization` header for a pool's workers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AuthorizationConfig {
    /// The header is forwarded.
    #[default]
    Pass,
    /// The header is removed.
    Drop,
    /// `Bearer` with this key replaces it.
    Key(KeySource),
}

/// Notation of a key's location.
const FORMS: &str = "{ env = \"NAME\" } or { file = \"PATH\" }";

/// Reads `key = { env = ".." }` or `{ file = ".." }`.
pub(crate) fn read(item: &Item<'_>) -> Option<KeySource> {
    if item.value.as_str().is_some() {
        item.report.push(
            Problem::new(
                Code::WrongType,
                &item.span,
                format!("`{}` must name the source of the key, not contain it", item.key),
            )
            .help(format!(
                "write {FORMS}: an environment variable, or a file's first line"
            )),
        );
        return None;
    }
    let mut section = Section::of(item, format!("`{}`", item.key))?;
    let (env, file) = (section.item("env"), section.item("file"));
    let span = section.span().clone();
    section.finish();
    let source = |place| KeySource {
        place,
        at: item.report.mark(&span),
    };
    let problem = |code, message: String| Problem::new(code, &span, message).help(format!("write {FORMS}"));
    match (env, file) {
        (Some(_), Some(_)) => {
            item.report.push(problem(
                Code::ConflictingKeys,
                format!("`env` and `file` of `{}` exclude each other", item.key),
            ));
            None
        }
        (None, None) => {
            item.report.push(problem(
                Code::MissingKey,
                format!("`{}` does not name the source of the key", item.key),
            ));
            None
        }
        (Some(env), None) => name_of(&env, item.report).map(KeyPlace::Env).map(source),
        (None, Some(file)) => {
            let path = file.text()?;
            if path.text.is_empty() {
                let empty = Problem::new(Code::InvalidValue, &path.span, "the path of the key is empty");
                item.report
                    .push(empty.help("name a file whose first line is the key"));
                return None;
            }
            Some(source(KeyPlace::File(PathBuf::from(path.text))))
        }
    }
}

/// Reads the name of an environment variable. Text with other characters may be a key in the wrong place, so it is not
/// repeated in the message.
fn name_of(env: &Item<'_>, report: &Report) -> Option<String> {
    let name = env.text()?;
    let is_name = !name.text.is_empty()
        && !name.text.starts_with(|c: char| c.is_ascii_digit())
        && name.text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        report.push(
            Problem::new(
                Code::InvalidName,
                &name.span,
                "`env` does not name an environment variable",
            )
            .help("write its name, for example { env = \"OPENAI_API_KEY\" }, and never the key itself"),
        );
        return None;
    }
    Some(name.text.to_owned())
}

/// Reads `authorization` of a pool.
pub(crate) fn read_authorization(item: &Item<'_>) -> AuthorizationConfig {
    match item.value.as_str() {
        Some("pass") => AuthorizationConfig::Pass,
        Some("drop") => AuthorizationConfig::Drop,
        Some(_) => {
            // Not repeated: it may be a key.
            item.report.push(
                Problem::new(
                    Code::InvalidValue,
                    &item.span,
                    "`authorization` is neither \"pass\" nor \"drop\"",
                )
                .help(format!("for a key of the router's own write {FORMS}")),
            );
            AuthorizationConfig::Pass
        }
        None if item.value.as_table().is_none() => item
            .wrong_type_but(
                "a string or a table",
                Some(format!("write \"pass\", \"drop\", {FORMS}")),
            )
            .unwrap_or_default(),
        None => read(item).map_or(AuthorizationConfig::Pass, AuthorizationConfig::Key),
    }
}
