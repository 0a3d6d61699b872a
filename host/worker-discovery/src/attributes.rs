//! Attributes: properties of a worker that its source writes as labels or annotations.
//!
//! `conductor_role`, `conductor_models`, `conductor_weight`, `conductor_ranks` and `conductor_bootstrap` are
//! properties. Kubernetes writes them as `conductor/role` and so on. All others are labels for policies.

use std::collections::BTreeMap;

use routing::Role;

use crate::worker::{DiscoveredWorker, WorkerDefaults, bootstrap_url};

/// Most labels of a worker.
const MOST_LABELS: usize = 64;
/// Longest value of a label, in bytes.
const LONGEST_VALUE: usize = 1_024;
/// Longest name of a label, in bytes.
const LONGEST_NAME: usize = 128;
/// Most ranks of a worker, as in the configuration.
const MOST_RANKS: u16 = 256;
/// Largest weight, as in the configuration.
const MOST_WEIGHT: f64 = 1e6;
/// Label of Prometheus with the scheme of a target.
const SCHEME: &str = "__scheme__";

/// Properties and labels of one or more workers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attributes {
    defaults: WorkerDefaults,
    bootstrap: Option<String>,
    labels: BTreeMap<String, String>,
}

impl Attributes {
    /// Reads labels over the properties of the source.
    ///
    /// # Errors
    /// The fault of a property.
    pub(crate) fn read<'l>(
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        defaults: &WorkerDefaults,
    ) -> Result<Self, String> {
        let mut attributes = Self {
            defaults: defaults.clone(),
            bootstrap: None,
            labels: BTreeMap::new(),
        };
        let mut own_role = None;
        for (name, value) in labels {
            let property = name.strip_prefix("conductor_");
            let property = property.or_else(|| name.strip_prefix("conductor/"));
            match property {
                Some("role") => own_role = Some(value),
                Some(property) => attributes.set(property, value)?,
                None if name == SCHEME => attributes.defaults.scheme = scheme(value)?,
                // Prometheus keeps such labels to itself.
                None if name.starts_with("__") => {}
                None => {
                    let is_role = defaults.role_label.as_deref() == Some(name);
                    own_role = own_role.or(is_role.then_some(value));
                    attributes.label(name, value)?;
                }
            }
        }
        if let Some(value) = own_role {
            attributes.defaults.role = role(value)?;
        }
        Ok(attributes)
    }

    /// Adds a label for policies. Characters that no label has become `_`.
    pub(crate) fn label(&mut self, name: &str, value: &str) -> Result<(), String> {
        if self.labels.len() >= MOST_LABELS {
            return Err(format!("it has more than {MOST_LABELS} labels"));
        }
        if name.is_empty() || name.len() > LONGEST_NAME || value.len() > LONGEST_VALUE {
            return Err(format!(
                "a label has an empty name, a name of more than {LONGEST_NAME} bytes, or a value of more than \
                 {LONGEST_VALUE}"
            ));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = name.replace(|c| !is_plain(c), "_");
        self.labels.insert(name, value.to_owned());
        Ok(())
    }

    /// Returns the worker at this address.
    pub(crate) fn worker(&self, address: &str) -> Result<DiscoveredWorker, String> {
        let worker = DiscoveredWorker::at(address, &self.defaults)?;
        Ok(DiscoveredWorker {
            bootstrap: self.bootstrap.clone(),
            labels: self.labels.clone(),
            ..worker
        })
    }

    fn set(&mut self, property: &str, value: &str) -> Result<(), String> {
        match property {
            "models" => {
                let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
                self.defaults.models = names.map(str::to_owned).collect();
            }
            "weight" => {
                let weight = value.parse::<f64>().ok();
                let weight = weight.filter(|&weight| weight > 0.0 && weight <= MOST_WEIGHT);
                self.defaults.weight = weight.ok_or_else(|| {
                    format!("the weight `{value}` is not a number above 0 and at most {MOST_WEIGHT}")
                })?;
            }
            "ranks" => {
                let ranks = value.parse::<u16>().ok();
                let ranks = ranks.filter(|ranks| (1..=MOST_RANKS).contains(ranks));
                self.defaults.ranks = Some(ranks.ok_or_else(|| {
                    format!("the number of ranks `{value}` is not a number from 1 to {MOST_RANKS}")
                })?);
            }
            "bootstrap" => self.bootstrap = Some(bootstrap_url(value)?),
            _ => {
                return Err(format!(
                    "`{property}` is not a property: write `role`, `models`, `weight`, `ranks` or `bootstrap`"
                ));
            }
        }
        Ok(())
    }
}

