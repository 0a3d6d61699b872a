//! `conductor import`: the configuration of Mooncake's old conductors (`conductor_config.json`) as ours.
//!
//! Both shapes are read: that of January 2026 (`ip`, `port`, `lora_id`) and the later one (`endpoint`, `instance_id`, ...).
//! What has no counterpart is left out and told; nothing is guessed that could make an answer wrong.

mod environment;
mod service;
mod toml;

use std::path::Path;

use serde_json::{Map, Value};
use thiserror::Error;

pub use self::environment::OldEnvironment;
use self::service::{Imported as ImportedService, Services};
pub(crate) use self::toml::quoted;

/// The port of the old conductors where their file named none.
const OLD_PORT: u16 = 13_333;

/// A configuration in our form, and what it leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Passes `conductor check`.
    pub toml: String,
    /// What was not carried over, each a sentence.
    pub warnings: Vec<String>,
}

/// The text is no old configuration.
#[derive(Debug, Error)]
pub enum ImportError {
    /// It cannot be read.
    #[error("failed to read `{path}`")]
    Read {
        /// Which.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// It is no JSON.
    #[error("failed to import `{name}`: it is not JSON (a conductor.toml is given with --config)")]
    Json {
        /// Which.
        name: String,
        /// Where it stops being JSON.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON of another kind.
    #[error("failed to import `{name}`: it is not a JSON object")]
    NotAnObject {
        /// Which.
        name: String,
    },
}

/// Reads and translates an old configuration file.
///
/// # Errors
/// [`ImportError`].
pub fn import_file(file: &Path, environment: &OldEnvironment) -> Result<Imported, ImportError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|source| ImportError::Read {
        path: name.clone(),
        source,
    })?;
    import(&name, &text, environment)
}

/// Translates the text of an old configuration file; `name` is what messages call it.
///
/// # Errors
/// Where it is no JSON object.
pub fn import(name: &str, text: &str, environment: &OldEnvironment) -> Result<Imported, ImportError> {
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
    let mut services = Services::new(environment.block_size(&mut warnings));
    let entries = match root.get("kvevent_instance") {
        Some(Value::Object(entries)) => entries.clone(),
        Some(_) => {
            warnings.push("`kvevent_instance` is not an object: it is left out".to_owned());
            Map::new()
        }
        None => Map::new(),
    };
    // First those that are called as their key: of two of one name, the other is renamed.
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
    Ok(Imported {
        toml: toml::write(name, level, port, &services.services, &warnings),
        warnings,
    })
}

/// The old conductors took any free port where the file named none, and theirs by default where there was no file.
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
