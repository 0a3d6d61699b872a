//! Probes of a frame: conversations rendered whole, and continued at each possible message. A frame continues only
//! what gives the same text.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use super::LastMessage;
use super::frame::Frame;
use crate::model::Model;
use crate::template::TemplateTexts;

/// Other tools than those of the frames' contexts.
const TOOLS: &str = r#"[{"type":"function","function":{"name":"get_weather","description":"Weather of a city\nnow","parameters":{"type":"object","properties":{"city":{"type":"string","enum":["Rome","Oslo"]}},"required":["city"]}}},
    {"type":"function","function":{"name":"search","description":"","parameters":{"type":"object","properties":{"q":{"type":"string"},"n":{"type":"integer"}}}}}]"#;
const LEAD: &str = "You are a probe.\n\nBe brief. ";
/// Another day than that of the frames' contexts.
const DAY: Duration = Duration::from_secs(400 * 86_400);

const PLAIN: &[&[&str]] = &[
    &[
        r#"{"role":"user","content":"Hello"}"#,
        r#"{"role":"assistant","content":"Hi, what can I do?"}"#,
        r#"{"role":"user","content":" a\n\nb "}"#,
        r#"{"role":"assistant","content":"\n c\n"}"#,
        r#"{"role":"user","content":"d"}"#,
        r#"{"role":"assistant","content":"e"}"#,
        r#"{"role":"user","content":"f"}"#,
    ],
    &[
        r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":" y\n"}]}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"z"}]}"#,
        r#"{"role":"user","content":""}"#,
        r#"{"role":"assistant","content":""}"#,
        r#"{"role":"user","content":"é 漢字","name":"bob"}"#,
    ],
    &[
        r#"{"role":"user","content":"a"}"#,
        r#"{"role":"assistant","content":"b"}"#,
        r#"{"role":"user","content":"c"}"#,
        r#"{"role":"user","content":"d"}"#,
        r#"{"role":"assistant","content":"e"}"#,
        r#"{"role":"assistant","content":"f"}"#,
        r#"{"role":"user","content":"g"}"#,
    ],
];

const CALL: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"search","arguments":"{\"q\":\"x\",\"n\":3}"}}]}"#;
/// End of a message with a call, after its content.
const MADE_CALL: &str =
    r#","tool_calls":[{"id":"call00001","type":"function","function":{"name":"search","arguments":"{}"}}]}"#;
const CALLS: &str = r#"{"role":"assistant","content":"Wait.","tool_calls":[{"id":"call00002","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Rome\"}"}},{"id":"call00003","type":"function","function":{"name":"search","arguments":"{}"}}]}"#;
const RESULTS: [&str; 3] = [
    r#"{"role":"tool","tool_call_id":"call00001","name":"search","content":"found"}"#,
    r#"{"role":"tool","tool_call_id":"call00002","name":"get_weather","content":"{\"sun\": true}\n"}"#,
    r#"{"role":"tool","tool_call_id":"call00003","name":"search","content":""}"#,
];
const QUESTION: &str = r#"{"role":"user","content":"What?"}"#;
const ANSWER: &str = r#"{"role":"assistant","content":"That."}"#;

const WITH_TOOLS: &[&[&str]] = &[
    &[QUESTION, CALL, RESULTS[0], ANSWER, QUESTION],
    &[
        QUESTION, CALL, RESULTS[0], CALL, RESULTS[0], CALL, RESULTS[0], ANSWER, QUESTION, CALL, RESULTS[0],
    ],
    &[QUESTION, ANSWER, QUESTION, CALL, RESULTS[0], CALL, RESULTS[0]],
    &[
        QUESTION, CALLS, RESULTS[1], RESULTS[2], ANSWER, QUESTION, ANSWER, QUESTION,
    ],
];

const THOUGHT: &str = r#"{"role":"assistant","content":"So.","reasoning":"Because\nit is.","reasoning_content":"Because\nit is."}"#;
const THOUGHTFUL_CALL: &str = r#"{"role":"assistant","content":"","reasoning":"Look it up.","reasoning_content":"Look it up.","tool_calls":[{"id":"call00001","type":"function","function":{"name":"search","arguments":"{}"}}]}"#;

