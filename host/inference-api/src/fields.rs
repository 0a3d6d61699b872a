//! Fields of a body that routing may need, as slices of the body.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::object::{self, Member};

/// Name of the list whose elements are read.
const MESSAGES: &[u8] = b"messages";

/// A valid JSON value, as it appears in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// Wraps `text`, which must be a JSON value without surrounding space.
    pub(crate) fn known(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns its text.
    #[must_use]
    pub fn get(self) -> &'a str {
        self.0
    }
}

macro_rules! fields {
    ($($name:ident),+ $(,)?) => {
        /// Slices of the body, by field name. Other fields and `null` are skipped.
        #[derive(Debug, Default, PartialEq, Eq)]
        pub(crate) struct Fields<'a> {
            $(pub(crate) $name: Option<Raw<'a>>,)+
        }

        impl<'a> Fields<'a> {
            /// Returns the slot of a field with this name.
            fn place(&mut self, name: &[u8]) -> Option<&mut Option<Raw<'a>>> {
                $(
                    if name == stringify!($name).as_bytes() {
                        return Some(&mut self.$name);
                    }
                )+
                None
            }

            fn drop_nulls(&mut self) {
                let is_given = |raw: &Raw<'_>| raw.get() != "null";
                $(self.$name = self.$name.filter(is_given);)+
            }
        }
    };
}

fields!(
    model,
    stream,
    max_tokens,
    max_completion_tokens,
    max_output_tokens,
    priority,
    user,
    prompt_cache_key,
    cache_salt,
    extra_key,
    prompt,
    input,
    messages,
    // Fields that decide if a request can be split.
    n,
    echo,
    prompt_logprobs,
    prompt_embeds,
    use_beam_search,
    // Fields that change the rendered text of a chat.
    tools,
    add_generation_prompt,
    continue_final_message,
    add_special_tokens,
    chat_template,
    chat_template_kwargs,
    mm_processor_kwargs,
    documents,
    reasoning_effort,
    reasoning,
    tool_choice,
    truncate_prompt_tokens,
    suffix,
    instructions,
    previous_response_id,
    // Fields of Anthropic's Messages API.
    system,
    thinking,
    output_config,
    metadata,
    // Fields of the endpoints that take tokens.
    token_ids,
    input_ids,
    text,
    sampling_params,
    lora_path,
    routed_dp_rank,
    data_parallel_rank,
    // Fields that only a router may set.
    kv_transfer_params,
    ec_transfer_params,
    bootstrap_host,
    bootstrap_port,
    bootstrap_room,
    bootstrap_pair_key,
    disagg_prefill_dp_rank,
    vllm_xargs,
);

/// The fields of a body, and its structure as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct ReadBody<'a> {
    /// On the heap: they are large, and are moved with the request.
    pub(crate) fields: Box<Fields<'a>>,
    /// Nesting depth of the body.
    pub(crate) depth: Option<usize>,
    /// Positions of the elements of `messages` in its value; empty if they are unknown.
    pub(crate) messages: Vec<Range<usize>>,
}

impl<'a> ReadBody<'a> {
    /// Reads a body. If the fast reader refuses it, the slow one reads it.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        if let Some(read) = Self::read_quickly(body) {
            return Ok(read);
        }
        let fields = serde_json::from_slice(body)?;
        Ok(Self {
            fields,
            ..Self::default()
        })
    }

    fn read_quickly(body: &'a [u8]) -> Option<Self> {
        let mut fields = Box::<Fields<'_>>::default();
        let mut messages = Vec::new();
        let depth = object::read(body, MESSAGES, |member| {
            let Member {
                name,
                value,
                elements,
            } = member;
            if name == MESSAGES {
                std::mem::swap(&mut messages, elements);
            }
            if let Some(place) = fields.place(name) {
                // The last field of a name counts, as in engines.
                *place = Some(Raw(simdutf8::basic::from_utf8(value).ok()?));
            } else if !name.is_ascii() {
                std::str::from_utf8(name).ok()?;
            }
            Some(())
        })?;
        fields.drop_nulls();
        Some(Self {
            fields,
            depth: Some(depth),
            messages,
        })
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = map.next_key::<String>()? {
            match fields.place(name.as_bytes()) {
                Some(place) => *place = Some(Raw(map.next_value::<&RawValue>()?.get())),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        fields.drop_nulls();
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow reader reads everything that the fast one reads, with equal results.
        #[test]
        fn both_ways_read_the_same(
            members in prop::collection::vec(
                (
                    "model|stream|prompt|messages|tools|n|x|é|\\\\u006dodel",
                    r#"null|true|-?[0-9]{1,3}|"[a-zé\\]{0,4}"|\[[0-9, ]{0,6}\]|\{"[a-z]":\[\]\}| 1 |\{"#,
                ),
                0..6,
            ),
        ) {
            let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            let body = format!("{{{}}}", members.join(" , "));
            if let Some(read) = ReadBody::read_quickly(body.as_bytes()) {
                prop_assert_eq!(serde_json::from_str::<Fields<'_>>(&body).ok(), Some(*read.fields), "{}", body);
            }
        }
    }

    #[test]
    fn the_last_of_several_fields_of_a_name_counts_in_both_ways() {
        let model = |body: &'static str| {
            let read = ReadBody::read(body.as_bytes()).unwrap();
            read.fields.model.map(Raw::get)
        };
        assert_eq!(model(r#"{"model":"a","n":1,"model":"b"}"#), Some("\"b\""));
        // The slow reader handles a name with an escape.
        assert_eq!(model(r#"{"model":"a","\u006dodel":"b"}"#), Some("\"b\""));
        assert_eq!(model(r#"{"\u006dodel":"a","model":"b"}"#), Some("\"b\""));
        assert_eq!(model(r#"{"model":"a","model":null}"#), None);
    }

    #[test]
    fn text_that_is_no_utf8_is_nowhere_a_field_or_a_name() {
        let bodies: [&[u8]; 2] = [b"{\"model\":\"\xff\"}", b"{\"\xff\":1}"];
        for body in bodies {
            assert!(ReadBody::read(body).is_err());
        }
        // The engine validates skipped fields.
        assert!(ReadBody::read(b"{\"x\":\"\xff\"}").is_ok());
    }
}
