//! The requests that are sent: of one exact size, in groups that share most of their prompt, and no two alike.

use std::time::Duration;

use crate::backends::MODEL;
use bench_vocabulary::{self as vocabulary, Message, WORD_BYTES, WORDS, Words, word};

/// Number of prompt groups, and of conversations.
pub(crate) const GROUPS: u64 = 16;
const CONVERSATIONS: u64 = 64;
/// Share of a prompt, from its start, that is the same in all requests of a group.
const SHARED: (usize, usize) = (3, 4);
/// Words that make a request's text unique: 2,000^4 of them.
const UNIQUE_WORDS: usize = 4;
/// Token ids that make a request's ids unique: 90,000^3 of them.
const UNIQUE_IDS: usize = 3;
/// All token ids have five digits, so that one can be put in another's place.
const FIRST_ID: u64 = 10_000;
const IDS: u64 = 90_000;
/// `12345,`
const ID_BYTES: usize = 6;
/// Of a conversation: the system prompt, which all of them share, each turn, and the turn that is new in each request.
const SYSTEM_BYTES: usize = 2_000;
const TURN_BYTES: usize = 1_000;
const NEW_TURN_BYTES: usize = 256;

/// Form of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PromptForm {
    /// `/v1/chat/completions` with one message.
    Chat,
    /// `/v1/chat/completions` with a long history, the same again and again, and a new turn of 256 bytes.
    Turns,
    /// `/v1/completions` with token ids.
    Ids,
}

/// Requested stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOf {
    /// Number of tokens.
    pub tokens: u32,
    /// The pause between two, which only the bench's own backends heed; none leaves it to them.
    pub spacing: Option<Duration>,
}

/// Requests ready to be sent, one per group, in which only the unique part is rewritten.
#[derive(Debug)]
pub(crate) struct Prompts {
    form: PromptForm,
    groups: Vec<Vec<u8>>,
    unique_at: usize,
    sent: u64,
}

impl Prompts {
    /// Bodies are `body_bytes` long, or as long as a prompt needs at least.
    pub(crate) fn new(form: PromptForm, body_bytes: usize, stream: Option<StreamOf>) -> Self {
        let path = match form {
            PromptForm::Chat | PromptForm::Turns => "/v1/chat/completions",
            PromptForm::Ids => "/v1/completions",
        };
        let fields = fields(stream);
        let mut unique_at = 0;
        let request = |group| {
            let (body, at) = match form {
                PromptForm::Ids => ids_body(&fields, group, body_bytes),
                PromptForm::Chat | PromptForm::Turns => {
                    chat_body(&fields, &chat(form, group, body_bytes, fields.len()))
                }
            };
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: load\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            unique_at = head.len() + at;
            [head.into_bytes(), body].concat()
        };
        let groups = (0..groups(form)).map(request).collect();
        Self {
            form,
            groups,
            unique_at,
            sent: 0,
        }
    }

    /// Returns the next request's bytes, head and body.
    pub(crate) fn next(&mut self) -> &[u8] {
        let (mut rest, at) = (self.sent / self.groups.len() as u64, self.unique_at);
        let group = (self.sent % self.groups.len() as u64) as usize;
        self.sent += 1;
        let request = &mut self.groups[group];
        match self.form {
            PromptForm::Chat | PromptForm::Turns => {
                for index in 0..UNIQUE_WORDS {
                    request[at + index * WORD_BYTES..][..3].copy_from_slice(&word(rest));
                    rest /= WORDS;
                }
            }
            PromptForm::Ids => {
                for index in 0..UNIQUE_IDS {
                    put_id(&mut request[at + index * ID_BYTES..], FIRST_ID + rest % IDS);
                    rest /= IDS;
                }
            }
        }
        request
    }
}

pub(crate) fn groups(form: PromptForm) -> u64 {
    if form == PromptForm::Turns {
        CONVERSATIONS
    } else {
        GROUPS
    }
}

/// Returns the tokens that all prompts of a group begin with.
pub(crate) fn shared_tokens(form: PromptForm, group: u64, body_bytes: usize) -> Vec<u32> {
    match form {
        PromptForm::Chat | PromptForm::Turns => {
            vocabulary::beginning(&shared_messages(form, group, body_bytes))
        }
        PromptForm::Ids => (0..body_bytes / ID_BYTES * SHARED.0 / SHARED.1)
            .map(|index| (FIRST_ID + id(group, index)) as u32)
            .collect(),
    }
}

/// Returns the messages of a group, the last of which ends where requests begin to differ.
fn shared_messages(form: PromptForm, group: u64, body_bytes: usize) -> Vec<Message> {
    let chat = chat(form, group, body_bytes, fields(None).len());
    let mut messages = chat.messages;
    if let Some(last) = messages.last_mut() {
        last.content
            .truncate((chat.shared_words * WORD_BYTES).saturating_sub(1));
    }
    messages.retain(|message| !message.content.is_empty());
    messages
}

