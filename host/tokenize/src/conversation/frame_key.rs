//! Keys of frames.

/// Inputs of a rendering that select the frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameKey<'a> {
    pub(crate) template: &'a str,
    /// Role of the leading system or developer message.
    pub(crate) lead: Option<&'a str>,
    pub(crate) has_tools: bool,
    pub(crate) arguments: Option<&'a str>,
    pub(crate) effort: Option<&'a str>,
}

impl PartialEq for FrameKey<'_> {
    /// Compares JSON without its space: clients write it differently.
    fn eq(&self, other: &Self) -> bool {
        let same = |own: Option<&str>, other: Option<&str>| match (own, other) {
            (Some(own), Some(other)) => own == other || packed(own).eq(packed(other)),
            (own, other) => own == other,
        };
        (self.template, self.lead, self.has_tools) == (other.template, other.lead, other.has_tools)
            && same(self.arguments, other.arguments)
            && same(self.effort, other.effort)
    }
}

/// Returns the bytes of a JSON text without the space between its parts.
fn packed(json: &str) -> impl Iterator<Item = u8> {
    let (mut is_text, mut is_escaped) = (false, false);
    json.bytes().filter(move |byte| {
        let is_kept = is_text || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let ends_or_begins = *byte == b'"' && !is_escaped;
        is_escaped = is_text && *byte == b'\\' && !is_escaped;
        is_text ^= ends_or_begins;
        is_kept
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_the_same_whatever_their_space() {
        let key = |arguments| FrameKey {
            template: "default",
            lead: None,
            has_tools: false,
            arguments: Some(arguments),
            effort: None,
        };
        let [own, spaced] = [r#"{"a":"x \\","b":[1]}"#, " {\"a\" : \"x \\\\\",\n\"b\": [ 1 ] }"];
        assert!(key(own) == key(spaced));
        for other in [
            r#"{"a":"x\\","b":[1]}"#,
            r#"{"a":"x \\","b":[2]}"#,
            r#"{"a":"x \\", "#,
        ] {
            assert!(key(own) != key(other), "{other}");
        }
        assert!(key(r#"{"a":"\" x"}"#) != key(r#"{"a":"\"x"}"#));
    }
}
