//! Chat template variables as in SGLang: tools in the client's order of fields, a final answer as a question, contents
//! joined by spaces, an effort as two switches.

use minijinja::value::{Value, ValueKind};

use crate::chat::{
    Chat, ChatError, NamedEntries, TemplateVariables, field, map, no_call, optional, template_arguments,
};
use crate::content_format::ContentFormat;
use crate::message::{self, Message};
use crate::template::TemplateProperties;
use crate::value;

/// Roles other than `user`, in any case of letters.
const ROLES: [&str; 7] = [
    "system",
    "assistant",
    "tool",
    "function",
    "developer",
    "latest_reminder",
    "root",
];
const EFFORTS: [&str; 8] = [
    "none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max",
];

pub(crate) fn variables(chat: &Chat<'_>, facts: TemplateProperties) -> Result<TemplateVariables, ChatError> {
    let given = message::parse(chat.messages).map_err(ChatError::Json)?;
    let given = given.ok_or(ChatError::Unsupported("messages that are no list"))?;
    let messages = given.iter().map(|message| one_message(message, facts.format));
    let mut messages = messages.collect::<Result<Vec<_>, _>>()?;
    let last = messages.last_mut().ok_or(ChatError::Unsupported("no messages"))?;
    let is_answer = field(last, "role").is_some_and(|role| role.as_str() == Some("assistant"));
    if let Some(content) = field(last, "content").filter(|content| is_answer && content.as_str().is_some()) {
        if chat.continue_final_message == Some("true") {
            return Err(ChatError::Unsupported(
                "a final message whose text has tokens of its own",
            ));
        }
        *last = map(vec![("role", Value::from("user")), ("content", content)]);
    }
    Ok(TemplateVariables {
        messages,
        given,
        tools: tools(chat)?,
        documents: None,
        add_generation_prompt: true,
        continued: None,
        extra: arguments(chat)?,
    })
}

/// Returns the tools without their wrapper, which SGLang tries if a template refuses them; `None` without tools.
pub(crate) fn bare_tools(tools: &Value) -> Option<Value> {
    let tools = tools.try_iter().ok().filter(|_| !tools.is_none())?;
    tools.map(|tool| field(&tool, "function")).collect()
}

fn one_message(message: &Message, format: ContentFormat) -> Result<Value, ChatError> {
    let refused = || ChatError::Unsupported("a message that SGLang refuses");
    let role = message.text("role").ok_or_else(refused)?;
    let is_user = role == "user";
    let role = if is_user {
        role.to_owned()
    } else {
        role.to_lowercase()
    };
    if !is_user && !ROLES.contains(&&*role) {
        return Err(refused());
    }
    let mut entries: NamedEntries = vec![("role", Value::from(&*role))];
    let (content, is_last) = content(message, &role, format)?;
    if !is_last {
        entries.push(("content", content.clone()));
    }
    if is_user {
        message.field("content").ok_or_else(refused)?;
    } else {
        others(message, &role, &mut entries)?;
    }
    if is_last {
        entries.push(("content", content));
    }
    Ok(map(entries))
}

/// Adds the fields of messages other than a user's.
fn others(message: &Message, role: &str, entries: &mut NamedEntries) -> Result<(), ChatError> {
    if ["tools", "prefix"]
        .iter()
        .any(|name| message.field(name).is_some())
    {
        return Err(ChatError::Unsupported("a message with tools or a prefix"));
    }
    for name in ["tool_call_id", "name", "phase", "reasoning_content"] {
        if let Some(value) = message.field(name) {
            if value.kind() != ValueKind::String {
                return Err(ChatError::Unsupported("a field of a message that is no text"));
            }
            entries.push((name, value.clone()));
        }
    }
    if let Some(calls) = message.field("tool_calls") {
        let calls = calls.try_iter().map_err(|_| no_call())?;
        let calls = calls.map(|call| tool_call(&call, role == "assistant"));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        entries.push(("tool_calls", Value::from(calls)));
    }
    Ok(())
}

