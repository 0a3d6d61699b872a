//! Chat templates: Jinja as in `transformers`, with the Python functions that templates need.

use std::collections::BTreeMap;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use thiserror::Error as ThisError;

use crate::chat_engine::ChatEngine;
use crate::clock_use::ClockUse;
use crate::content_format::{self, ContentFormat};
use crate::engine_renderer::EngineRenderer;
use crate::strftime::strftime;
use crate::value::{self, LONGEST_TEXT};
use crate::{conversation, costs, growth, python, sums};

/// A conversation with a system message between its turns.
const INLINE_SYSTEM: &str = r#"{"messages":[{"role":"system","content":"t"},{"role":"user","content":"t"},
    {"role":"system","content":"t"},{"role":"user","content":"t"}],"add_generation_prompt":false}"#;

/// Variable of every rendering: seconds since 1970, for `strftime_now`.
pub(crate) const NOW: &str = "__now";

/// A template is unusable.
#[derive(Debug, ThisError)]
#[error("compile the chat template{}", name_in(.name))]
pub struct TemplateError {
    name: String,
    #[source]
    source: Error,
}

fn name_in(name: &str) -> String {
    if name == DEFAULT {
        return String::new();
    }
    format!(" `{name}`")
}

/// Instructions per rendering. Templates loop over client data: a few hundred for each message.
const FUEL: u64 = 2_000_000;
/// Work of values per rendering, in copied bytes ([`costs`]).
const MOST_WORK: usize = 256 << 20;
/// Instructions of a brief rendering: a few milliseconds.
const BRIEF_FUEL: u64 = 100_000;
/// Work of values of a brief rendering, in copied bytes: a few milliseconds for texts, up to 70 for lists.
const MOST_BRIEF_WORK: usize = 16 << 20;

pub(crate) const DEFAULT: &str = "default";
pub(crate) const TOOL_USE: &str = "tool_use";

/// Chat templates of a model, by name.
#[derive(Debug)]
pub(crate) struct ChatTemplates {
    /// Engine that they are of.
    pub(crate) engine: ChatEngine,
    /// Code of the engine in place of them.
    pub(crate) engine_renderer: Option<EngineRenderer>,
    /// That code is Harmony, and the router renders it.
    pub(crate) is_harmony: bool,
    environment: Environment<'static>,
    /// The same templates, with the limits of brief renderings.
    brief: Environment<'static>,
    facts: BTreeMap<String, TemplateProperties>,
    /// Texts that the templates mention.
    literals: BTreeMap<String, TemplateTexts>,
}

/// Texts that a template mentions.
#[derive(Debug)]
pub(crate) struct TemplateTexts {
    pub(crate) single: Vec<String>,
    /// Texts that may matter only together.
    pub(crate) pairs: Vec<[String; 2]>,
}

/// Properties of a template.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TemplateProperties {
    pub(crate) format: ContentFormat,
    /// The template uses the role `developer`.
    pub(crate) supports_developer: bool,
    /// The template reads `content`. Otherwise there is no final message to continue.
    pub(crate) reads_content: bool,
    /// The template accepts only leading system messages.
    pub(crate) refuses_inline_system: bool,
    /// The template prints the time.
    pub(crate) now: ClockUse,
}

