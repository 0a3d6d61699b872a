//! Diagnostics of the policy tools.

use std::fmt;

use conductor_config::{
    Code, Diagnostic as ConfigDiagnostic, Location, PolicyConfig, Severity as ConfigSeverity,
};
use policy_runtime::{LoadError, ParamFault, ParamFaults};
use serde::Serialize;

use observability::error_chain;
use policy_store::param_diagnostics;

/// Severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// The router would not load the policy, or its fallback would decide in its place.
    Error,
    /// The policy works, but may not work well.
    Warning,
}

/// Problem of a policy, with a cure.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Diagnostic {
    /// Severity.
    pub(super) severity: Severity,
    /// Stable kind.
    pub(super) code: String,
    /// Description of the problem.
    pub(super) message: String,
    /// Cure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
    /// Place in a configuration file.
    #[serde(flatten)]
    pub(super) place: Option<DiagnosticPlace>,
}

/// Name of a configuration file, and a policy in it.
pub(super) type ConfiguredPolicy = (String, PolicyConfig);

/// Place in a configuration file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DiagnosticPlace {
    /// The file.
    pub(super) config: String,
    /// Line, from 1.
    pub(super) line: usize,
    /// Column, from 1, in characters.
    pub(super) column: usize,
}

impl Diagnostic {
    /// Returns an error: the router would not accept the item.
    pub(super) fn error(code: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code: code.to_owned(),
            message: message.into(),
            help: None,
            place: None,
        }
    }

    /// Returns a warning.
    pub(super) fn warning(code: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, message)
        }
    }

    /// Adds a cure.
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the reasons for not loading a policy, with the places of faulty settings.
    pub(super) fn not_loaded(error: &LoadError, configured: Option<&ConfiguredPolicy>) -> Vec<Self> {
        if let Some(faults) = error.param_faults() {
            return Self::refused_params(faults, configured);
        }
        let message = format!("failed to {}", error_chain(error));
        if let LoadError::Instantiate { .. } = error {
            let help = "if it needs more memory, as some interpreters do: --memory-mib here, and `limits` of [policies.NAME] for the \
                        router";
            return vec![Self::error("not-loadable", message).help(help)];
        }
        if !error.is_in_settings() {
            return vec![Self::error("not-loadable", message)];
        }
        vec![Self {
            place: configured
                .map(|(config, policy)| DiagnosticPlace::new(config, policy.settings_at().location)),
            ..Self::error("settings-refused", message)
        }]
    }

    fn refused_params(faults: &ParamFaults, configured: Option<&ConfiguredPolicy>) -> Vec<Self> {
        if let Some((config, policy)) = configured {
            let mistakes = param_diagnostics(policy, faults);
            return mistakes
                .iter()
                .map(|mistake| Self::of_config(config, mistake))
                .collect();
        }
        let finding = |fault: &ParamFault| Self {
            help: fault.help.clone(),
            ..Self::error(Code::RefusedParam.as_str(), &fault.message)
        };
        faults.faults.iter().map(finding).collect()
    }

    /// Returns a mistake of a configuration file.
    pub(super) fn of_config(config: &str, mistake: &ConfigDiagnostic) -> Self {
        Self {
            severity: match mistake.severity() {
                ConfigSeverity::Warning => Severity::Warning,
                ConfigSeverity::Error => Severity::Error,
            },
            code: mistake.code.as_str().to_owned(),
            message: mistake.message.clone(),
            help: mistake.help.clone(),
            place: Some(DiagnosticPlace::new(config, mistake.primary.location)),
        }
    }
}

impl DiagnosticPlace {
    fn new(config: &str, at: Location) -> Self {
        Self {
            config: config.to_owned(),
            line: at.line,
            column: at.column,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}]: ", self.code)?;
        if let Some(DiagnosticPlace { config, line, column }) = &self.place {
            write!(f, "{config}:{line}:{column}: ")?;
        }
        writeln!(f, "{}", self.message)?;
        match &self.help {
            Some(help) => writeln!(f, "  help: {help}"),
            None => Ok(()),
        }
    }
}
