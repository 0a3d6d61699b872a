//! Tools as functions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::message::inner;

#[derive(Deserialize)]
struct ToolDefinition<'a> {
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(default, borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    input_schema: &'a RawValue,
    #[serde(default)]
    strict: Option<bool>,
    #[serde(default)]
    defer_loading: Option<bool>,
}

/// Returns the list of functions for a list of tools; `None` if the engine refuses it.
pub(super) fn functions(tools: &str) -> Option<String> {
    let tools: Vec<ToolDefinition<'_>> = serde_json::from_str(tools).ok()?;
    let mut out = String::from("[");
    for tool in &tools {
        if out.len() > 1 {
            out.push(',');
        }
        append(tool, &mut out)?;
    }
    out.push(']');
    Some(out)
}

fn append(tool: &ToolDefinition<'_>, out: &mut String) -> Option<()> {
    inner(tool.name)?;
    out.push_str(r#"{"type":"function","function":{"name":"#);
    out.push_str(tool.name.get());
    out.push_str(r#","description":"#);
    match tool.description {
        Some(description) => {
            inner(description)?;
            out.push_str(description.get());
        }
        None => out.push_str("null"),
    }
    out.push_str(r#","parameters":"#);
    append_schema(tool.input_schema.get(), out)?;
    for (name, flag) in [("strict", tool.strict), ("defer_loading", tool.defer_loading)] {
        if let Some(flag) = flag {
            out.push_str(&format!(r#","{name}":{flag}"#));
        }
    }
    out.push_str("}}");
    Some(())
}

/// Appends a schema; one without a type is an object's.
fn append_schema(schema: &str, out: &mut String) -> Option<()> {
    let names: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_str(schema).ok()?;
    if names.contains_key("type") {
        out.push_str(schema);
        return Some(());
    }
    let open = schema.strip_suffix('}')?.trim_ascii_end();
    out.push_str(open);
    out.push_str(if names.is_empty() { "" } else { "," });
    out.push_str(r#""type":"object"}"#);
    Some(())
}