impl ChatTemplates {
    pub(crate) fn compile(
        sources: BTreeMap<String, String>,
        format: Option<ContentFormat>,
        engine: ChatEngine,
    ) -> Result<Self, TemplateError> {
        let mut environment = environment();
        let mut facts = BTreeMap::new();
        let mut literals = BTreeMap::new();
        for (name, source) in sources {
            let read = TemplateProperties {
                format: ContentFormat::String,
                supports_developer: source.contains("\"developer\"") || source.contains("'developer'"),
                reads_content: source.contains("content"),
                refuses_inline_system: refuses_inline_system(&source),
                now: ClockUse::of(&source),
            };
            let texts = conversation::literals(&source).and_then(|single| {
                let pairs = conversation::pairs(&source, &single)?;
                Some(TemplateTexts { single, pairs })
            });
            literals.extend(texts.map(|texts| (name.clone(), texts)));
            let source = without_generation_tags(&source);
            let refused = |source| TemplateError {
                name: name.clone(),
                source,
            };
            let format = match format {
                Some(format) => format,
                None => match engine {
                    ChatEngine::Vllm => content_format::detect(&source),
                    ChatEngine::SgLang => content_format::detect_as_sglang(&source),
                }
                .map_err(refused)?,
            };
            let source = prepared(&source).map_err(refused)?;
            environment
                .add_template_owned(name.clone(), source)
                .map_err(refused)?;
            facts.insert(name.clone(), TemplateProperties { format, ..read });
        }
        let mut brief = environment.clone();
        brief.set_fuel(Some(BRIEF_FUEL));
        costs::set_limit(&mut brief, MOST_BRIEF_WORK);
        Ok(Self {
            engine,
            engine_renderer: None,
            is_harmony: false,
            environment,
            brief,
            facts,
            literals,
        })
    }

    /// Returns the texts that a template mentions; `None` if they are too many.
    pub(crate) fn literals(&self, name: &str) -> Option<&TemplateTexts> {
        self.literals.get(name)
    }

    /// Returns the name and the properties of the template for a chat with or without tools.
    pub(crate) fn choose(&self, has_tools: bool) -> Option<(&str, TemplateProperties)> {
        let named = |name: &str| self.facts.get_key_value(name);
        let tool_use = named(TOOL_USE).filter(|_| has_tools);
        let (name, facts) = tool_use.or_else(|| named(DEFAULT))?;
        Some((name, *facts))
    }

    /// Renders a template to at most [`LONGEST_TEXT`] bytes, of which `likely` are reserved. A brief rendering ends
    /// after a few milliseconds.
    pub(crate) fn render(
        &self,
        name: &str,
        context: Value,
        likely: usize,
        is_brief: bool,
    ) -> Result<String, Error> {
        let mut text = BoundedText(Vec::with_capacity(likely.min(LONGEST_TEXT)));
        let environment = if is_brief { &self.brief } else { &self.environment };
        let template = environment.get_template(name)?;
        template.render_captured_to(context, &mut text)?;
        text.into_string()
    }
}

/// A line with only a block prints nothing.
fn syntax() -> SyntaxConfig {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    syntax.build().expect("the delimiters are the usual ones")
}

/// Returns a template's source as it is run.
fn prepared(source: &str) -> Result<String, Error> {
    let source = sums::printed_one_by_one(source, syntax())?;
    let source = growth::charged_growth(&source, syntax())?;
    costs::charged_operands(&source, syntax())
}

/// Creates Jinja with Python's functions.
fn bare_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(print);
    environment.add_filter(sums::TEXT, sums::text);
    environment.add_filter(growth::GROWN, growth::grown);
    costs::set_limit(&mut environment, MOST_WORK);
    costs::register(&mut environment);
    python::register(&mut environment);
    environment
}

/// Creates Jinja with the functions of `transformers` too.
fn environment() -> Environment<'static> {
    let mut environment = bare_environment();
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |state: &State<'_, '_>, format: String| {
        let now = state.lookup(NOW).and_then(|now| i64::try_from(now).ok());
        strftime(&format, now.unwrap_or_default())
            .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "this form of a date is unknown here"))
    });
    environment
}

/// Renders a template without the functions of `transformers`.
pub(crate) fn render_bare(source: &str, context: Value) -> Result<String, Error> {
    let mut environment = bare_environment();
    environment.add_template_owned(DEFAULT, prepared(source)?)?;
    let mut text = BoundedText::default();
    environment
        .get_template(DEFAULT)?
        .render_captured_to(context, &mut text)?;
    text.into_string()
}

