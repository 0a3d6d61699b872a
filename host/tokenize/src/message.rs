//! Messages of a chat, as sent. Known fields are separated while reading, so plain messages cost little more than
//! their text.

use std::fmt;

use aho_corasick::AhoCorasick;
use minijinja::value::Value;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::joined::PlainMessage;
use crate::value::{self, Read};

/// Fields of a message; empty if it is not a dictionary.
#[derive(Debug, Default)]
pub(crate) struct Message {
    role: Option<Value>,
    content: Option<Value>,
    /// Other fields; of a repeated key the later value counts.
    others: Vec<(Value, Value)>,
}

impl Message {
    /// Returns a field, null or not.
    pub(crate) fn given(&self, name: &str) -> Option<&Value> {
        match name {
            "role" => self.role.as_ref(),
            "content" => self.content.as_ref(),
            _ => {
                let mut found = self.others.iter().rev();
                found.find_map(|(key, value)| (key.as_str() == Some(name)).then_some(value))
            }
        }
    }

    /// Returns a field that is text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_str()
    }

    /// Returns `true` if a text of the content has one of the patterns.
    pub(crate) fn content_matches(&self, patterns: &AhoCorasick) -> bool {
        let Some(content) = self.field("content") else {
            return false;
        };
        if let Some(text) = content.as_str() {
            return patterns.is_match(text);
        }
        content.try_iter().into_iter().flatten().any(|part| {
            let texts = ["text", "refusal", "thinking", "name"].map(|name| part.get_attr(name).ok());
            let own = part.as_str().is_some_and(|text| patterns.is_match(text));
            let mut texts = texts.iter().flatten().filter_map(|text| text.as_str());
            own || texts.any(|text| patterns.is_match(text))
        })
    }

    /// Returns a field, unless it is absent or null.
    pub(crate) fn field(&self, name: &str) -> Option<&Value> {
        self.given(name).filter(|value| !value.is_none())
    }
}

impl From<&PlainMessage<'_>> for Message {
    fn from(plain: &PlainMessage<'_>) -> Self {
        Self {
            role: Some(Value::from(&*plain.role)),
            content: Some(Value::from(&*plain.content)),
            others: Vec::new(),
        }
    }
}

/// Parses messages; the inner `None`: the JSON is not a list.
pub(crate) fn parse(json: &str) -> Result<Option<Vec<Message>>, serde_json::Error> {
    match value::read(json) {
        Ok(messages) => Ok(Some(messages)),
        // Valid JSON, but not a list.
        Err(error) if error.is_data() && !json.trim_start().starts_with('[') => {
            serde_json::from_str::<IgnoredAny>(json).map(|_| None)
        }
        Err(error) => Err(error),
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MessageVisitor)
    }
}

struct MessageVisitor;

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message, A::Error> {
        let mut message = Message::default();
        while let Some(FieldKey(key)) = map.next_key()? {
            let Read(value) = map.next_value()?;
            match key {
                FieldName::Role => message.role = Some(value),
                FieldName::Content => message.content = Some(value),
                FieldName::Other(name) => message.others.push((name, value)),
            }
        }
        Ok(message)
    }

    fn visit_unit<E>(self) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Message, E> {
        Ok(Message::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Message, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Message::default())
    }
}

struct FieldKey(FieldName);

enum FieldName {
    Role,
    Content,
    Other(Value),
}

impl<'de> Deserialize<'de> for FieldKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor).map(Self)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = FieldName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<FieldName, E> {
        Ok(match name {
            "role" => FieldName::Role,
            "content" => FieldName::Content,
            _ => FieldName::Other(Value::from(name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_json() {
        let json = r#"[{"content":"a\n","role":"user","name":null,"x":1,"x":2,"role":"tool"},"text",[1],null,1,-1,0.5,true,{}]"#;
        let messages = parse(json).unwrap().unwrap();
        assert_eq!(messages.len(), 9);
        let first = &messages[0];
        assert_eq!(first.field("content"), Some(&Value::from("a\n")));
        assert_eq!(first.field("role"), Some(&Value::from("tool")));
        assert_eq!(first.field("x"), Some(&Value::from(2)));
        assert!(first.field("name").is_none() && first.given("name").is_some());
        assert!(
            messages[1..]
                .iter()
                .all(|message| message.field("role").is_none())
        );
    }

    #[test]
    fn json_that_is_no_list_is_distinguished_from_invalid_json() {
        for json in ["{}", "\"text\"", "null", "1"] {
            assert!(parse(json).unwrap().is_none(), "{json}");
        }
        for json in ["", "[", "{", "[{\"role\"}]", "[]]", "{]"] {
            assert!(parse(json).is_err(), "{json}");
        }
    }
}
