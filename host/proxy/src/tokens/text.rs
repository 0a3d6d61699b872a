//! Text blocks in place of tokens: each four bytes count as one token. They show that two prompts begin alike, without
//! a tokenizer. They never match the blocks that workers report.

use inference_api::{Peek, PromptParts, Raw};

const BYTES: usize = 4;

/// Returns the prompt as its client wrote it, with tools first as in templates. The next turn of a conversation begins
/// with the same bytes.
pub(super) fn tokens(peek: &Peek<'_>) -> Option<Vec<u32>> {
    Some(match peek.prompt_parts()? {
        PromptParts::Text { text, .. } => words(text.as_bytes()),
        PromptParts::Chat(chat) => {
            let mut text = chat.tools.unwrap_or_default().into_owned();
            text.push_str(without_end(&chat.messages));
            words(text.as_bytes())
        }
        PromptParts::Messages(prompt) => {
            let fields = [prompt.tools, prompt.system].into_iter().flatten();
            let mut text: String = fields.map(Raw::get).collect();
            text.push_str(without_end(prompt.messages.get()));
            words(text.as_bytes())
        }
    })
}

/// Returns the messages without the text after the last one, which the next turn does not repeat.
fn without_end(messages: &str) -> &str {
    messages.trim_end().trim_end_matches(']').trim_end()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(BYTES);
    words
        .map(|word| word.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
        .collect()
}

#[cfg(test)]
mod tests {
    use inference_api::Endpoint;

    use super::*;

    fn of(body: &str) -> Vec<u32> {
        tokens(&inference_api::peek(Endpoint::ChatCompletions, body.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn the_next_turn_begins_as_the_one_before() {
        let one = of(r#"{"messages":[{"role":"user","content":"hello there"}]}"#);
        let two = of(
            r#"{"messages":[{"role":"user","content":"hello there"},{"role":"assistant","content":"hi"}],"stream":true}"#,
        );
        assert_eq!(one.len(), 10);
        assert!(two.starts_with(&one));
        assert_eq!(one[0], u32::from_be_bytes(*b"[{\"r"));
    }

    #[test]
    fn the_system_prompt_and_the_tools_of_a_messages_request_come_first() {
        let of =
            |body: &str| tokens(&inference_api::peek(Endpoint::Messages, body.as_bytes()).unwrap()).unwrap();
        let one = of(r#"{"messages":[{"role":"user","content":"hello there"}],"system":"abcd"}"#);
        let two = of(
            r#"{"system":"abcd","messages":[{"role":"user","content":"hello there"},{"role":"user","content":"x"}]}"#,
        );
        assert!(two.starts_with(&one) && one.len() > 10, "{one:?} {two:?}");
        assert_eq!(one[0], u32::from_be_bytes(*b"\"abc"));
    }

    #[test]
    fn other_tools_are_another_prompt() {
        let with = |tools: &str| {
            of(&format!(
                r#"{{"messages":[{{"role":"user"}}],"tools":[{tools}]}}"#
            ))
        };
        assert_ne!(with(r#"{"a":1}"#)[1], with(r#"{"b":1}"#)[0]);
    }
}