/// Prints as `str` does: `None` and `True`, not `none` and `true`.
pub(crate) fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        costs::charge(state, text.len())?;
        return out.write_str(text).map_err(Error::from);
    }
    let mut text = String::new();
    value::to_text(&mut text, value)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    costs::charge(state, text.len())?;
    out.write_str(&text).map_err(Error::from)
}

/// Rendered output. The request determines its length, so it is limited here.
#[derive(Debug, Default)]
struct BoundedText(Vec<u8>);

impl BoundedText {
    fn into_string(self) -> Result<String, Error> {
        String::from_utf8(self.0).map_err(|_| Error::new(ErrorKind::WriteFailure, "this is no text"))
    }
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST_TEXT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces `{% generation %}`, which marks the assistant's text for training. It does not change the output, so it
/// becomes a condition that is always true.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = &tag[2..end];
        let name = inner.trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        let replaced = match name {
            "generation" => inner.replacen(name, "if true", 1),
            "endgeneration" => inner.replacen(name, "endif", 1),
            _ => inner.to_owned(),
        };
        out.push_str("{%");
        out.push_str(&replaced);
        out.push_str("%}");
        rest = &tag[end + 2..];
    }
    out.push_str(rest);
    out
}

/// Returns `true` if a template contains `{% generation %}`.
pub(crate) fn has_generation_tags(source: &str) -> bool {
    without_generation_tags(source) != source
}

