//! Types of TypeScript, as Harmony writes a JSON schema. The schema is JSON that was read, so its depth is limited.

use minijinja::value::{Value, ValueKind};

use super::text::WorkText;
use crate::chat::ChatError;

/// Bytes that are scanned at the cost of one that is written.
const SCANNED: usize = 8;

type Written = Result<(), ChatError>;

/// Writes the type of a schema.
pub(super) fn write_type(out: &mut WorkText, schema: &Value, indent: usize) -> Written {
    if let Some(variants) = list(schema, "oneOf") {
        for variant in variants {
            out.push("\n")?;
            spaces(out, indent)?;
            out.push(" | ")?;
            write_nullable(out, &variant, indent + 3)?;
            let description = text(&variant, "description");
            comments(out, description, default_of(&variant, true)?)?;
        }
        return Ok(());
    }
    if let Some(types) = list(schema, "type") {
        let names: Vec<Value> = types.into_iter().filter(|name| name.as_str().is_some()).collect();
        for (at, name) in names.iter().filter_map(Value::as_str).enumerate() {
            out.push(if at > 0 { " | " } else { "" })?;
            out.push(if name == "integer" { "number" } else { name })?;
        }
        // A list of other values is no type.
        return if names.is_empty() { out.push("any") } else { Ok(()) };
    }
    match text(schema, "type").as_deref() {
        Some("object") => write_object(out, schema, indent),
        Some("string") => write_string(out, schema),
        Some("number" | "integer") => out.push("number"),
        Some("boolean") => out.push("boolean"),
        Some("array") => match member(schema, "items") {
            Some(items) => {
                write_type(out, &items, indent)?;
                out.push("[]")
            }
            None => out.push("Array<any>"),
        },
        _ => out.push("any"),
    }
}

fn write_string(out: &mut WorkText, schema: &Value) -> Written {
    let mut is_first = true;
    for value in list(schema, "enum").into_iter().flatten() {
        if let Some(text) = value.as_str() {
            out.push_all(&[if is_first { "\"" } else { " | \"" }, text, "\""])?;
            is_first = false;
        }
    }
    out.push(if is_first { "string" } else { "" })
}

fn write_object(out: &mut WorkText, schema: &Value, indent: usize) -> Written {
    comment_line(out, indent, text(schema, "description").as_deref())?;
    out.push("{\n")?;
    let properties = member(schema, "properties").filter(|properties| properties.kind() == ValueKind::Map);
    if let Some(properties) = properties {
        let required = list(schema, "required").unwrap_or_default();
        let mut required: Vec<&str> = required.iter().filter_map(Value::as_str).collect();
        required.sort_unstable();
        for key in properties.try_iter().map_err(ChatError::Template)? {
            let property = properties.get_item(&key).map_err(ChatError::Template)?;
            let name = key.as_str().unwrap_or_default();
            let mark = if required.binary_search(&name).is_ok() {
                ""
            } else {
                "?"
            };
            write_property(out, [name, mark], &property, indent)?;
        }
    }
    spaces(out, indent)?;
    out.push("}")
}

/// Writes a property with its name and the mark of an optional one.
fn write_property(out: &mut WorkText, name: [&str; 2], property: &Value, indent: usize) -> Written {
    if let Some(title) = text(property, "title") {
        comment_line(out, indent, Some(&title))?;
        spaces(out, indent)?;
        out.push("//\n")?;
    }
    let description = text(property, "description");
    let has_variants = member(property, "oneOf").is_some();
    if !has_variants {
        comment_line(out, indent, description.as_deref())?;
    }
    let examples = list(property, "examples").unwrap_or_default();
    if !examples.is_empty() {
        comment_line(out, indent, Some("Examples:"))?;
    }
    for example in examples.iter().filter_map(Value::as_str) {
        spaces(out, indent)?;
        out.push_all(&["// - \"", example, "\"\n"])?;
    }
    if let Some(variants) = list(property, "oneOf") {
        return write_variants(out, name, property, &variants, indent);
    }
    spaces(out, indent)?;
    out.push_all(&[name[0], name[1], ": "])?;
    write_nullable(out, property, indent + 4)?;
    out.push(",")?;
    let default = default_of(property, false)?.filter(|_| !has_variants);
    comments(out, None, default)?;
    out.push("\n")
}

