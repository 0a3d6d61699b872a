//! Plain messages: a role and a content that is text, and nothing else.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

/// Message with a role and a text.
#[derive(Debug)]
pub(crate) struct PlainMessage<'a> {
    pub(crate) role: Cow<'a, str>,
    pub(crate) content: Cow<'a, str>,
}

impl<'a> PlainMessage<'a> {
    /// Parses messages; `None` if one of them is not plain, or the JSON is no list.
    pub(crate) fn parse(json: &'a str) -> Option<Vec<Self>> {
        serde_json::from_str(json).ok()
    }
}

impl<'de> Deserialize<'de> for PlainMessage<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = PlainMessage<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message with a role and a text only")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PlainMessage<'de>, A::Error> {
        let (mut role, mut content) = (None, None);
        while let Some(Text(key)) = map.next_key()? {
            let place = match &*key {
                "role" => &mut role,
                "content" => &mut content,
                _ => return Err(A::Error::custom("another field")),
            };
            let Text(value) = map.next_value()?;
            if place.replace(value).is_some() {
                return Err(A::Error::custom("a repeated field"));
            }
        }
        match (role, content) {
            (Some(role), Some(content)) => Ok(PlainMessage { role, content }),
            _ => Err(A::Error::custom("a missing field")),
        }
    }
}

/// Text that is borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_a_role_and_a_text_are_plain() {
        let messages =
            PlainMessage::parse(r#" [{"role":"user","content":"a\n\u00e4"}, {"content":"b","role":"x"}] "#)
                .unwrap();
        let texts: Vec<_> = messages
            .iter()
            .map(|message| (&*message.role, &*message.content))
            .collect();
        assert_eq!(texts, [("user", "a\nä"), ("x", "b")]);
        for other in [
            "{}",
            "[",
            r#"[["user","a"]]"#,
            r#"["user"]"#,
            r#"[{"role":"user"}]"#,
            r#"[{"content":"a"}]"#,
            r#"[{"role":"user","content":null}]"#,
            r#"[{"role":"user","content":["a"]}]"#,
            r#"[{"role":"user","content":"a","name":"b"}]"#,
            r#"[{"role":"user","content":"a","content":"b"}]"#,
            r#"[{"role":"user","content":"\ud800"}]"#,
        ] {
            assert!(PlainMessage::parse(other).is_none(), "{other}");
        }
    }
}
