//! Import of the configuration of Mooncake's older conductors (`conductor_config.json`), for `conductor import`.
//!
//! Both shapes are read: that of January 2026 (`ip`, `port`, `lora_id`) and the later one (`endpoint`, `instance_id`,
//! ...). A setting without a counterpart is left out with a warning. No value is guessed that could make an answer
//! wrong.

mod environment;
mod service;
mod toml;

use std::path::Path;

use serde_json::{Map, Value};
use thiserror::Error;

pub use self::environment::LegacyEnvironment;
use self::service::{ImportedService, ServiceReader};

/// The port of the old conductors where their file named none.
const OLD_PORT: u16 = 13_333;

/// Translated configuration, with a warning for each setting that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedConfig {
    /// Text of a `conductor.toml` that passes `conductor check`.
    pub toml: String,
    /// One sentence for each setting that is left out or changed.
    pub warnings: Vec<String>,
}

/// Error of an import.
#[derive(Debug, Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("failed to read `{path}`")]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The text is not JSON.
    #[error("failed to import `{name}`: it is not JSON (a conductor.toml is given with --config)")]
    Json {
        /// Name of the file.
        name: String,
        /// Error of the parser, with its place.
        #[source]
        source: serde_json::Error,
    },
    /// The text is JSON, but not an object.
    #[error("failed to import `{name}`: it is not a JSON object")]
    NotAnObject {
        /// Name of the file.
        name: String,
    },
}

/// Reads and translates a configuration file of an older conductor.
///
/// # Errors
/// [`ImportError`].
pub fn import_file(file: &Path, environment: &LegacyEnvironment) -> Result<ImportedConfig, ImportError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ImportError::Read {
        path: name.clone(),
        source,
    })?;
    import(&name, &text, environment)
}

/// Translates the text of a configuration file of an older conductor. Messages call it `name`.
///
/// # Errors
/// [`ImportError::Json`] or [`ImportError::NotAnObject`].
pub fn import(
    name: &str,
    text: &str,
    environment: &LegacyEnvironment,
) -> Result<ImportedConfig, ImportError> {
    let value: Value = serde_json::from_str(text).map_err(|source| ImportError::Json {
        name: name.to_owned(),
        source,
    })?;
    let Value::Object(root) = value else {
        return Err(ImportError::NotAnObject {
            name: name.to_owned(),
        });
    };
    let mut warnings = Vec::new();
    let level = environment.log_level(&mut warnings);
    let port = read_port(&root, &mut warnings);
    let mut services = ServiceReader::new(environment.block_size(&mut warnings));
    let entries = match root.get("kvevent_instance") {
        Some(Value::Object(entries)) => entries.clone(),
        Some(_) => {
            warnings.push("`kvevent_instance` is not an object: it is left out".to_owned());
            Map::new()
        }
        None => Map::new(),
    };
    // Entries whose name is their key come first: of two with one name, the other is renamed.
    let (renamed, own): (Vec<_>, Vec<_>) = entries.iter().partition(|(name, entry)| {
        let instance = entry.get("instance_id").and_then(Value::as_str);
        instance.is_some_and(|instance| instance != *name)
    });
    for (name, entry) in own.into_iter().chain(renamed) {
        services.read(name, entry, &mut warnings);
    }
    for key in root.keys() {
        if !["http_server_port", "kvevent_instance"].contains(&key.as_str()) {
            warnings.push(format!("`{key}` is not known: it is left out"));
        }
    }
    environment.explain_rest(services.used_block_size(), &mut warnings);
    Ok(ImportedConfig {
        toml: toml::write(name, level, port, &services.services, &warnings),
        warnings,
    })
}

/// Returns the port to listen on. The older conductors took a free port if the file named none.
fn read_port(root: &Map<String, Value>, warnings: &mut Vec<String>) -> u16 {
    let port = root.get("http_server_port");
    if let Some(port) = port
        .and_then(Value::as_u64)
        .and_then(|port| u16::try_from(port).ok())
        && port > 0
    {
        return port;
    }
    warnings.push(match port {
        None => format!("`http_server_port` is not set: {OLD_PORT} is taken"),
        Some(port) => format!("`http_server_port` is {port}, which is no port: {OLD_PORT} is taken"),
    });
    OLD_PORT
}

#[cfg(test)]
mod tests;
