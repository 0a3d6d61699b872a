//! The requests that are sent: of one exact size, in groups that share most of their prompt, and no two alike.

use crate::backends::MODEL;

/// How many groups of prompts there are.
const GROUPS: u64 = 16;
/// The share of a prompt, from its start, that is the same in all requests of a group.
const SHARED: (usize, usize) = (3, 4);
/// Digits that tell a request's text from all others.
const TEXT_DIGITS: usize = 16;
/// Token ids that tell a request's ids from all others: 90,000^3 of them.
const UNIQUE_IDS: usize = 3;
/// All token ids have five digits, so that one can be put in another's place.
const FIRST_ID: u64 = 10_000;
const IDS: u64 = 90_000;
/// `12345,`
const ID_BYTES: usize = 6;

/// How the prompt is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PromptForm {
    /// `/v1/chat/completions` with text.
    Chat,
    /// `/v1/completions` with token ids.
    Ids,
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
    /// Bodies are `body_bytes` long; `stream_tokens` asks for a stream of so many tokens.
    pub(crate) fn new(form: PromptForm, body_bytes: usize, stream_tokens: Option<u32>) -> Self {
        let (stream, tokens) = (stream_tokens.is_some(), stream_tokens.unwrap_or(16));
        let fields = format!(r#"{{"model":"{MODEL}","max_tokens":{tokens},"stream":{stream},"#);
        let (path, before, after) = match form {
            PromptForm::Chat => (
                "/v1/chat/completions",
                fields + r#""messages":[{"role":"user","content":""#,
                r#""}]}"#,
            ),
            PromptForm::Ids => ("/v1/completions", fields + r#""prompt":["#, "]}"),
        };
        let room = body_bytes
            .saturating_sub(before.len() + after.len())
            .max(minimum_room(form));
        let length = before.len() + room + after.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: load\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let prompt = |group| match form {
            PromptForm::Chat => text(group, room),
            PromptForm::Ids => ids(group, room),
        };
        let request = |group| {
            [
                head.as_bytes(),
                before.as_bytes(),
                &prompt(group),
                after.as_bytes(),
            ]
            .concat()
        };
        let unique_at = head.len() + before.len() + shared_bytes(form, room);
        Self {
            form,
            groups: (0..GROUPS).map(request).collect(),
            unique_at,
            sent: 0,
        }
    }

    /// The next request's bytes, head and body.
    pub(crate) fn next(&mut self) -> &[u8] {
        let (number, at) = (self.sent, self.unique_at);
        self.sent += 1;
        let request = &mut self.groups[(number % GROUPS) as usize];
        match self.form {
            PromptForm::Chat => {
                for (index, byte) in request[at..at + TEXT_DIGITS].iter_mut().enumerate() {
                    *byte = b"0123456789abcdef"[((number >> (60 - 4 * index)) & 15) as usize];
                }
            }
            PromptForm::Ids => {
                let mut rest = number;
                for index in 0..UNIQUE_IDS {
                    put_id(&mut request[at + index * ID_BYTES..], FIRST_ID + rest % IDS);
                    rest /= IDS;
                }
            }
        }
        request
    }
}

fn minimum_room(form: PromptForm) -> usize {
    match form {
        PromptForm::Chat => 4 * TEXT_DIGITS,
        PromptForm::Ids => 4 * UNIQUE_IDS * ID_BYTES,
    }
}

/// The bytes of a prompt before its unique part.
fn shared_bytes(form: PromptForm, room: usize) -> usize {
    let shared = |count: usize| count * SHARED.0 / SHARED.1;
    match form {
        PromptForm::Chat => shared(room),
        PromptForm::Ids => shared(id_count(room)) * ID_BYTES,
    }
}

/// The last id has no comma behind it.
fn id_count(room: usize) -> usize {
    (room + 1) / ID_BYTES
}

/// Words whose first ones name the group.
fn text(group: u64, room: usize) -> Vec<u8> {
    let opening = format!("prompt of group {group:02}: ");
    opening
        .bytes()
        .chain("the quick brown fox ".bytes().cycle())
        .take(room)
        .collect()
}

/// Ids and, after the last, spaces up to the length.
fn ids(group: u64, room: usize) -> Vec<u8> {
    let mut bytes = vec![b' '; room];
    let count = id_count(room);
    for index in 0..count {
        let at = index * ID_BYTES;
        // A cheap mix in which groups differ from their first id on and blocks do not repeat.
        let id = (group + 1)
            .wrapping_mul(0x9E37_79B9)
            .wrapping_add(index as u64 * 7_919)
            % IDS;
        put_id(&mut bytes[at..], FIRST_ID + id);
        if index + 1 < count {
            bytes[at + ID_BYTES - 1] = b',';
        }
    }
    bytes
}

fn put_id(at: &mut [u8], id: u64) {
    let mut rest = id;
    for byte in at[..ID_BYTES - 1].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The prompts of the first requests, as text.
    #[track_caller]
    fn check(form: PromptForm, body_bytes: usize) -> Vec<String> {
        let mut prompts = Prompts::new(form, body_bytes, None);
        let read = |request: &[u8]| {
            let at = request.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
            assert_eq!(request[at..].len(), body_bytes);
            let body: serde_json::Value = serde_json::from_slice(&request[at..]).unwrap();
            let prompt = if form == PromptForm::Chat {
                &body["messages"][0]["content"]
            } else {
                &body["prompt"]
            };
            prompt.to_string()
        };
        (0..3 * GROUPS).map(|_| read(prompts.next())).collect()
    }

    fn common(a: &str, b: &str) -> usize {
        a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn requests_have_the_size_asked_for_and_share_three_quarters_within_a_group() {
        for (form, size) in [PromptForm::Chat, PromptForm::Ids]
            .into_iter()
            .flat_map(|form| [(form, 1024), (form, 32_768)])
        {
            let prompts = check(form, size);
            assert_eq!(
                prompts.iter().collect::<HashSet<_>>().len(),
                prompts.len(),
                "no two are alike"
            );
            let first = &prompts[0];
            assert!(common(first, &prompts[1]) < 40, "groups differ early");
            let share = common(first, &prompts[GROUPS as usize]) as f64 / first.len() as f64;
            assert!((0.73..0.79).contains(&share), "{form:?} of {size}: {share}");
        }
    }

    #[test]
    fn a_stream_is_asked_for_by_its_number_of_tokens() {
        let mut prompts = Prompts::new(PromptForm::Chat, 1024, Some(200));
        let request = String::from_utf8(prompts.next().to_vec()).unwrap();
        assert!(request.contains(r#""max_tokens":200,"stream":true,"#));
    }
}
