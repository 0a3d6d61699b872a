//! Probes of joined texts: the parts are read from renderings, and chats of many contents are compared with theirs.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use aho_corasick::AhoCorasick;

use super::{JoinedParts, PlainMessage};
use crate::chat::Chat;
use crate::clock_use::ClockUse;
use crate::model::Model;

/// Contents that no template mentions.
const SENTINELS: [&str; 4] = ["q7ZxKv", "W9pLjt", "Hd3RbY", "m5CfNu"];
/// Length of the longest probed content in bytes.
const LONG: usize = 20_000;
/// A day on which no date is that of the parts.
const DAY: Duration = Duration::from_secs(400 * 86_400);

const CONTENTS: [&str; 12] = [
    "Hello",
    "What is 2 + 2?",
    "a\n\nb\tc  d",
    "!\"#$%&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~",
    "{\"a\": [1, 2.5, null, true], \"b\": \"c\\n\"}",
    "<tag attribute=\"x\">text</tag> &amp; {{ x }} {% y %} {# z #}",
    "é 漢字 \u{1f600} \u{200d} \u{feff}x",
    "```rust\nfn main() {}\n```",
    "https://example.org/?a=b&c=d#e",
    "CAPITALS and lower, one. Two! Three? four; five",
    "x",
    "z\u{1}\u{8}x\u{1b}[0m\u{85}y\u{2028}z\u{7f}z",
];

/// Reads the parts of a model's template for chats without tools. Returns `None` if they are not always the same.
pub(crate) fn parts(model: &Model) -> Option<JoinedParts> {
    let (template, facts) = model.templates().choose(false)?;
    if facts.now != ClockUse::Never {
        return None;
    }
    let literals = model.templates().literals(template)?;
    let [u, a, v, s] = SENTINELS;
    let [first, answer, question, end] = around(model, &[("user", u), ("assistant", a), ("user", v)])?;
    let with_lead = around(
        model,
        &[("system", s), ("user", u), ("assistant", a), ("user", v)],
    );
    let mut parts = JoinedParts {
        template: template.to_owned(),
        lead: with_lead.map(|[start, between, ..]: [String; 5]| [start, between]),
        first,
        answer,
        question,
        end,
        markers: None,
    };
    let long = "word 7 ".repeat(LONG / 7) + "end";
    if !is_right(&parts, model, &conversations(&long, false)) {
        return None;
    }
    if !is_right(&parts, model, &conversations(&long, true)) {
        parts.lead = None;
    }
    let marks = |literal: &&String| {
        let texts = with_literal(literal);
        !is_right(&parts, model, &turned(&texts, parts.lead.is_some()))
    };
    let mut markers: Vec<_> = literals.single.iter().filter(marks).collect();
    for [first, last] in &literals.pairs {
        let chats = with_pair([first, last], parts.lead.is_some());
        let is_known = markers.contains(&first) || markers.contains(&last);
        let chats = chats.iter().map(Vec::as_slice);
        if !is_known && !chats.map(texts).all(|chat| is_right(&parts, model, &[chat])) {
            markers.push(first);
        }
    }
    if !markers.is_empty() {
        parts.markers = Some(AhoCorasick::new(markers).ok()?);
    }
    Some(parts)
}

type RoleAndText<'a> = (&'static str, &'a str);

