//! Python in templates: methods and filters as in Python and Jinja2, where those of the template engine differ.
//!
//! A result that may differ from Python's is an error instead: only the engine then renders the chat.

mod filters;
mod methods;

use minijinja::Environment;

pub(crate) fn register(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(methods::call);
    filters::register(environment);
}

/// Returns `true` for white space as `str.isspace` has it.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Returns a text without its white space at both ends.
pub(crate) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Returns a text without its white space at the end.
pub(crate) fn strip_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

#[cfg(test)]
mod tests;