fn fields(stream: Option<StreamOf>) -> String {
    let tokens = stream.map_or(16, |stream| stream.tokens);
    let spacing = stream.and_then(|stream| stream.spacing);
    // Peers that know the field pass it on; an engine would take it for the seed of its sampling.
    let seed = spacing.map_or_else(String::new, |spacing| {
        format!(r#""seed":{},"#, spacing.as_micros())
    });
    format!(
        r#"{{"model":"{MODEL}","max_tokens":{tokens},{seed}"stream":{},"#,
        stream.is_some()
    )
}

/// Messages, and how many words of the last one are the same in all requests.
struct Chat {
    messages: Vec<Message>,
    shared_words: usize,
}

/// Returns the bytes of a message besides its content, including the comma after it.
fn message_bytes(role: &str) -> usize {
    r#"{"role":"","content":""},"#.len() + role.len()
}

fn chat(form: PromptForm, group: u64, body_bytes: usize, fields: usize) -> Chat {
    // The last message has no comma behind it.
    let mut room = body_bytes.saturating_sub(fields + r#""messages":[]}"#.len() - 1);
    let mut messages = Vec::new();
    if form == PromptForm::Turns {
        let mut add = |role: &'static str, seed, bytes| {
            messages.push(Message {
                role,
                content: text(seed, bytes),
            });
            room = room.saturating_sub(message_bytes(role) + bytes);
            room
        };
        let mut left = add("system", u64::MAX, SYSTEM_BYTES);
        let two = message_bytes("user") + message_bytes("assistant") + 2 * TURN_BYTES;
        let mut turn = 0;
        while left >= two + message_bytes("user") + NEW_TURN_BYTES {
            turn += 1;
            add("user", (group << 32) + turn, TURN_BYTES);
            left = add("assistant", (group << 32) + turn + (1 << 16), TURN_BYTES);
        }
        // The rest besides the new turn goes to the last answer.
        let over = left.saturating_sub(message_bytes("user") + NEW_TURN_BYTES);
        if let Some(last) = messages.last_mut() {
            last.content = text((group << 32) + turn + (1 << 16), last.content.len() + over);
            room = room.saturating_sub(over);
        }
    }
    let length = room
        .saturating_sub(message_bytes("user"))
        .max(4 * UNIQUE_WORDS * WORD_BYTES);
    messages.push(Message {
        role: "user",
        content: text(group, length),
    });
    let shared_words = if form == PromptForm::Turns {
        0
    } else {
        length / WORD_BYTES * SHARED.0 / SHARED.1
    };
    Chat {
        messages,
        shared_words,
    }
}

/// Returns a body, and the position of its unique part.
fn chat_body(fields: &str, chat: &Chat) -> (Vec<u8>, usize) {
    let mut body = format!(r#"{fields}"messages":["#);
    let mut unique_at = 0;
    for (index, Message { role, content }) in chat.messages.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body += &format!(r#"{{"role":"{role}","content":""#);
        unique_at = body.len() + chat.shared_words * WORD_BYTES;
        body += content;
        body += r#""}"#;
    }
    body += "]}";
    (body.into_bytes(), unique_at)
}

fn ids_body(fields: &str, group: u64, body_bytes: usize) -> (Vec<u8>, usize) {
    let (before, after) = (format!(r#"{fields}"prompt":["#), "]}");
    let room = body_bytes
        .saturating_sub(before.len() + after.len())
        .max(4 * UNIQUE_IDS * ID_BYTES);
    let body = [before.as_bytes(), &ids(group, room), after.as_bytes()].concat();
    (
        body,
        before.len() + id_count(room) * SHARED.0 / SHARED.1 * ID_BYTES,
    )
}

/// Returns the number of ids that fit. The last id has no comma behind it.
fn id_count(room: usize) -> usize {
    (room + 1) / ID_BYTES
}

/// Returns a text. A shorter text of the same seed is the beginning of a longer one.
fn text(seed: u64, bytes: usize) -> String {
    Words::of(seed).text(bytes)
}

/// Ids and, after the last, spaces up to the length.
fn ids(group: u64, room: usize) -> Vec<u8> {
    let mut bytes = vec![b' '; room];
    let count = id_count(room);
    for index in 0..count {
        let at = index * ID_BYTES;
        put_id(&mut bytes[at..], FIRST_ID + id(group, index));
        if index + 1 < count {
            bytes[at + ID_BYTES - 1] = b',';
        }
    }
    bytes
}

/// Returns an id by a cheap mix in which groups differ from their first id on and blocks do not repeat.
fn id(group: u64, index: usize) -> u64 {
    (group + 1)
        .wrapping_mul(0x9E37_79B9)
        .wrapping_add(index as u64 * 7_919)
        % IDS
}

fn put_id(at: &mut [u8], id: u64) {
    let mut rest = id;
    for byte in at[..ID_BYTES - 1].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
#[path = "prompts_tests.rs"]
mod tests;