const WITH_REASONING: &[&[&str]] = &[
    &[QUESTION, THOUGHT, QUESTION, THOUGHT, QUESTION],
    &[
        QUESTION,
        THOUGHTFUL_CALL,
        RESULTS[0],
        THOUGHTFUL_CALL,
        RESULTS[0],
        THOUGHT,
        QUESTION,
        ANSWER,
        QUESTION,
    ],
];

/// Removes from a frame what does not give the texts of whole renderings.
pub(super) fn restrict(model: &Model, frame: &mut Frame) {
    use LastMessage::{Lead, Tool, User};
    let plain = same(model, frame, PLAIN, &[User]);
    if plain != Some(true) {
        for last in [Lead, User, Tool] {
            frame.forbid(last);
        }
        return;
    }
    if same(model, frame, PLAIN, &[Lead]) == Some(false) {
        frame.forbid(Lead);
    }
    if same(model, frame, WITH_TOOLS, &[Lead, User, Tool]) == Some(false) {
        frame.takes_tools = false;
        frame.forbid(Tool);
    }
    frame.takes_reasoning = same(model, frame, WITH_REASONING, &[Lead, User, Tool]) == Some(true);
}

/// Returns a message in JSON.
fn message(role: &str, content: &str) -> String {
    let mut text = String::from("\"");
    for c in content.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c < ' ' => write!(text, "\\u{:04x}", u32::from(c)).expect("text takes everything"),
            c => text.push(c),
        }
    }
    format!(r#"{{"role":"{role}","content":{text}"}}"#)
}

/// Returns the texts that change the rendering of other messages when the leading message has them. The frames are
/// those of the roles that lead.
pub(super) fn lead_markers(model: &Model, frames: &[&Frame], literals: &[String]) -> Vec<String> {
    let changes_in = |frame: &Frame, content: &str| {
        let lead = frame.lead().map(|role| message(role, content));
        let taken = [
            (true, &PLAIN[..1]),
            (frame.takes_tools, &WITH_TOOLS[1..2]),
            (frame.takes_reasoning, &WITH_REASONING[..1]),
        ];
        taken.into_iter().any(|(is_taken, conversations)| {
            let same =
                |after: &[LastMessage]| same_behind(model, frame, lead.as_deref(), conversations, after);
            let is_same =
                || same(&[LastMessage::Lead]).or_else(|| same(&[LastMessage::User, LastMessage::Tool]));
            is_taken && is_same() == Some(false)
        })
    };
    let changes = |literal: &&String| {
        let within = format!("a {literal} b");
        frames
            .iter()
            .any(|frame| changes_in(frame, literal) || changes_in(frame, &within))
    };
    literals.iter().filter(changes).cloned().collect()
}

/// Returns the texts that change the rendering of other messages when a content has them. Of two that do so together,
/// it is the first.
pub(super) fn markers(model: &Model, frame: &Frame, literals: &TemplateTexts) -> Vec<String> {
    let mut markers = single_markers(model, frame, &literals.single);
    for [first, last] in &literals.pairs {
        if !markers.contains(first) && !markers.contains(last) && is_marked_pair(model, frame, [first, last])
        {
            markers.push(first.clone());
        }
    }
    markers
}