fn scheme(value: &str) -> Result<&'static str, String> {
    match value {
        "http" => Ok("http"),
        "https" => Ok("https"),
        _ => Err(format!("the scheme `{value}` is neither `http` nor `https`")),
    }
}

/// Reads a role by its name in the configuration, or in llm-d's label.
fn role(value: &str) -> Result<Role, String> {
    match value {
        "mixed" | "both" | "prefill-decode" => Ok(Role::Mixed),
        "prefill" => Ok(Role::Prefill),
        "decode" => Ok(Role::Decode),
        _ => Err(format!(
            "the role `{value}` is none of `mixed`, `prefill` and `decode`"
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn defaults() -> WorkerDefaults {
        WorkerDefaults {
            scheme: "http",
            role: Role::Mixed,
            role_label: None,
            models: Vec::new(),
            weight: 1.0,
            ranks: None,
            max_workers: 1_000,
        }
    }

    fn read(labels: &[(&str, &str)]) -> Result<DiscoveredWorker, String> {
        let attributes = Attributes::read(labels.iter().copied(), &defaults())?;
        attributes.worker("a:1")
    }

    #[test]
    fn properties_are_taken_out_of_the_labels() {
        let worker = read(&[
            ("conductor_role", "prefill"),
            ("conductor/models", "llama, qwen"),
            ("conductor_weight", "2.5"),
            ("conductor_ranks", "4"),
            ("conductor_bootstrap", "a:8998"),
            ("__scheme__", "https"),
            ("__meta_rack", "7"),
            ("topology.kubernetes.io/zone", "b"),
        ])
        .unwrap();
        assert_eq!(worker.url, "https://a:1");
        assert_eq!(
            (worker.role, worker.weight, worker.ranks),
            (Role::Prefill, 2.5, Some(4))
        );
        assert_eq!(worker.models, ["llama", "qwen"]);
        assert_eq!(worker.bootstrap.as_deref(), Some("http://a:8998"));
        let labels: Vec<_> = worker.labels.into_iter().collect();
        assert_eq!(
            labels,
            [("topology.kubernetes.io_zone".to_owned(), "b".to_owned())]
        );
    }

    #[test]
    fn a_label_that_the_source_names_gives_the_role_unless_the_property_does() {
        let defaults = WorkerDefaults {
            role_label: Some("llm-d.ai/role".to_owned()),
            ..defaults()
        };
        let role = |labels: &[(&str, &str)]| {
            let attributes = Attributes::read(labels.iter().copied(), &defaults).unwrap();
            attributes.worker("a:1").unwrap().role
        };
        assert_eq!(role(&[("llm-d.ai/role", "decode")]), Role::Decode);
        assert_eq!(role(&[("llm-d.ai/role", "both")]), Role::Mixed);
        let both = [("conductor/role", "prefill"), ("llm-d.ai/role", "decode")];
        assert_eq!(role(&both), Role::Prefill);
        assert_eq!(role(&[("role", "decode")]), Role::Mixed);
    }

    #[test]
    fn a_bad_property_is_a_fault_that_names_it() {
        for (name, value, message) in [
            ("conductor_role", "both-of-them", "both-of-them"),
            ("conductor_weight", "-1", "-1"),
            ("conductor_weight", "NaN", "NaN"),
            ("conductor_ranks", "0", "from 1 to 256"),
            ("conductor_bootstrap", "http://", "http://"),
            ("conductor_bootstrap", "https://a:1", "over https"),
            ("conductor_speed", "1", "speed"),
            ("__scheme__", "ftp", "ftp"),
            ("", "x", "empty name"),
        ] {
            let fault = read(&[(name, value)]).unwrap_err();
            assert!(fault.contains(message), "{name}: {fault}");
        }
    }

    #[test]
    fn labels_are_bounded_in_number_and_length() {
        let names: Vec<String> = (0..=MOST_LABELS).map(|number| format!("l{number}")).collect();
        let labels: Vec<_> = names.iter().map(|name| (&**name, "x")).collect();
        assert!(read(&labels[1..]).is_ok());
        assert!(read(&labels).unwrap_err().contains("more than 64"));
        let long = "x".repeat(LONGEST_VALUE + 1);
        assert!(read(&[("a", &long)]).is_err());
    }
}
