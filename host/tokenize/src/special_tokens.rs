//! Special tokens of a tokenizer's configuration, in the order in which `transformers` adds them.

use minijinja::value::{Value, ValueKind};
use serde::Deserialize;
use tokenizers::AddedToken;

/// Names of the common special tokens.
const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];
const EXTRA: &str = "extra_special_tokens";
/// Former name of the extra tokens.
const ADDITIONAL: &str = "additional_special_tokens";

/// Added token as it is configured.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AddedTokenField {
    pub(crate) content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    /// Absent for special tokens: not; for others: set.
    normalized: Option<bool>,
    special: bool,
}

impl AddedTokenField {
    fn of_text(content: &str) -> Self {
        Self {
            content: content.to_owned(),
            special: true,
            ..Self::default()
        }
    }

    /// Returns the token of a text, or of a dictionary with flags.
    fn of(value: &Value) -> Option<Self> {
        if let Some(text) = value.as_str() {
            return Some(Self::of_text(text));
        }
        let field = |name| value.get_attr(name).ok();
        let flag = |name| field(name).is_some_and(|value| value.is_true());
        let normalized = field("normalized").filter(|value| value.kind() == ValueKind::Bool);
        Some(Self {
            content: field("content")?.as_str()?.to_owned(),
            single_word: flag("single_word"),
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            normalized: normalized.map(|value| value.is_true()),
            special: flag("special"),
        })
    }

    /// Returns the token as a special one.
    pub(crate) fn special(&self) -> Self {
        Self {
            special: true,
            ..self.clone()
        }
    }

    pub(crate) fn token(&self) -> AddedToken {
        AddedToken::from(self.content.clone(), self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized.unwrap_or(!self.special))
    }
}

/// Special tokens.
#[derive(Debug, Default)]
pub(crate) struct SpecialTokens {
    /// Tokens with a name in templates.
    named: Vec<(String, AddedTokenField)>,
    extra: Vec<AddedTokenField>,
}

impl SpecialTokens {
    /// Reads the fields of `tokenizer_config.json`, and of `special_tokens_map.json`, which override them.
    pub(crate) fn of(config: &Value, map: &Value) -> Self {
        let field = |of: &Value, name: &str| of.get_attr(name).ok().filter(Value::is_true);
        let own = |name: &str| field(map, name).or_else(|| field(config, name));
        let mut tokens = Self::default();
        for name in NAMES {
            let token = own(name).as_ref().and_then(AddedTokenField::of);
            tokens
                .named
                .extend(token.map(|token| (name.to_owned(), token.special())));
        }
        tokens.name_all(config, |name| own(name));
        tokens.name_all(map, |name| {
            field(config, name).is_none().then(|| own(name)).flatten()
        });
        let mut lists: Vec<Value> = field(config, EXTRA)
            .or_else(|| field(config, ADDITIONAL))
            .into_iter()
            .collect();
        lists.extend(field(map, EXTRA));
        if lists.is_empty() {
            lists.extend(field(map, ADDITIONAL));
        }
        for list in lists {
            match list.kind() {
                ValueKind::Map => tokens.name_entries(&list),
                _ => {
                    let items = list.try_iter().into_iter().flatten();
                    tokens
                        .extra
                        .extend(items.filter_map(|item| AddedTokenField::of(&item)));
                }
            }
        }
        tokens
    }

    /// Adds the tokens of a model's own names, such as `image_token`.
    fn name_all(&mut self, fields: &Value, token: impl Fn(&str) -> Option<Value>) {
        let is_token = |value: &Value| {
            value.as_str().is_some()
                || value
                    .get_attr("__type")
                    .is_ok_and(|kind| kind.as_str() == Some("AddedToken"))
        };
        for key in names(fields) {
            let is_own = key.ends_with("_token") && !NAMES.contains(&&*key);
            let token = token(&key).filter(|value| is_own && is_token(value));
            let token = token.as_ref().and_then(AddedTokenField::of);
            self.named.extend(token.map(|token| (key, token.special())));
        }
    }

    fn name_entries(&mut self, entries: &Value) {
        for key in names(entries) {
            let token = entries.get_attr(&key).ok().as_ref().and_then(AddedTokenField::of);
            self.named.extend(token.map(|token| (key, token.special())));
        }
    }

    /// Returns the tokens with their names in templates.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &AddedTokenField)> {
        self.named.iter().map(|(name, token)| (&**name, token))
    }

    /// Returns all tokens, in the order in which they are added.
    pub(crate) fn all(&self) -> impl Iterator<Item = &AddedTokenField> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }
}

/// Returns the keys of a dictionary.
fn names(of: &Value) -> Vec<String> {
    let keys = of.try_iter().into_iter().flatten();
    match of.kind() {
        ValueKind::Map => keys.filter_map(|key| key.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}