/// Returns `true` if other messages are rendered otherwise when a content begins with one text and ends with another.
fn is_marked_pair(model: &Model, frame: &Frame, [first, last]: [&str; 2]) -> bool {
    let both = format!("{first}\na\n{last}");
    let [question, answer] = [message("user", &both), message("assistant", &both)];
    let result = format!(r#"{{"tool_call_id":"call00001",{}"#, &message("tool", &both)[1..]);
    let plain: [&[&str]; 3] = [
        &[QUESTION, ANSWER, &question, ANSWER, &question],
        &[&question, ANSWER, QUESTION, ANSWER, &question, ANSWER, QUESTION],
        &[QUESTION, &answer, QUESTION, ANSWER, QUESTION],
    ];
    let called: [&[&str]; 1] = [&[
        QUESTION, ANSWER, &question, CALL, &result, ANSWER, &question, CALL, &result, ANSWER, QUESTION,
    ]];
    let differs = |conversations: &[&[&str]]| {
        same(
            model,
            frame,
            conversations,
            &[LastMessage::User, LastMessage::Tool],
        ) == Some(false)
    };
    differs(&plain) || (frame.takes_tools && differs(&called))
}

fn single_markers(model: &Model, frame: &Frame, literals: &[String]) -> Vec<String> {
    let changes = |literal: &&String| {
        let [within, around, after] = [
            format!("a {literal} b"),
            format!("{literal} c {literal}d"),
            format!("e{literal}"),
        ];
        let plain = [
            message("user", &within),
            message("assistant", &around),
            message("user", literal),
            message("assistant", &after),
            message("user", &around),
            message("assistant", &within),
            message("user", &after),
        ];
        let result = format!(
            r#"{{"tool_call_id":"call00001",{}"#,
            &message("tool", &around)[1..]
        );
        // Reasoning before a call is dropped once another question follows.
        let call = |content: &str| {
            let message = message("assistant", content);
            format!("{}{MADE_CALL}", &message[..message.len() - 1])
        };
        let called = [
            message("user", &within),
            call(&after),
            result.clone(),
            call(&within),
            result.clone(),
            call(&around),
            result,
            message("assistant", &after),
            message("user", literal),
            message("assistant", &within),
            message("user", &around),
        ];
        let conversations: [Vec<&str>; 2] =
            [&plain[..], &called[..]].map(|messages| messages.iter().map(String::as_str).collect());
        let conversations: Vec<&[&str]> = conversations.iter().map(Vec::as_slice).collect();
        let taken = if frame.takes_tools {
            &conversations[..]
        } else {
            &conversations[..1]
        };
        same(model, frame, taken, &[LastMessage::User, LastMessage::Tool]) == Some(false)
    };
    literals.iter().filter(changes).cloned().collect()
}

/// Compares conversations continued after messages of these kinds with their whole renderings. Returns `None` if none
/// could be continued.
fn same(model: &Model, frame: &Frame, conversations: &[&[&str]], after: &[LastMessage]) -> Option<bool> {
    let lead = frame.lead().map(|role| message(role, LEAD));
    same_behind(model, frame, lead.as_deref(), conversations, after)
}

/// Compares conversations behind a leading message as [`same`] does.
fn same_behind(
    model: &Model,
    frame: &Frame,
    lead: Option<&str>,
    conversations: &[&[&str]],
    after: &[LastMessage],
) -> Option<bool> {
    let mut compared = None;
    for conversation in conversations {
        let messages: Vec<&str> = lead.into_iter().chain(conversation.iter().copied()).collect();
        match same_texts(model, frame, &messages, after) {
            Some(false) => return Some(false),
            Some(true) => compared = Some(true),
            None => {}
        }
    }
    compared
}

fn same_texts(model: &Model, frame: &Frame, messages: &[&str], after: &[LastMessage]) -> Option<bool> {
    let render = |messages: &[&str], prompt| {
        let list = format!("[{}]", messages.join(","));
        let chat = frame.chat(&list, TOOLS, prompt);
        let rendered = model.render_chat(&chat, SystemTime::UNIX_EPOCH + DAY).ok()?;
        Some((rendered.0.into_text(), rendered.1))
    };
    let (whole, typed) = render(messages, "true")?;
    let mut compared = None;
    for at in 1..=messages.len() {
        let last = match frame.lead() {
            Some(_) if at == 1 => Some(LastMessage::Lead),
            _ => LastMessage::of(&typed[at - 1]),
        };
        let Some(last) = last.filter(|last| after.contains(last)) else {
            continue;
        };
        let known = match last {
            LastMessage::Lead => render(&messages[..at], "false").map(|(text, _)| text),
            LastMessage::User | LastMessage::Tool => render(&messages[..at], "true").and_then(|(text, _)| {
                let end = frame.end_of(&text, last)?;
                Some(text[..end].to_owned())
            }),
        };
        let suffix = frame.suffix(model, last, &messages[at..].join(","), true);
        if let (Some(known), Some(suffix)) = (known, suffix) {
            let rest = whole.strip_prefix(&*known);
            if rest != Some(&*suffix.text) {
                return Some(false);
            }
            compared = Some(true);
        }
    }
    compared
}
