//! The fields of a body that routing may need, as slices of it.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::object;

/// A JSON value as it stands in the body, known to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// What `text` is: a JSON value without space around it.
    pub(crate) fn known(text: &'a str) -> Self {
        Self(text)
    }

    /// Its text.
    #[must_use]
    pub fn get(self) -> &'a str {
        self.0
    }
}

macro_rules! fields {
    ($($name:ident),+ $(,)?) => {
        /// Slices of the body, by field name. Everything else in the body is skipped; so is what is `null`.
        #[derive(Debug, Default, PartialEq, Eq)]
        pub(crate) struct Fields<'a> {
            $(pub(crate) $name: Option<Raw<'a>>,)+
        }

        impl<'a> Fields<'a> {
            /// Where a field of this name is kept, if it is.
            fn place(&mut self, name: &[u8]) -> Option<&mut Option<Raw<'a>>> {
                $(
                    if name == stringify!($name).as_bytes() {
                        return Some(&mut self.$name);
                    }
                )+
                None
            }

            fn without_nulls(self) -> Self {
                let is_given = |raw: &Raw<'_>| raw.get() != "null";
                Self { $($name: self.$name.filter(is_given),)+ }
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
    prompt,
    input,
    messages,
    // What decides whether a request can be split.
    n,
    echo,
    prompt_logprobs,
    prompt_embeds,
    use_beam_search,
    // What changes the text a chat is rendered to.
    tools,
    add_generation_prompt,
    continue_final_message,
    add_special_tokens,
    chat_template,
    chat_template_kwargs,
    mm_processor_kwargs,
    documents,
    reasoning_effort,
    truncate_prompt_tokens,
    instructions,
    previous_response_id,
    // Of Anthropic's Messages API.
    system,
    thinking,
    output_config,
    metadata,
    // Of the endpoints that take tokens.
    token_ids,
    input_ids,
    text,
    sampling_params,
    lora_path,
    routed_dp_rank,
    data_parallel_rank,
    // What only a router may set.
    kv_transfer_params,
    ec_transfer_params,
    bootstrap_host,
    bootstrap_port,
    bootstrap_room,
    bootstrap_pair_key,
    disagg_prefill_dp_rank,
    vllm_xargs,
);

impl<'a> Fields<'a> {
    /// The fields, and how deep the body is nested where that is known. What the quick way does not take goes the other.
    pub(crate) fn read(body: &'a [u8]) -> Result<(Self, Option<usize>), serde_json::Error> {
        if let Some((fields, depth)) = Self::read_quickly(body) {
            return Ok((fields, Some(depth)));
        }
        serde_json::from_slice(body).map(|fields| (fields, None))
    }

    fn read_quickly(body: &'a [u8]) -> Option<(Self, usize)> {
        let mut fields = Self::default();
        let depth = object::read(body, |name, value| {
            if let Some(place) = fields.place(name) {
                // The last one of a name counts, as it does for engines.
                *place = Some(Raw(simdutf8::basic::from_utf8(value).ok()?));
            } else if !name.is_ascii() {
                std::str::from_utf8(name).ok()?;
            }
            Some(())
        })?;
        Some((fields.without_nulls(), depth))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
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
        Ok(fields.without_nulls())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the quick way reads, the slow one reads too.
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
            if let Some((fields, _)) = Fields::read_quickly(body.as_bytes()) {
                prop_assert_eq!(serde_json::from_str::<Fields<'_>>(&body).ok(), Some(fields), "{}", body);
            }
        }
    }

    #[test]
    fn the_last_of_several_fields_of_a_name_counts_in_both_ways() {
        let model = |body: &'static str| {
            let (fields, _) = Fields::read(body.as_bytes()).unwrap();
            fields.model.map(Raw::get)
        };
        assert_eq!(model(r#"{"model":"a","n":1,"model":"b"}"#), Some("\"b\""));
        // A name with an escape is read the slow way.
        assert_eq!(model(r#"{"model":"a","\u006dodel":"b"}"#), Some("\"b\""));
        assert_eq!(model(r#"{"\u006dodel":"a","model":"b"}"#), Some("\"b\""));
        assert_eq!(model(r#"{"model":"a","model":null}"#), None);
    }

    #[test]
    fn text_that_is_no_utf8_is_nowhere_a_field_or_a_name() {
        let bodies: [&[u8]; 2] = [b"{\"model\":\"\xff\"}", b"{\"\xff\":1}"];
        for body in bodies {
            assert!(Fields::read(body).is_err());
        }
        // What is skipped is the engine's to refuse.
        assert!(Fields::read(b"{\"x\":\"\xff\"}").is_ok());
    }
}
