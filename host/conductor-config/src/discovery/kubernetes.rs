//! `kubernetes` of a source: objects of a namespace, and access to the API server.

use toml::de::DeValue;

use super::server_url::{FILE, base_url};
use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Item;
use crate::file::{NamedFile, read_file};
use crate::key::{self, KeySource};

/// `kubernetes` of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesConfig {
    /// The objects.
    pub objects: KubernetesObjects,
    /// Namespace; `None` for that of the router's pod.
    pub namespace: Option<String>,
    /// Name or number of the workers' port; `None` for the only one.
    pub port: Option<String>,
    /// URL of the API server; `None` for that of the cluster that the router runs in.
    pub api_server: Option<String>,
    /// Location of the token; `None` for that of the router's pod, or none with `api_server`.
    pub token: Option<KeySource>,
    /// File of the authorities; `None` for that of the router's pod, or the system's with `api_server`.
    pub ca: Option<NamedFile>,
}

/// Objects that stand for workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubernetesObjects {
    /// Ready endpoints of this Service.
    Service(String),
    /// Ready pods with these labels.
    Selector(String),
}

/// Longest name and selector, in bytes.
const LONGEST: usize = 1_024;

/// Reads the table. `None` if something is missing or wrong, which is reported.
pub(super) fn read(item: &Item<'_>) -> Option<KubernetesConfig> {
    let mut section = Section::of(item, "`kubernetes`".to_owned())?;
    let (service, selector) = (section.item("service"), section.item("selector"));
    let objects = match (&service, &selector) {
        (Some(service), None) => short(service).map(KubernetesObjects::Service),
        (None, Some(selector)) => short(selector).map(KubernetesObjects::Selector),
        (one, _) => {
            let message = match one {
                Some(_) => "`service` and `selector` exclude each other",
                None => "`kubernetes` does not name its objects",
            };
            let code = match one {
                Some(_) => Code::ConflictingKeys,
                None => Code::MissingKey,
            };
            let problem = Problem::new(code, &item.span, message);
            item.report.push(
                problem.help("write service = \"NAME\" for a Service, or selector = \"app=vllm\" for pods"),
            );
            None
        }
    };
    let namespace = section.item("namespace");
    let api_server = section.text("api-server");
    let config = KubernetesConfig {
        objects: objects
            .clone()
            .unwrap_or(KubernetesObjects::Service(String::new())),
        namespace: namespace.and_then(|item| short(&item)),
        port: section.item("port").and_then(|item| port(&item)),
        api_server: api_server.as_ref().and_then(|text| {
            let base = text.text.strip_suffix('/').unwrap_or(text.text);
            base_url(base, text, item.report)
        }),
        token: section.item("token").and_then(|item| key::read(&item)),
        ca: section.item("ca").and_then(|item| read_file(&item, FILE)),
    };
    let needs_namespace = api_server.is_some() && config.namespace.is_none();
    if needs_namespace {
        let message = "`api-server` needs `namespace`: the router's own is known in its cluster only";
        let problem = Problem::new(Code::MissingKey, &item.span, message);
        item.report.push(problem.help("add namespace = \"default\""));
    }
    let is_lost = api_server.is_some() && config.api_server.is_none();
    section.finish();
    objects.filter(|_| !needs_namespace && !is_lost).map(|_| config)
}

fn short(item: &Item<'_>) -> Option<String> {
    let text = item.text()?;
    if text.text.is_empty() || text.text.len() > LONGEST {
        let message = format!("`{}` is empty, or has more than {LONGEST} bytes", item.key);
        item.report
            .push(Problem::new(Code::InvalidValue, &text.span, message));
        return None;
    }
    Some(text.text.to_owned())
}

/// Reads the name of a port, or its number.
fn port(item: &Item<'_>) -> Option<String> {
    match item.value {
        DeValue::Integer(_) => Some(item.count(&(1..=u64::from(u16::MAX)))?.to_string()),
        _ => short(item),
    }
}
