//! Document machinery: source text, syntax tree, sections, values, and diagnostics.

pub(crate) mod code;
pub(crate) mod controls;
pub(crate) mod diagnostic;
pub(crate) mod redact;
pub(crate) mod renamed;
pub(crate) mod render;
pub(crate) mod report;
pub(crate) mod section;
pub(crate) mod source;
pub(crate) mod suggest;
pub(crate) mod syntax;
pub(crate) mod unit;
pub(crate) mod value;
