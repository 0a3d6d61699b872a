//! The annotated configuration file, read as a list of keys: `config/conductor.toml` is the source of the book's
//! reference.

use std::mem;

/// Table of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct SettingsTable {
    /// Header, such as `[server]` or `[[pools.main.workers]]`; empty for the keys before the first one.
    pub header: String,
    /// Comment before the header.
    pub about: String,
    /// Keys in the order of the file.
    pub keys: Vec<Setting>,
}

/// Key of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name without the table.
    pub name: String,
    /// Value in the file: the default, or an example.
    pub value: String,
    /// Default; `None` if the key is absent by default.
    pub default: Option<String>,
    /// Comment before it and the keys beside it.
    pub about: String,
}

/// Mark of a key, or of a whole table, that is read only at the start.
const RESTART: &str = "(restart)";
/// Mark behind an optional key whose value is its default. With `: VALUE` after it, that is the default.
const DEFAULT: &str = "default";

impl Setting {
    /// Returns the kind of its value.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        let text = self.value.trim_matches('"');
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let has_number = unit.len() < text.len();
        match self.value.as_bytes() {
            [b'"', ..] if has_number && matches!(unit, "us" | "ms" | "s" | "m" | "h" | "d") => "duration",
            [b'"', ..] if has_number && matches!(unit, "B" | "KiB" | "MiB" | "GiB") => "size",
            [b'"', ..] => "string",
            [b'[', ..] => "array",
            [b'{', ..] => "table",
            b"true" | b"false" => "boolean",
            _ if self.value.contains('.') => "float",
            _ => "integer",
        }
    }

    /// Returns true if an edit applies at the next start.
    #[must_use]
    pub fn needs_restart(&self, table: &SettingsTable) -> bool {
        self.about.contains(RESTART) || table.about.contains(RESTART)
    }
}

/// Reads the file: keys that are set, and keys in comments that begin with `#` and no space.
#[must_use]
pub fn tables(text: &str) -> Vec<SettingsTable> {
    let mut found = vec![SettingsTable {
        header: String::new(),
        about: String::new(),
        keys: Vec::new(),
    }];
    let (mut comment, mut is_open) = (String::new(), false);
    for line in text.lines() {
        let code = line.strip_prefix('#').unwrap_or(line);
        if line.is_empty() {
            comment.clear();
            is_open = false;
        } else if line == "#" || line.starts_with("# ") {
            if !is_open {
                comment.clear();
            }
            is_open = true;
            comment.push_str(line.trim_start_matches('#'));
        } else if code.starts_with('[') {
            found.push(SettingsTable {
                header: code.to_owned(),
                about: mem::take(&mut comment).trim().to_owned(),
                keys: Vec::new(),
            });
            is_open = false;
        } else if let Some((name, value)) = code.split_once(" = ") {
            let (value, inline) = split_comment(value);
            let stated = stated_default(value, inline);
            let about = match inline {
                "" => comment.trim(),
                _ if stated.is_some() => comment.trim(),
                inline => inline,
            };
            let is_set = !line.starts_with('#');
            let table = found.last_mut().expect("there is one from the beginning");
            table.keys.push(Setting {
                name: name.to_owned(),
                value: value.to_owned(),
                default: if is_set { Some(value) } else { stated }.map(str::to_owned),
                about: about.to_owned(),
            });
            is_open = false;
        }
    }
    found.retain(|table| !table.header.is_empty() || !table.keys.is_empty());
    found
}

/// Returns the default that the comment behind a value states.
fn stated_default<'t>(value: &'t str, inline: &'t str) -> Option<&'t str> {
    match inline.strip_prefix(DEFAULT)? {
        "" => Some(value),
        rest => rest.strip_prefix(": "),
    }
}

/// Returns a value without the comment behind it, and the comment.
fn split_comment(value: &str) -> (&str, &str) {
    let mut is_quoted = false;
    for (at, c) in value.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted => return (value[..at].trim_end(), value[at + 1..].trim()),
            _ => {}
        }
    }
    (value, "")
}