/// Returns the seconds since 1970.
pub(crate) fn seconds(now: SystemTime) -> i64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Returns `true` if a template's source refuses system messages between the turns. vLLM tests with Jinja alone:
/// functions and tags of `transformers` count as a refusal.
fn refuses_inline_system(source: &str) -> bool {
    let Ok(context) = value::parse(INLINE_SYSTEM) else {
        return true;
    };
    has_generation_tags(source) || render_bare(source, context).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str, context: &str) -> Result<String, Error> {
        let sources = BTreeMap::from([(DEFAULT.to_owned(), source.to_owned())]);
        let templates = ChatTemplates::compile(sources, None, ChatEngine::Vllm).unwrap();
        templates.render(DEFAULT, value::parse(context).unwrap(), 0, false)
    }

    #[track_caller]
    fn check(source: &str, context: &str, expected: &str) {
        assert_eq!(render(source, context).unwrap(), expected, "{source}");
    }

    #[test]
    fn blocks_leave_no_white_space() {
        check("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "{}", "a\n  b\nc");
        check("a {%- if true -%} b {%- endif %} c", "{}", "ab c");
    }

    #[test]
    fn python_values_methods_and_slices_work_in_templates() {
        check(
            "{{ n }}{{ t }}{{ u }}{{ f }}",
            r#"{"n":null,"t":true,"f":1.0}"#,
            "NoneTrue1.0",
        );
        check("{{ d }}", r#"{"d":{"a":["x",null]}}"#, "{'a': ['x', None]}");
        check("{{ s.strip().split('b')[-1].upper() }}", r#"{"s":" abc "}"#, "C");
        check(
            "{{ s.startswith('a') and s.endswith(('c', 'd')) }}",
            r#"{"s":"abc"}"#,
            "True",
        );
        check(
            "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
            r#"{"d":{"b":1,"a":2}}"#,
            "b=1;a=2;",
        );
        check("{{ d.get('x', 'y') }}{{ d['a'] }}", r#"{"d":{"a":1}}"#, "y1");
        check(
            "{{ m[-1].c }}{{ m[1:]|length }}{{ m[::-1][0].c }}",
            r#"{"m":[{"c":1},{"c":2}]}"#,
            "212",
        );
        check(
            "{{ s is iterable }}{{ s is sequence }}{{ s is string }}{{ s is mapping }}",
            r#"{"s":"x"}"#,
            "TrueTrueTrueFalse",
        );
        check(
            "{{ 'x' in s }}{{ s|trim|length }}{{ s.lstrip('\\n') }}",
            r#"{"s":"\nx"}"#,
            "True1x",
        );
        check("{{ 1 | string ~ 'a' }}{{ 'a' ~ 2 }}", "{}", "1aa2");
    }

    #[test]
    fn loops_namespaces_and_macros_work() {
        check(
            "{% set ns = namespace(n=0) %}{% for m in ms %}{% if m == 3 %}{% break %}{% endif %}\
             {% if m == 1 %}{% continue %}{% endif %}{% set ns.n = ns.n + m %}{{ loop.index0 }}{{ loop.last }}{% endfor %}{{ ns.n }}",
            r#"{"ms":[1,2,3]}"#,
            "1False2",
        );
        check(
            "{% macro f(a, b='x') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(2, b=3) }}",
            "{}",
            "<1x><23>",
        );
        check(
            "{%- for m in ms -%}{{ loop.previtem }}{{ loop.nextitem }};{%- endfor -%}",
            r#"{"ms":[1,2]}"#,
            "2;1;",
        );
    }

    #[test]
    fn json_is_written_as_python_writes_it() {
        check(
            "{{ t | tojson }}",
            r#"{"t":{"b":1,"a":["é<",1.0]}}"#,
            r#"{"b": 1, "a": ["é<", 1.0]}"#,
        );
        check("{{ t | tojson(indent=2) }}", r#"{"t":[1]}"#, "[\n  1\n]");
        check(
            "{{ t | tojson(separators=(',', ':'), ensure_ascii=true) }}",
            r#"{"t":{"a":"é"}}"#,
            "{\"a\":\"\\u00e9\"}",
        );
        assert!(render("{{ x | tojson }}", "{}").is_err());
    }

    #[test]
    fn sums_are_of_texts() {
        check("{{ 'a' + b + 'c' }}{{ 1 + 2 }}", r#"{"b":"b"}"#, "abc3");
        for source in [
            "{{ 'a' + b }}",
            "{{ b + 'a' + 'c' }}",
            "{{ 'a' + c }}",
            "{{ 'a' + b + b }}",
        ] {
            for context in [
                r#"{"b":null}"#,
                r#"{"b":1}"#,
                r#"{"b":["x"]}"#,
                r#"{"b":{}}"#,
                "{}",
            ] {
                assert!(render(source, context).is_err(), "{source} {context}");
            }
        }
    }

    #[test]
    fn templates_with_excessive_output_fail_to_render() {
        let wide = format!(r#"{{"t":[{}]}}"#, vec!["\"x\""; 300_000].join(","));
        let deep = format!(
            r#"{{"t":{}{}{}}}"#,
            "[".repeat(100),
            vec!["0"; 100_000].join(","),
            "]".repeat(100)
        );
        for (source, context) in [
            ("{% for a in t %}{{ t|join }}{% endfor %}", &wide),
            ("{{ t | tojson(indent=4) }}", &deep),
        ] {
            assert!(render(source, context).is_err(), "{source}");
        }
    }

    #[test]
    fn generation_marks_print_nothing() {
        check("a{% generation %}b{% endgeneration %}c", "{}", "abc");
        check("a {%- generation -%} b {%- endgeneration -%} c", "{}", "abc");
    }

    #[test]
    fn a_template_can_refuse() {
        let error = render("{{ raise_exception('roles must alternate') }}", "{}").unwrap_err();
        assert!(error.to_string().contains("roles must alternate"));
    }

    #[test]
    fn a_rendering_that_goes_on_for_too_long_ends() {
        let source = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
        let error = render(source, "{}").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfFuel);
    }

    #[test]
    fn the_date_is_the_one_given() {
        check(
            "{{ strftime_now('%d %b %Y') }}",
            r#"{"__now":1700000000}"#,
            "14 Nov 2023",
        );
    }

    #[test]
    fn a_bad_template_is_named() {
        let sources = BTreeMap::from([(TOOL_USE.to_owned(), "{% if %}".to_owned())]);
        let error = ChatTemplates::compile(sources, None, ChatEngine::Vllm).unwrap_err();
        assert_eq!(error.to_string(), "compile the chat template `tool_use`");
    }
}
