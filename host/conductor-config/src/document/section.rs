//! Section reader: reads a table key by key. Keys that were never read are unknown, so there is no list of known keys
//! to maintain.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::document::code::Code;
use crate::document::report::{Problem, Report};
use crate::document::source::Span;
use crate::document::suggest;
use crate::document::value::{Item, Text};

/// Keys of the file itself. Below a header they belong to that header's table, a common TOML mistake.
const TOP_LEVEL_KEYS: &[&str] = &["policy-dir", "policy-dir-allow", "policy-cache"];

/// A table and the keys read from it. Call [`Section::finish`] at the end.
#[derive(Debug)]
pub(crate) struct Section<'t> {
    report: &'t Report,
    title: String,
    table: &'t DeTable<'t>,
    span: Span,
    read_keys: Vec<&'static str>,
    /// Former names of keys; suggestions omit them.
    former: Vec<&'static str>,
}

impl<'t> Section<'t> {
    /// Returns the section of the whole file.
    pub(crate) fn root(table: &'t DeTable<'t>, report: &'t Report) -> Self {
        Self {
            report,
            title: "the file".to_owned(),
            table,
            span: 0..0,
            read_keys: Vec::new(),
            former: Vec::new(),
        }
    }

    /// Returns the section of a table value; `title` is its name in messages.
    pub(crate) fn of(item: &Item<'t>, title: String) -> Option<Self> {
        match item.value {
            DeValue::Table(table) => Some(Self {
                report: item.report,
                title,
                table,
                span: item.span.clone(),
                read_keys: Vec::new(),
                former: Vec::new(),
            }),
            _ => {
                let help = title
                    .starts_with("`[")
                    .then(|| format!("head it with {title}, its keys below"));
                item.wrong_type_but("a table", help)
            }
        }
    }

    /// Returns one section per table of a list of tables.
    pub(crate) fn each(item: &Item<'t>, title: &str) -> Vec<Self> {
        match item.value {
            DeValue::Array(elements) => elements
                .iter()
                .filter_map(|element| {
                    Self::of(&item.element(element.get_ref(), element.span()), title.to_owned())
                })
                .collect(),
            _ => {
                item.report.push(
                    Problem::new(
                        Code::WrongType,
                        &item.span,
                        format!("`{}` must be a list of tables", item.key),
                    )
                    .help(format!("head each one with {title}, in double brackets")),
                );
                Vec::new()
            }
        }
    }

    pub(crate) fn report(&self) -> &'t Report {
        self.report
    }

    /// Returns its position: its header, or all of an inline table.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the value of a key, if it is set.
    pub(crate) fn item(&mut self, key: &'static str) -> Option<Item<'t>> {
        if !self.read_keys.contains(&key) {
            self.read_keys.push(key);
        }
        let (name, value) = self.table.get_key_value(key)?;
        Some(self.entry(name, value))
    }

    /// Returns the value of a former name of a key, if it is set.
    pub(crate) fn former_item(&mut self, former: &'static str) -> Option<Item<'t>> {
        self.former.push(former);
        let (name, value) = self.table.get_key_value(former)?;
        Some(self.entry(name, value))
    }

    /// Returns the value of a required key.
    pub(crate) fn required(&mut self, key: &'static str, example: &str) -> Option<Item<'t>> {
        let item = self.item(key);
        if item.is_none() {
            self.report.push(
                Problem::new(
                    Code::MissingKey,
                    &self.span,
                    format!("{} needs `{key}`", self.title),
                )
                .help(format!("add {key} = {example}")),
            );
        }
        item
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<Text<'t>> {
        self.item(key)?.text()
    }

    pub(crate) fn texts(&mut self, key: &'static str) -> Vec<Text<'t>> {
        self.item(key).and_then(|item| item.texts()).unwrap_or_default()
    }

    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, default: T, choices: &[(&str, T)]) -> T {
        self.item(key)
            .and_then(|item| item.choice(choices))
            .unwrap_or(default)
    }

    pub(crate) fn count(&mut self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        self.item(key)
            .and_then(|item| item.count(&range))
            .unwrap_or(default)
    }

    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        self.item(key)
            .and_then(|item| item.duration(&range))
            .unwrap_or(default)
    }

    pub(crate) fn size(&mut self, key: &'static str, default: u64, range: RangeInclusive<u64>) -> u64 {
        self.item(key)
            .and_then(|item| item.size(&range))
            .unwrap_or(default)
    }

    /// Returns a table below this one.
    pub(crate) fn section(&mut self, key: &'static str, title: &str) -> Option<Self> {
        Self::of(&self.item(key)?, title.to_owned())
    }

    /// Returns every key and its value in the order of the file, for tables with user-defined keys.
    pub(crate) fn entries(&self) -> Vec<Item<'t>> {
        let mut entries: Vec<Item<'t>> = self
            .table
            .iter()
            .map(|(name, value)| self.entry(name, value))
            .collect();
        entries.sort_by_key(|entry| entry.key_span.start);
        entries
    }

    /// Reports every key that was not read.
    pub(crate) fn finish(self) {
        for entry in self.entries() {
            let key = entry.key.as_str();
            if self.read_keys.contains(&key) || self.former.contains(&key) {
                continue;
            }
            if self.report.is_full() {
                break;
            }
            let help = if TOP_LEVEL_KEYS.contains(&key) {
                Some(format!(
                    "`{key}` is a key of the file itself: move it above the first [header]"
                ))
            } else {
                suggest::help(key, self.read_keys.iter().copied())
            };
            self.report.push(
                Problem::new(
                    Code::UnknownKey,
                    &entry.key_span,
                    format!("unknown key `{key}` in {}", self.title),
                )
                .maybe_help(help),
            );
        }
    }

    fn entry(&self, name: &'t Spanned<DeString<'t>>, value: &'t Spanned<DeValue<'t>>) -> Item<'t> {
        Item {
            report: self.report,
            key: name.get_ref().to_string(),
            key_span: name.span(),
            value: value.get_ref(),
            span: value.span(),
            is_element: false,
        }
    }
}
