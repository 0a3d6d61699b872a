//! Log lines as JSON: one object a line, whose keys are unique, with the whole chain of an error.
//!
//! The fields of an event stand at the top level beside `timestamp`, `level`, `target`, `message`, `span` and `spans`.
//! A field that has the name of one of those is written as `field.NAME`. An error is written as `error` (its own
//! message) and `error.sources` (a list of the messages of its causes, the nearest first).

use std::error::Error;
use std::fmt;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::text::is_escaped;

/// Keys of every line that a field of an event may not take.
const RESERVED: [&str; 5] = ["timestamp", "level", "target", "span", "spans"];
/// Causes written of one error; a chain that is longer is a malfunction.
const MOST_SOURCES: usize = 32;

/// Formatter of events as JSON objects. The fields of spans are formatted by [`JsonFields`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let metadata = event.metadata();
        let mut line = JsonLine::default();
        line.own("timestamp", timestamp.into());
        line.own("level", metadata.level().as_str().into());
        event.record(&mut line);
        line.own("target", metadata.target().into());
        if let Some(scope) = context.event_scope() {
            let spans: Vec<Value> = scope.from_root().map(|span| span_object(&span)).collect();
            if let Some(innermost) = spans.last() {
                line.own("span", innermost.clone());
            }
            line.own("spans", spans.into());
        }
        writeln!(writer, "{}", line.to_json())
    }
}

/// Returns a span with its fields and its name.
fn span_object<S>(span: &SpanRef<'_, S>) -> Value
where
    S: for<'a> LookupSpan<'a>,
{
    let extensions = span.extensions();
    let fields = extensions.get::<FormattedFields<JsonFields>>();
    let fields = fields.and_then(|fields| serde_json::from_str::<Map<String, Value>>(&fields.fields).ok());
    let mut object = fields.unwrap_or_default();
    if let Some(own) = object.insert("name".to_owned(), span.name().into()) {
        object.insert("field.name".to_owned(), own);
    }
    Value::Object(object)
}

/// A line being put together: keys in the order they came, each once.
#[derive(Debug, Default)]
struct JsonLine(Vec<(String, Value)>);

impl JsonLine {
    /// Sets a key of the line itself.
    fn own(&mut self, key: &str, value: Value) {
        self.set(key.to_owned(), value);
    }

    /// Sets a field of the event. The last value of a field that is recorded twice holds.
    fn field(&mut self, name: &str, value: Value) {
        let key = if RESERVED.contains(&name) {
            format!("field.{name}")
        } else {
            name.to_owned()
        };
        self.set(key, value);
    }

    fn set(&mut self, key: String, value: Value) {
        match self.0.iter_mut().find(|(present, _)| *present == key) {
            Some((_, present)) => *present = value,
            None => self.0.push((key, value)),
        }
    }

    fn to_json(&self) -> String {
        let entry = |(key, value): &(String, Value)| format!("{}:{value}", Value::from(key.as_str()));
        let entries: Vec<String> = self.0.iter().map(entry).collect();
        escape(format!("{{{}}}", entries.join(",")))
    }
}

/// Escapes the control characters that JSON allows in strings. There are none outside of strings.
fn escape(json: String) -> String {
    if !json.contains(is_escaped) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if is_escaped(character) {
            // All of them have four digits at most.
            escaped += &format!("\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

impl Visit for JsonLine {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinity and no NaN.
        let value = if value.is_finite() {
            json!(value)
        } else {
            value.to_string().into()
        };
        self.field(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.field(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.field(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.field(field.name(), value.into());
    }

    fn record_error(&mut self, field: &Field, error: &(dyn Error + 'static)) {
        self.field(field.name(), error.to_string().into());
        let mut causes: Vec<Value> = Vec::new();
        let mut cause = error.source();
        while let Some(nearest) = cause.filter(|_| causes.len() < MOST_SOURCES) {
            causes.push(nearest.to_string().into());
            cause = nearest.source();
        }
        if !causes.is_empty() {
            self.field(&format!("{}.sources", field.name()), causes.into());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field.name(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests;