/// Returns a call with all fields of the API.
fn tool_call(call: &Value, is_parsed: bool) -> Result<Value, ChatError> {
    let function = field(call, "function").filter(|function| function.kind() == ValueKind::Map);
    let function = function.ok_or_else(no_call)?;
    let or_none = |of: &Value, name: &str| field(of, name).unwrap_or_else(|| Value::from(()));
    if field(call, "type").is_some_and(|kind| kind.as_str() != Some("function")) {
        return Err(no_call());
    }
    let mut arguments = or_none(&function, "arguments");
    if let Some(text) = arguments.as_str().filter(|_| is_parsed) {
        arguments = value::parse(text).map_err(ChatError::Json)?;
        if arguments.kind() != ValueKind::Map {
            return Err(no_call());
        }
    }
    let function = map(vec![
        ("name", or_none(&function, "name")),
        ("arguments", arguments),
    ]);
    Ok(map(vec![
        ("id", or_none(call, "id")),
        ("index", or_none(call, "index")),
        ("type", Value::from("function")),
        ("function", function),
    ]))
}

/// Returns the content of a message, and whether it becomes the last field: a list does, for templates that take lists.
fn content(message: &Message, role: &str, format: ContentFormat) -> Result<(Value, bool), ChatError> {
    let Some(given) = message.field("content") else {
        return Ok((Value::from(""), false));
    };
    match given.kind() {
        ValueKind::String => return Ok((given.clone(), false)),
        ValueKind::Seq => {}
        _ => {
            return Err(ChatError::Unsupported(
                "a content that is neither text nor a list",
            ));
        }
    }
    let mut parts = Vec::new();
    for part in given.try_iter().map_err(ChatError::Template)? {
        let kind = field(&part, "type").unwrap_or_default();
        let name = match kind.as_str() {
            Some("text") => "text",
            Some("tool_reference") => "name",
            _ => return Err(ChatError::Unsupported("media, or a part that SGLang refuses")),
        };
        let text = field(&part, name).filter(|text| text.kind() == ValueKind::String);
        let text = text.ok_or(ChatError::Unsupported("a part without its text"))?;
        parts.push((kind, name, text));
    }
    let is_text = parts.iter().all(|(_, name, _)| *name == "text");
    if format == ContentFormat::String || (role == "tool" && is_text) {
        let texts = parts.iter().filter(|(_, name, _)| *name == "text");
        let texts: Vec<&str> = texts.filter_map(|(_, _, text)| text.as_str()).collect();
        return Ok((Value::from(texts.join(" ")), format == ContentFormat::OpenAi));
    }
    let parts = parts.into_iter();
    let parts: Vec<Value> = parts
        .map(|(kind, name, text)| map(vec![("type", kind), (name, text)]))
        .collect();
    Ok((Value::from(parts), true))
}

/// Returns the tools that the choice of a tool leaves, with the client's fields in its order.
fn tools(chat: &Chat<'_>) -> Result<Value, ChatError> {
    let tools = optional(chat.tools)?;
    let choice = optional(chat.of_engines.tool_choice)?;
    if tools.is_none() || choice.as_str() == Some("none") {
        return Ok(Value::from(()));
    }
    let chosen = match (choice.is_none(), choice.as_str()) {
        (true, _) | (_, Some("auto" | "required")) => None,
        (_, Some(_)) => return Err(ChatError::Unsupported("a choice of tools that SGLang refuses")),
        _ => {
            let name = field(&choice, "function").and_then(|function| field(&function, "name"));
            Some(name.ok_or(ChatError::Unsupported("a choice of a tool without a name"))?)
        }
    };
    let listed = tools
        .try_iter()
        .map_err(|_| ChatError::Unsupported("tools that are no list"))?;
    let mut left = Vec::new();
    for tool in listed {
        let function =
            field(&tool, "function").ok_or(ChatError::Unsupported("a tool that is no function"))?;
        let name = field(&function, "name");
        let name = name.ok_or(ChatError::Unsupported("a tool without a name"))?;
        if chosen.as_ref().is_none_or(|chosen| *chosen == name) {
            left.push(one_tool(&tool, &function)?);
        }
    }
    Ok(match left.is_empty() {
        true => Value::from(()),
        false => Value::from(left),
    })
}

