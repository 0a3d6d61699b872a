//! Configuration text without its secrets, for pages and diffs.
//!
//! A configuration should name the places of its keys only. Some keys may stand in the file, and an edit that is
//! refused may contain any. So values are replaced by the names of their keys, generously.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Replacement of a secret.
const HIDDEN: &str = "\"***\"";
/// Replacement in a comment.
const HIDDEN_COMMENT: &str = " ***";
/// Parts of the names of secrets, between `-`, `_` and `.`.
const SECRET_PARTS: [&str; 17] = [
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "key",
    "keys",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "pwd",
    "secret",
    "secrets",
    "token",
];
/// Tables whose values are headers of requests, any of which may be somebody's key.
const HEADERS: [&str; 2] = ["header", "headers"];

/// Returns the text with each secret replaced by `***`. `None` if it is not TOML: then no part of it is known to be
/// harmless.
#[must_use]
pub fn redacted(text: &str) -> Option<String> {
    let tree = DeTable::parse(text).ok()?;
    let mut found = Found::default();
    found.table(tree.get_ref(), false);
    found.comments(text);
    Some(found.replaced(text))
}

/// Places in a text.
#[derive(Debug, Default)]
struct Found {
    secrets: Vec<(Range<usize>, &'static str)>,
    /// Keys and texts, in which a `#` begins no comment.
    quoted: Vec<Range<usize>>,
}

impl Found {
    fn table(&mut self, table: &DeTable<'_>, is_secret: bool) {
        for (key, value) in table {
            self.quoted.push(key.span());
            let name = key.get_ref();
            let is_named = is_secret || is_secret_name(name);
            match value.get_ref() {
                DeValue::Table(headers) if !is_secret && HEADERS.contains(&&**name) => self.headers(headers),
                // `key = { file = "PATH" }` names the place of a key.
                DeValue::Table(place) if is_named && !is_secret => self.place(place),
                _ => self.value(value, is_named),
            }
        }
    }

    /// Handles a table of headers, each with its value or the place of its value.
    fn headers(&mut self, table: &DeTable<'_>) {
        for (name, value) in table {
            self.quoted.push(name.span());
            match value.get_ref() {
                DeValue::Table(place) => self.place(place),
                _ => self.value(value, true),
            }
        }
    }

    /// Handles the table of a key's place.
    fn place(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            self.quoted.push(key.span());
            let is_place = match (&**key.get_ref(), value.get_ref()) {
                ("file", DeValue::String(_)) => true,
                ("env", DeValue::String(name)) => is_variable(name),
                _ => false,
            };
            self.value(value, !is_place);
        }
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, is_secret: bool) {
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, is_secret),
            DeValue::Array(items) => items.iter().for_each(|item| self.value(item, is_secret)),
            DeValue::Boolean(_) => {}
            DeValue::String(text) => {
                self.quoted.push(span.clone());
                if is_secret || has_secret_url(text) {
                    self.secrets.push((span, HIDDEN));
                }
            }
            DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => {
                if is_secret {
                    self.secrets.push((span, HIDDEN));
                }
            }
        }
    }

    /// Handles the values of lines that are commented out.
    fn comments(&mut self, text: &str) {
        self.quoted.sort_by_key(|span| span.start);
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.trim_end().len();
            if let Some(at) = self.comment(text, start..end) {
                self.comment_secrets(text, at..end);
            }
            start += line.len();
        }
    }

    /// Returns the beginning of the comment of a line.
    fn comment(&self, text: &str, line: Range<usize>) -> Option<usize> {
        let marks = text[line.clone()].match_indices('#');
        let mut marks = marks.map(|(at, _)| line.start + at);
        marks.find(|at| {
            let before = self.quoted.partition_point(|span| span.start <= *at);
            // Spans do not overlap.
            before == 0 || !self.quoted[before - 1].contains(at)
        })
    }

    fn comment_secrets(&mut self, text: &str, comment: Range<usize>) {
        let content = &text[comment.clone()];
        let named = content.match_indices(['=', ':']).find(|(at, _)| {
            let name = content[..*at].trim_end().trim_end_matches(['"', '\'']);
            let name = name.rsplit(|c: char| !is_name_character(c)).next();
            is_secret_name(name.unwrap_or_default())
        });
        let secret = named.map(|(at, sign)| at + sign.len());
        let secret = secret.or_else(|| has_secret_url(content).then_some(1));
        if let Some(at) = secret {
            self.secrets
                .push((comment.start + at..comment.end, HIDDEN_COMMENT));
        }
    }

    fn replaced(mut self, text: &str) -> String {
        self.secrets.sort_by_key(|(span, _)| span.start);
        let mut shown = String::with_capacity(text.len());
        let mut from = 0;
        for (span, replacement) in self.secrets {
            shown.push_str(&text[from..span.start]);
            shown.push_str(replacement);
            from = span.end;
        }
        shown.push_str(&text[from..]);
        shown
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn is_secret_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut parts = lower.split(['-', '_', '.']);
    parts.any(|part| SECRET_PARTS.contains(&part))
}

