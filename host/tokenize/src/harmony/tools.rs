//! Tools in Harmony: a namespace of functions, whose parameters are types of TypeScript.

use minijinja::value::{Value, ValueKind};

use super::schema;
use super::text::WorkText;
use crate::chat::{ChatError, field};

/// Writes the section of the tools.
pub(super) fn write(out: &mut WorkText, tools: &Value) -> Result<(), ChatError> {
    if tools.kind() != ValueKind::Seq || tools.len() == Some(0) {
        return Err(ChatError::Unsupported("tools that are no list"));
    }
    out.push("# Tools\n\n## functions\n\nnamespace functions {\n\n")?;
    for tool in tools.try_iter().map_err(ChatError::Template)? {
        one_tool(out, &tool)?;
    }
    out.push("} // namespace functions")
}

fn one_tool(out: &mut WorkText, tool: &Value) -> Result<(), ChatError> {
    let refused = || ChatError::Unsupported("a tool that is no function");
    let kind = field(tool, "type");
    let function = field(tool, "function").ok_or_else(refused)?;
    let name = field(&function, "name").ok_or_else(refused)?;
    let name = name.as_str().ok_or_else(refused)?;
    if kind.is_some_and(|kind| kind.as_str() != Some("function")) {
        return Err(refused());
    }
    if let Some(description) = field(&function, "description") {
        for line in description.as_str().ok_or_else(refused)?.lines() {
            out.push_all(&["// ", line, "\n"])?;
        }
    }
    out.push_all(&["type ", name, " = ("])?;
    match field(&function, "parameters") {
        Some(parameters) if parameters.kind() == ValueKind::Map => {
            out.push("_: ")?;
            schema::write_type(out, &parameters, 0)?;
        }
        Some(_) => return Err(refused()),
        None => {}
    }
    out.push(") => any;\n\n")
}