/// Writes a property that has one of several types.
fn write_variants(
    out: &mut WorkText,
    name: [&str; 2],
    property: &Value,
    variants: &[Value],
    indent: usize,
) -> Written {
    let description = text(property, "description");
    let of_first = variants.first().and_then(|variant| text(variant, "description"));
    let above = description
        .as_ref()
        .filter(|text| of_first.as_ref() != Some(*text));
    comment_line(out, indent, above.map(String::as_str))?;
    if let Some(default) = default_of(property, false)? {
        comment_line(out, indent, Some(&default))?;
    }
    spaces(out, indent)?;
    out.push_all(&[name[0], name[1], ":\n"])?;
    for (at, variant) in variants.iter().enumerate() {
        spaces(out, indent)?;
        out.push(" | ")?;
        write_nullable(out, variant, indent + 3)?;
        let own = text(variant, "description").filter(|own| Some(own) != description.as_ref());
        let own = own.filter(|_| at > 0 || above.is_none());
        comments(out, own, default_of(variant, false)?)?;
        out.push("\n")?;
    }
    spaces(out, indent)?;
    out.push(",\n")
}

/// Writes a type, which may be null.
fn write_nullable(out: &mut WorkText, schema: &Value, indent: usize) -> Written {
    let from = out.as_str().len();
    write_type(out, schema, indent)?;
    if member(schema, "nullable")
        .is_some_and(|nullable| nullable.kind() == ValueKind::Bool && nullable.is_true())
    {
        out.charge((out.as_str().len() - from) / SCANNED)?;
        if !out.as_str()[from..].contains("null") {
            out.push(" | null")?;
        }
    }
    Ok(())
}

fn spaces(out: &mut WorkText, count: usize) -> Written {
    const SPACES: &str = "                                ";
    let mut left = count;
    while left > 0 {
        let next = left.min(SPACES.len());
        out.push(&SPACES[..next])?;
        left -= next;
    }
    Ok(())
}

fn comment_line(out: &mut WorkText, indent: usize, text: Option<&str>) -> Written {
    let Some(text) = text else { return Ok(()) };
    spaces(out, indent)?;
    out.push_all(&["// ", text, "\n"])
}

/// Writes a comment behind a type.
fn comments(out: &mut WorkText, description: Option<String>, default: Option<String>) -> Written {
    let mut separator = " // ";
    for comment in description.into_iter().chain(default) {
        out.push_all(&[separator, &comment])?;
        separator = " ";
    }
    Ok(())
}

/// Returns the comment of a default. A text is quoted; that of an enumeration only as one of `quotes_all`.
fn default_of(schema: &Value, quotes_all: bool) -> Result<Option<String>, ChatError> {
    let Some(default) = member(schema, "default") else {
        return Ok(None);
    };
    let is_enum = list(schema, "enum").is_some_and(|values| !values.is_empty());
    let shown = match default.as_str() {
        Some(text) if !is_enum => format!("\"{text}\""),
        Some(text) if !quotes_all => text.to_owned(),
        _ => serde_json::to_string(&default)
            .map_err(|_| ChatError::Unsupported("a default without a JSON form"))?,
    };
    Ok(Some(format!("default: {shown}")))
}

/// Returns a member, null or not.
fn member(schema: &Value, name: &str) -> Option<Value> {
    if schema.kind() != ValueKind::Map {
        return None;
    }
    schema.get_attr(name).ok().filter(|value| !value.is_undefined())
}

fn text(schema: &Value, name: &str) -> Option<String> {
    member(schema, name)?.as_str().map(str::to_owned)
}

fn list(schema: &Value, name: &str) -> Option<Vec<Value>> {
    let list = member(schema, name).filter(|list| list.kind() == ValueKind::Seq)?;
    Some(list.try_iter().ok()?.collect())
}
