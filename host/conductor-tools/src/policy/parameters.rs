//! The parameters of a policy, as `conductor policy inspect` shows them.

use policy_runtime::Parameter;
use serde::Serialize;
use serde_json::Value;

use operator_tools::table::{Side, Table};

/// Row of one parameter.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct ParameterRow {
    name: String,
    kind: String,
    /// Default value. `None` if the parameter is required.
    default: Option<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    choices: Vec<String>,
    about: String,
    /// Allowed values, in words.
    #[serde(skip)]
    range: String,
}

impl ParameterRow {
    /// Returns all parameters of a policy.
    pub(super) fn all(parameters: &[Parameter]) -> Vec<Self> {
        parameters.iter().map(Self::of).collect()
    }

    fn of(parameter: &Parameter) -> Self {
        let choices = parameter.choices.join(", ");
        let range = match (parameter.least, parameter.most) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            _ if choices.is_empty() => parameter.bounds(),
            _ => choices,
        };
        Self {
            name: parameter.name.clone(),
            kind: parameter.kind.to_string(),
            default: parameter.default.clone(),
            unit: parameter.unit.clone(),
            least: parameter.least,
            most: parameter.most,
            choices: parameter.choices.clone(),
            about: parameter.about.clone(),
            range,
        }
    }

    fn cells(&self) -> [String; 6] {
        let default = self.default.as_ref();
        [
            self.name.clone(),
            self.kind.clone(),
            default.map_or_else(|| "must be given".to_owned(), Value::to_string),
            self.unit.clone(),
            self.range.clone(),
            self.about.clone(),
        ]
    }
}

/// Returns all parameters as a table with a heading.
pub(super) fn shown(parameters: &[ParameterRow]) -> String {
    if parameters.is_empty() {
        return "params     none\n".to_owned();
    }
    let heads = ["name", "kind", "default", "unit", "range", "about"];
    let mut table = Table::new(&heads.map(|head| (head, Side::Left)));
    for parameter in parameters {
        table.row(parameter.cells());
    }
    format!("\nParameters (`params` of [policies.NAME])\n\n{table}\n")
}