fn one_tool(tool: &Value, function: &Value) -> Result<Value, ChatError> {
    let deferred = field(tool, "defer_loading");
    let known = |name: &str| {
        let own = field(function, name);
        match name {
            "strict" => own,
            "defer_loading" => own.or_else(|| deferred.clone()),
            _ => Some(own.unwrap_or_else(|| Value::from(()))),
        }
    };
    let names = ["description", "name", "parameters", "strict", "defer_loading"];
    let given: Vec<Value> = function.try_iter().map_err(ChatError::Template)?.collect();
    let given = given.iter().filter_map(|key| key.as_str());
    let mut order: Vec<&str> = given.filter(|key| names.contains(key)).collect();
    let rest = names.iter().filter(|name| !order.contains(*name));
    let rest: Vec<_> = rest.copied().collect();
    order.extend(rest);
    let entries = order
        .iter()
        .filter_map(|name| Some((Value::from(*name), known(name)?)));
    let kind = field(tool, "type").unwrap_or_else(|| Value::from("function"));
    Ok(map(vec![
        ("type", kind),
        ("function", value::map(entries.collect())),
        ("defer_loading", deferred.unwrap_or_else(|| Value::from(()))),
    ]))
}

/// Returns the arguments of the template: an effort, then those of the client, then the switches of an effort.
fn arguments(chat: &Chat<'_>) -> Result<Vec<(Value, Value)>, ChatError> {
    let reasoning = optional(chat.of_engines.reasoning)?;
    let within = ["effort", "reasoning_effort"]
        .iter()
        .find_map(|name| field(&reasoning, name));
    let effort = match within {
        Some(effort) => Some(effort),
        None => Some(optional(chat.reasoning_effort)?).filter(|effort| !effort.is_none()),
    };
    let effort = effort.map(|effort| one_effort(&effort)).transpose()?;
    let enabled = ["enabled", "enable"]
        .iter()
        .find_map(|name| field(&reasoning, name));
    let is_enabled = enabled.is_some_and(|enabled| match enabled.as_str() {
        Some(text) => ["1", "true", "yes", "y", "on"].contains(&&*text.trim().to_lowercase()),
        None => enabled.is_true(),
    });
    let thinks = match &effort {
        Some(effort) => Some(effort.as_str() != Some("none")),
        None => is_enabled.then_some(true),
    };
    let mut arguments: Vec<(Value, Value)> = Vec::new();
    arguments.extend(effort.map(|effort| (Value::from("reasoning_effort"), effort)));
    let given = optional(chat.chat_template_kwargs)?;
    let refused = [
        "chat_template",
        "tokenize",
        "messages",
        "tools",
        "conversation",
        "add_generation_prompt",
    ];
    arguments.extend(template_arguments(&given, &refused)?);
    if let Some(thinks) = thinks {
        for name in ["thinking", "enable_thinking"] {
            if !arguments.iter().any(|(key, _)| key.as_str() == Some(name)) {
                arguments.push((Value::from(name), Value::from(thinks)));
            }
        }
    }
    Ok(arguments)
}

/// Returns an effort as SGLang has it: a name or a number.
fn one_effort(effort: &Value) -> Result<Value, ChatError> {
    let refused = || ChatError::Unsupported("an effort that SGLang refuses");
    let number = match effort.as_str() {
        Some(name) if EFFORTS.contains(&name) => return Ok(effort.clone()),
        Some(text) => text.trim().parse::<f64>().map_err(|_| refused())?,
        None if effort.is_number() => f64::try_from(effort.clone()).map_err(|_| refused())?,
        None => return Err(refused()),
    };
    match (0.0..=0.99).contains(&number) {
        true => Ok(Value::from(number)),
        false => Err(refused()),
    }
}

#[cfg(test)]
mod tests;
