//! Validation of `params` against a policy's description: reports every difference at once.

use std::fmt;

use serde_json::{Map, Value};

use super::{Parameter, ParameterKind};
use crate::contract::nearest;

/// A fault in the `params` of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamFault {
    /// The parameter.
    pub name: String,
    /// Position of the fault.
    pub place: ParamPlace,
    /// The fault, in a sentence without a full stop.
    pub message: String,
    /// The fix.
    pub help: Option<String>,
}

/// Position of a parameter's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamPlace {
    /// Name.
    Name,
    /// Value.
    Value,
    /// The parameter is missing.
    Missing,
}

/// All faults in the `params` of a policy, and its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ParamFaults {
    /// Faults, never empty, in the order of the given names, then missing ones.
    pub faults: Vec<ParamFault>,
    /// Parameters as the policy describes them.
    pub parameters: Vec<Parameter>,
}

impl fmt::Display for ParamFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.faults.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            write!(f, "{separator}{}", fault.message)?;
            // Of other faults, the message has the allowed values.
            if let (ParamPlace::Name, Some(help)) = (fault.place, &fault.help) {
                write!(f, ": {help}")?;
            }
        }
        Ok(())
    }
}

/// Compares `params`, a JSON object, with the policy's description. Other JSON is left to the policy.
pub(crate) fn check(parameters: &[Parameter], params: &str) -> Result<(), ParamFaults> {
    let Ok(given) = serde_json::from_str::<Map<String, Value>>(params) else {
        return Ok(());
    };
    let given_faults = given.iter().filter_map(|(name, value)| {
        let known = parameters.iter().find(|parameter| parameter.name == *name);
        match known {
            Some(parameter) => parameter.refuse(value),
            None => Some(unknown(name, parameters)),
        }
    });
    let missing = parameters
        .iter()
        .filter(|parameter| parameter.default.is_none() && !given.contains_key(&parameter.name));
    let faults: Vec<ParamFault> = given_faults.chain(missing.map(Parameter::missing)).collect();
    if faults.is_empty() {
        return Ok(());
    }
    Err(ParamFaults {
        faults,
        parameters: parameters.to_vec(),
    })
}

fn unknown(name: &str, parameters: &[Parameter]) -> ParamFault {
    let known = || parameters.iter().map(|parameter| parameter.name.as_str());
    let help = match nearest(name, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if parameters.is_empty() => "the policy has no parameters".to_owned(),
        None => format!("the parameters are {}", list(known())),
    };
    ParamFault {
        name: name.to_owned(),
        place: ParamPlace::Name,
        message: format!("unknown parameter `{name}`"),
        help: Some(help),
    }
}

impl Parameter {
    fn refuse(&self, value: &Value) -> Option<ParamFault> {
        Some(ParamFault {
            name: self.name.clone(),
            place: ParamPlace::Value,
            message: self.type_fault(value)?,
            help: self.help(value),
        })
    }

    fn missing(&self) -> ParamFault {
        ParamFault {
            name: self.name.clone(),
            place: ParamPlace::Missing,
            message: format!("the parameter `{}` must be given: {}", self.name, self.wanted()),
            help: self.sentence(),
        }
    }

    /// Returns the fault of a value.
    pub(super) fn type_fault(&self, value: &Value) -> Option<String> {
        let wanted = self.wanted();
        let name = &self.name;
        let fits = match (&self.kind, value) {
            (ParameterKind::Other(_), _) | (ParameterKind::Boolean, Value::Bool(_)) => true,
            (ParameterKind::List, Value::Array(_)) => true,
            (ParameterKind::Number | ParameterKind::Integer, Value::Number(number)) => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                let is_whole = self.kind == ParameterKind::Number || number.fract() == 0.0;
                is_whole && self.is_in_bounds(number)
            }
            (ParameterKind::Text, Value::String(text)) => {
                self.choices.is_empty() || self.choices.contains(text)
            }
            _ => return Some(format!("`{name}` must be {wanted}, not {}", kind_of(value))),
        };
        (!fits).then(|| format!("`{name}` must be {wanted}, not {value}"))
    }

    fn is_in_bounds(&self, number: f64) -> bool {
        // NaN is within no bounds.
        self.least.is_none_or(|least| number >= least) && self.most.is_none_or(|most| number <= most)
    }

    /// Returns the expected type with its article.
    fn wanted(&self) -> String {
        let kind = match &self.kind {
            ParameterKind::Number => "a number",
            ParameterKind::Integer => "a whole number",
            ParameterKind::Boolean => return "true or false".to_owned(),
            ParameterKind::List => return "a list".to_owned(),
            ParameterKind::Text if self.choices.is_empty() => return "a text".to_owned(),
            ParameterKind::Text => {
                return format!("one of {}", list(self.choices.iter().map(String::as_str)));
            }
            ParameterKind::Other(kind) => return format!("a value of the kind `{kind}`"),
        };
        let unit = match self.unit.as_str() {
            "" => String::new(),
            unit => format!("({unit})"),
        };
        let parts = [kind, &self.bounds(), &unit];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }

    /// Returns its bounds in words, such as `from 0 to 10`; empty for none.
    #[must_use]
    pub fn bounds(&self) -> String {
        match (self.least, self.most) {
            (Some(least), Some(most)) => format!("from {least} to {most}"),
            (Some(least), None) => format!("of at least {least}"),
            (None, Some(most)) => format!("of at most {most}"),
            (None, None) => String::new(),
        }
    }

    fn help(&self, value: &Value) -> Option<String> {
        let near = value
            .as_str()
            .and_then(|text| nearest(text, self.choices.iter().map(String::as_str)));
        match near {
            Some(near) => Some(format!("did you mean `{near}`?")),
            None => self.sentence(),
        }
    }

    fn sentence(&self) -> Option<String> {
        (!self.about.is_empty()).then(|| format!("`{}`: {}", self.name, self.about))
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// `` `a`, `b` ``
fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
