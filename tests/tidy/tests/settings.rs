//! The reference of the configuration: the page of the book is derived from the annotated file.

use std::fmt::Write;
use std::{env, fs};

use tidy::root;
use tidy::settings::{Setting, SettingsTable, tables};

const SOURCE: &str = "config/conductor.toml";
const PAGE: &str = "host/docs/operation/configuration.md";
const COLUMNS: usize = 118;

/// Returns a text in lines of limited length. Code spans are not broken.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line, mut is_code) = (String::new(), String::new(), false);
    for word in text.split_whitespace() {
        if !is_code && !line.is_empty() && line.len() + 1 + word.len() > COLUMNS {
            let _ = writeln!(lines, "{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        is_code ^= word.matches('`').count() % 2 == 1;
    }
    lines + &line
}

/// Returns a comment as Markdown: quoted words and file names become code, characters of Markdown are escaped.
fn markdown(comment: &str) -> String {
    let words = comment.split_whitespace().map(|word| {
        let core = word.trim_matches(|c: char| matches!(c, '(' | ')' | ',' | '.' | ':' | ';'));
        let is_code = core.starts_with('"') && core.ends_with('"') && core.len() > 1
            || core.contains('/') && core.ends_with(".md")
            || core.starts_with('[') && core.ends_with(']')
            || core.contains(['*', '_', '<', '>']);
        if is_code && !core.contains('`') && core.len() > 1 {
            word.replace(core, &format!("`{core}`"))
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn entry(page: &mut String, table: &SettingsTable, path: &str, key: &Setting) {
    let name = if path.is_empty() {
        key.name.clone()
    } else {
        format!("{path}.{}", key.name)
    };
    let change = if key.needs_restart(table) {
        "read at the start"
    } else {
        "live"
    };
    let default = match &key.default {
        Some(default) if default.len() < COLUMNS - 30 => format!("default `{default}`"),
        Some(_) => "default in the file".to_owned(),
        None => "absent by default".to_owned(),
    };
    let is_example = key.default.as_ref() != Some(&key.value) && key.value.len() + name.len() <= 80;
    let example = if is_example {
        format!(", for example `{}`", key.value)
    } else {
        String::new()
    };
    let facts = wrapped(&format!("{}, {default}{example}; {change}.", key.kind()));
    let _ = writeln!(page, "\n### `{name}`\n\n{facts}");
    if !key.about.is_empty() {
        let _ = writeln!(page, "\n{}", wrapped(&markdown(&key.about)));
    }
}

/// Returns the tables, each header and each key once.
fn merged(text: &str) -> Vec<SettingsTable> {
    let mut all: Vec<SettingsTable> = Vec::new();
    for table in tables(text) {
        let Some(first) = all.iter_mut().find(|first| first.header == table.header) else {
            all.push(table);
            continue;
        };
        for key in table.keys {
            if first.keys.iter().all(|known| known.name != key.name) {
                first.keys.push(key);
            }
        }
    }
    all
}

fn reference(text: &str) -> String {
    let mut page = "# Reference of the configuration\n\n    UPDATE_SETTINGS=1 cargo nextest run -p tidy reference_of_the_configuration\n\n\
        The command writes this page from\n[config/conductor.toml](../../../config/conductor.toml), \
        which has every key.\n\
        The default of a key in an optional table applies once the table is there.\n\
        `conductor check` reports unknown keys, wrong types and values out of range with line and column.\n\n\
        An edit of a `live` key applies to new requests at once ([reload](reload.md)).\n"
        .to_owned();
    for table in merged(text) {
        let title = if table.header.is_empty() {
            "Keys before the first table".to_owned()
        } else {
            format!("`{}`", table.header)
        };
        let _ = writeln!(page, "\n## {title}");
        if !table.about.is_empty() {
            let _ = writeln!(page, "\n{}", wrapped(&markdown(&table.about)));
        }
        let path = table.header.trim_matches(['[', ']']).to_owned();
        for key in &table.keys {
            entry(&mut page, &table, &path, key);
        }
    }
    page
}

#[test]
fn the_reference_of_the_configuration_is_what_the_annotated_file_says() {
    let text = fs::read_to_string(root().join(SOURCE)).expect("the file is there");
    let written = reference(&text);
    let path = root().join(PAGE);
    if env::var_os("UPDATE_SETTINGS").is_some() {
        fs::write(&path, &written).expect("the page can be written");
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(present == written, "run with UPDATE_SETTINGS=1 to write {PAGE}");
}

#[test]
fn every_key_of_the_annotated_file_has_a_kind_and_a_meaning() {
    let text = fs::read_to_string(root().join(SOURCE)).expect("the file is there");
    let tables = merged(&text);
    let keys: Vec<_> = tables
        .iter()
        .flat_map(|table| table.keys.iter().map(move |key| (table, key)))
        .collect();
    assert!(keys.len() > 200, "{} keys were found", keys.len());
    let without: Vec<_> = keys
        .iter()
        .filter(|(table, key)| key.about.is_empty() && table.about.is_empty())
        .map(|(table, key)| format!("{} {}", table.header, key.name))
        .collect();
    assert!(without.is_empty(), "write a comment for {without:?}");
}

#[test]
fn keys_comments_and_marks_are_read() {
    let found = tables(
        "# About a.\n# (restart)\na = 1\n#b = \"2s\"\n\n# A table.\n#[x.y]\n# About c.\n#c = [1] # one\n\
         # About d.\n#d = 2 # default\n#e = \"on\" # default: \"off\"\n",
    );
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].keys[0].about, "About a. (restart)");
    assert!(found[0].keys.iter().all(|key| key.needs_restart(&found[0])));
    assert_eq!(found[0].keys[1].kind(), "duration");
    let defaults = found
        .iter()
        .flat_map(|table| table.keys.iter().map(|key| key.default.as_deref()));
    assert_eq!(
        defaults.collect::<Vec<_>>(),
        [Some("1"), None, None, Some("2"), Some("\"off\"")]
    );
    assert!(found[1].keys[1..].iter().all(|key| key.about == "About d."));
    assert_eq!((&*found[1].header, &*found[1].about), ("[x.y]", "A table."));
    assert_eq!(
        (&*found[1].keys[0].value, &*found[1].keys[0].about),
        ("[1]", "one")
    );
    assert!(!found[1].keys[0].needs_restart(&found[1]));
}
