//! Parameter descriptions of a policy, and the validation of `params` against them.
//!
//! A policy without a description gets any parameters, as does one with a parameter of an unknown kind: only its
//! `configure` can validate them.

mod check;

use std::fmt;

use serde_json::Value;
use thiserror::Error;

pub(crate) use check::check;
pub use check::{ParamFault, ParamFaults, ParamPlace};

use crate::bindings::parameters;
use crate::text::{cut, one_line};

/// Most parameters.
const MOST: usize = 256;
/// Longest name, default or choice in bytes; truncation would change its meaning.
const MOST_BYTES: usize = 4 << 10;
/// Most choices of one parameter.
const MOST_CHOICES: usize = 256;
/// Largest relative error of a default: bounds are exact, and the text of a default may have 15 digits.
const ROUNDING: f64 = 1e-12;
/// Longest unit that is kept, in bytes.
const UNIT_BYTES: usize = 64;
/// Longest description that is kept, in bytes.
const ABOUT_BYTES: usize = 512;

/// A parameter, as described by its policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Key in `params`.
    pub name: String,
    /// Type of its values.
    pub kind: ParameterKind,
    /// Default value; `None` if the parameter is required.
    pub default: Option<Value>,
    /// Unit of a number; empty for none.
    pub unit: String,
    /// Lower bound; `None` for any.
    pub least: Option<f64>,
    /// Upper bound; `None` for any.
    pub most: Option<f64>,
    /// Allowed texts; empty for any.
    pub choices: Vec<String>,
    /// Description.
    pub about: String,
}

/// Type of a parameter's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterKind {
    /// Any number.
    Number,
    /// A number without a fraction.
    Integer,
    /// True or false.
    Boolean,
    /// A text.
    Text,
    /// A list of anything.
    List,
    /// An unknown type, which this router does not check.
    Other(String),
}

/// A policy's description of its parameters is invalid.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// Too many parameters.
    #[error("it has {0} parameters: the most is {MOST}")]
    TooMany(usize),
    /// A parameter without a name.
    #[error("parameter {0} has no name")]
    Nameless(usize),
    /// A text is too long to be kept.
    #[error("the {what} of `{name}` is longer than {MOST_BYTES} bytes")]
    TooLong {
        /// The parameter's name, truncated.
        name: String,
        /// The kind of text.
        what: &'static str,
    },
    /// Too many choices.
    #[error("`{name}` has {count} choices: the most is {MOST_CHOICES}")]
    TooManyChoices {
        /// The parameter.
        name: String,
        /// Number of choices.
        count: usize,
    },
    /// Two parameters have one name.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// The bounds exclude every number.
    #[error("`{name}` has a least of {least} and a most of {most}")]
    EmptyRange {
        /// The parameter.
        name: String,
        /// The lower bound.
        least: f64,
        /// The upper bound.
        most: f64,
    },
    /// The default is not JSON.
    #[error("the default of `{name}` is not JSON: `{default}`{}", hint(default))]
    DefaultNotJson {
        /// The parameter.
        name: String,
        /// The default as sent.
        default: String,
    },
    /// The default does not match its own description.
    #[error("its own default does not fit: {0}")]
    DefaultRefused(String),
}

/// Returns a hint for a default that is a bare word: it was meant as a text.
fn hint(default: &str) -> String {
    let is_word = default.starts_with(|first: char| first.is_alphabetic());
    if is_word {
        format!(" (a text is written with its quotes, as `\"{default}\"`)")
    } else {
        String::new()
    }
}

impl Parameter {
    /// Reads the policy's description.
    pub(crate) fn read_all(described: Vec<parameters::Parameter>) -> Result<Vec<Self>, ParameterError> {
        if described.len() > MOST {
            return Err(ParameterError::TooMany(described.len()));
        }
        let mut read: Vec<Self> = Vec::with_capacity(described.len());
        for (position, parameter) in described.into_iter().enumerate() {
            if parameter.name.is_empty() {
                return Err(ParameterError::Nameless(position));
            }
            let parameter = Self::read(parameter)?;
            if read.iter().any(|earlier| earlier.name == parameter.name) {
                return Err(ParameterError::Twice(parameter.name));
            }
            read.push(parameter);
        }
        Ok(read)
    }

    fn read(described: parameters::Parameter) -> Result<Self, ParameterError> {
        check_lengths(&described)?;
        let parameters::Parameter {
            name, least, most, ..
        } = described;
        if least > most {
            return Err(ParameterError::EmptyRange { name, least, most });
        }
        let bound = |bound: f64| bound.is_finite().then_some(bound);
        let mut parameter = Self {
            kind: ParameterKind::read(described.kind),
            default: default(&name, &described.default)?,
            unit: one_line(&described.unit, UNIT_BYTES),
            least: bound(least),
            most: bound(most),
            choices: described.choices,
            about: one_line(&described.about, ABOUT_BYTES),
            name,
        };
        parameter.unround_default();
        match parameter
            .default
            .as_ref()
            .and_then(|value| parameter.type_fault(value))
        {
            Some(type_fault) => Err(ParameterError::DefaultRefused(type_fault)),
            None => Ok(parameter),
        }
    }

    /// Replaces a default of a `number` that is a bound but for the rounding of its text by that bound.
    fn unround_default(&mut self) {
        if self.kind != ParameterKind::Number {
            return;
        }
        let Some(number) = self.default.as_ref().and_then(Value::as_f64) else {
            return;
        };
        let bound = match (self.least, self.most) {
            (Some(least), _) if number < least => least,
            (_, Some(most)) if number > most => most,
            _ => return,
        };
        if (number - bound).abs() <= bound.abs() * ROUNDING {
            self.default = Some(bound.into());
        }
    }
}

fn check_lengths(described: &parameters::Parameter) -> Result<(), ParameterError> {
    let parameters::Parameter {
        name, kind, choices, ..
    } = described;
    let shown = || cut(name.clone(), UNIT_BYTES);
    let choices_in_all = choices.iter().map(String::len).max().unwrap_or(0);
    let parts = [
        ("name", name.len()),
        ("kind", kind.len()),
        ("default", described.default.len()),
        ("choices", choices_in_all),
    ];
    if let Some((what, _)) = parts.into_iter().find(|&(_, bytes)| bytes > MOST_BYTES) {
        return Err(ParameterError::TooLong { name: shown(), what });
    }
    match choices.len() {
        count if count > MOST_CHOICES => Err(ParameterError::TooManyChoices { name: shown(), count }),
        _ => Ok(()),
    }
}

fn default(name: &str, json: &str) -> Result<Option<Value>, ParameterError> {
    if json.is_empty() {
        return Ok(None);
    }
    let not_json = |_| ParameterError::DefaultNotJson {
        name: name.to_owned(),
        default: json.to_owned(),
    };
    serde_json::from_str(json).map(Some).map_err(not_json)
}

impl ParameterKind {
    fn read(name: String) -> Self {
        let known = [Self::Number, Self::Integer, Self::Boolean, Self::Text, Self::List];
        let found = known.into_iter().find(|kind| kind.as_str() == name);
        found.unwrap_or(Self::Other(name))
    }

    /// Returns the name used in the contract.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Text => "text",
            Self::List => "list",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