fn render(model: &Model, messages: &[RoleAndText<'_>], now: SystemTime) -> Option<String> {
    let json: Vec<_> = messages
        .iter()
        .map(|(role, content)| serde_json::json!({"role": role, "content": content}))
        .collect();
    let json = serde_json::to_string(&json).ok()?;
    let chat = Chat {
        messages: &json,
        ..Chat::default()
    };
    Some(model.render(&chat, now).ok()?.into_text())
}

/// Returns the texts around the contents of a chat, each of which must be there once, in order.
fn around<const N: usize>(model: &Model, messages: &[RoleAndText<'_>]) -> Option<[String; N]> {
    let text = render(model, messages, SystemTime::UNIX_EPOCH)?;
    let mut parts = Vec::new();
    let mut rest = &*text;
    for (_, content) in messages {
        let (before, after) = rest.split_once(content)?;
        parts.push(before.to_owned());
        rest = after;
    }
    let is_once = SENTINELS
        .iter()
        .all(|sentinel| text.matches(sentinel).count() <= 1);
    parts.push(rest.to_owned());
    is_once.then_some(parts)?.try_into().ok()
}

/// Returns `true` if the joined texts of these chats are their renderings.
fn is_right(parts: &JoinedParts, model: &Model, chats: &[Vec<RoleAndText<'_>>]) -> bool {
    chats.iter().all(|chat| {
        let plain: Vec<_> = chat
            .iter()
            .map(|(role, content)| PlainMessage {
                role: Cow::Borrowed(role),
                content: Cow::Borrowed(content),
            })
            .collect();
        // A chat that is not joined is rendered.
        let joined = parts.join(&plain);
        joined.is_none() || joined == render(model, chat, SystemTime::UNIX_EPOCH + DAY)
    })
}

/// Returns chats of one to many turns, with and without repeated contents.
fn conversations(long: &str, has_lead: bool) -> Vec<Vec<RoleAndText<'_>>> {
    let content = |at: usize| match at % (CONTENTS.len() + 1) {
        0 => long,
        at => CONTENTS[at - 1],
    };
    let chat = |(turns, first, step): (usize, usize, usize)| {
        let lead = has_lead.then(|| ("system", content(first + 5)));
        let turns = (0..2 * turns + 1).map(|at| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            (role, content(first + step * at))
        });
        lead.into_iter().chain(turns).collect()
    };
    let short = (0..=CONTENTS.len()).map(|first| (0, first, 1));
    let longer = (0..=CONTENTS.len()).map(|first| (1, first, 1));
    let many = [(2, 1, 1), (3, 3, 2), (6, 0, 1), (12, 2, 5), (4, 1, 0), (24, 1, 3)];
    short.chain(longer).chain(many).map(chat).collect()
}

/// Returns contents with a text of the template.
fn with_literal(literal: &str) -> [String; 4] {
    [
        format!("a {literal} b"),
        format!("{literal} c {literal}d"),
        format!("e{literal}"),
        literal.to_owned(),
    ]
}

/// Returns chats in which a content begins with one text and ends with another.
fn with_pair([first, last]: [&str; 2], has_lead: bool) -> Vec<Vec<(&'static str, String)>> {
    let both = format!("{first}\na\n{last}");
    let chat = |contents: [&str; 5]| {
        let roles = ["user", "assistant", "user", "assistant", "user"];
        let turns = roles.into_iter().zip(contents.map(str::to_owned));
        let lead = has_lead.then(|| ("system", "s".to_owned()));
        lead.into_iter().chain(turns).collect()
    };
    [
        ["q", "r", "q", "r", &*both],
        ["q", "r", &*both, "r", "q"],
        ["q", &*both, "q", "r", "q"],
        [&*both, "r", "q", "r", &*both],
    ]
    .map(chat)
    .into()
}

fn texts<'t>(chat: &'t [(&'static str, String)]) -> Vec<RoleAndText<'t>> {
    chat.iter().map(|(role, text)| (*role, &**text)).collect()
}

/// Returns chats in which each of four contents is a question and an answer.
fn turned(contents: &[String], has_lead: bool) -> Vec<Vec<RoleAndText<'_>>> {
    let content = |at: usize| &*contents[at % contents.len()];
    let chat = |first: usize| {
        let lead = has_lead.then(|| ("system", content(first + 3)));
        let turns = (0..5).map(|at| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            (role, content(first + at))
        });
        lead.into_iter().chain(turns).collect()
    };
    (0..2).map(chat).collect()
}