/// Returns `true` for a usual name of an environment variable. Other text may be a key in the wrong place.
fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Returns an address without the part before its last `@`, which may be a user with a password.
pub(crate) fn without_user(address: &str) -> Cow<'_, str> {
    match address.rsplit_once('@') {
        Some((_, rest)) => format!("...@{rest}").into(),
        None => address.into(),
    }
}

/// Returns `true` for a text that has a URL with a user (and so maybe a password), or with a secret in its query. An
/// `@` anywhere counts, because a password may have the characters that end an authority.
fn has_secret_url(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let url = rest.split(' ').next().unwrap_or_default();
        let mut pairs = url.split(['?', '&', '#']).skip(1);
        url.contains('@') || pairs.any(|pair| is_secret_name(pair.split('=').next().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of secret, each with `hush` in it.
    const SECRETS: &str = r#"
api-key = "hush1" # also written key = "hush2"
#admin-api-key = "hush3"
# admin_password: hush4
[server]
listen = "127.0.0.1:8080" # not a secret
admin-key-for-reads = true
admin-api-key = { env = "hush5" }
[indexer]
api-key = 'hush#6'
[clients.search]
key-sha256 = ["hush7", "hush8"]
keys = { main = { text = "hush9" } }
[kv-events.curve]
client-key = """
hush10
# hush11
"""
[[routes]]
match = { model = "a#b", header = { x-team = "hush12", "x#y" = "hush13" } }
pool = "chat"
[pools.chat]
authorization = "hush14"
[[pools.chat.workers]]
url = "http://user:hush15@gpu:1/" # see http://user:hush16@gpu:1
[replicas]
servers = ["nats://user:hush/20@bus:4222", "nats://bus:4222?auth_token=hush21", "nats://u:hush?23@b", "nats://u:hush#24@b"]
pwd = "hush22"
db-passwd = "hush25"
auth = "hush26"
[traces.headers]
x-team = "hush18"
x-lower = { env = "hush19" }
x-placed = { env = "TEAM" }
[cors]
headers = ["x-plain"]
[policies.x]
params = { token = 4711, tokens = 12, "my.secret" = "hush17" }
"#;

    #[test]
    fn no_secret_is_left_in_values_and_comments() {
        let shown = redacted(SECRETS).expect("it is TOML");
        assert!(!shown.contains("hush") && !shown.contains("4711"), "{shown}");
        for kept in [
            "listen = \"127.0.0.1:8080\" # not a secret",
            "admin-key-for-reads = true",
            "model = \"a#b\"",
            "tokens = 12",
            "pool = \"chat\"",
            "x-placed = { env = \"TEAM\" }",
            "headers = [\"x-plain\"]",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        assert_eq!(DeTable::parse(&shown).err(), None, "{shown}");
    }

    #[test]
    fn places_of_keys_are_no_secrets() {
        let text =
            "[server]\nadmin-api-key = { file = \"admin.key\" }\n[indexer]\napi-key = { env = \"KEY_1\" }\n";
        assert_eq!(redacted(text).as_deref(), Some(text));
    }

    #[test]
    fn texts_without_secrets_are_unchanged() {
        let text = "# key takeaway\n[pools.chat]\nqueue = 3 # waits\n\n[[routes]]\npool = 'chat'\n";
        assert_eq!(redacted(text).as_deref(), Some(text));
    }

    #[test]
    fn a_text_that_is_no_toml_is_not_shown() {
        assert_eq!(redacted("key = \"hush\"\n[["), None);
    }

    #[test]
    fn the_annotated_configuration_keeps_its_lines() {
        let text = include_str!("../../../../config/conductor.toml");
        let shown = redacted(text).expect("it is TOML");
        assert_eq!(shown.lines().count(), text.lines().count());
        assert!(
            !shown.contains("9f86d081884c7d65"),
            "hashes of keys are hidden too"
        );
    }
}
