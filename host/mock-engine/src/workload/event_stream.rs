//! Parser of a streamed chat answer, fed with chunks. Sans-I/O.

use serde_json::Value;

/// Longest line; a longer one is not a server-sent event.
const MAX_LINE: usize = 1 << 20;

/// Token counts in the answer's `usage`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    pub(crate) generated: u64,
}

/// An answer so far.
#[derive(Debug, Default)]
pub(crate) struct ChatStream {
    line: Vec<u8>,
    /// Text so far.
    pub(crate) text: String,
    /// Usage in the last chunk.
    pub(crate) usage: Usage,
    /// `[DONE]` was received.
    pub(crate) done: bool,
}

/// The bytes are not a stream of chat chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAStream;

impl ChatStream {
    /// Parses the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), NotAStream> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() > MAX_LINE {
                return Err(NotAStream);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.line(line.trim_ascii())?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), NotAStream> {
        let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
            return Ok(());
        };
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_slice(data).map_err(|_| NotAStream)?;
        if let Some(text) = chunk["choices"][0]["delta"]["content"].as_str() {
            self.text.push_str(text);
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = Usage {
                prompt: usage["prompt_tokens"].as_u64().unwrap_or(0),
                cached: usage["prompt_tokens_details"]["cached_tokens"]
                    .as_u64()
                    .unwrap_or(0),
                generated: usage["completion_tokens"].as_u64().unwrap_or(0),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        : a comment\r\n\
        data: {\"choices\":[{\"delta\":{\"content\":\" kato\"}}]}\r\n\r\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\
        \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";

    #[test]
    fn an_answer_is_the_same_however_it_is_cut() {
        for size in [1, 7, STREAM.len()] {
            let mut stream = ChatStream::default();
            for piece in STREAM.as_bytes().chunks(size) {
                stream.push(piece).expect("a stream");
            }
            let usage = Usage {
                prompt: 9,
                cached: 4,
                generated: 1,
            };
            assert_eq!(
                (stream.text.as_str(), stream.usage, stream.done),
                (" kato", usage, true)
            );
        }
    }

    #[test]
    fn other_bytes_are_no_stream() {
        assert_eq!(ChatStream::default().push(b"data: {\n"), Err(NotAStream));
        assert_eq!(
            ChatStream::default().push(&vec![b'x'; MAX_LINE + 1]),
            Err(NotAStream)
        );
    }
}
