//! `conductor policy list`: the policies of this binary, or of a folder.

use std::fmt;
use std::path::Path;

use conductor_config::check_policy_name;
use policy_runtime::{DescribedPolicy, PolicyEngine, PolicySettings};
use serde::Serialize;

use super::component::ComponentFile;
use super::{engine, print};
use crate::args::ListArgs;
use crate::{Exit, UsageError};
use local_files::policy_folder::{misnamed_in, policies_in};
use observability::error_chain;
use operator_tools::table::{Side, Table};
use operator_tools::units::size;
use policy_store::builtin::{BUILTINS, DEFAULT};

/// Lists them.
///
/// # Errors
/// If the folder cannot be read, or the runtime cannot start.
pub(super) fn run(args: &ListArgs) -> anyhow::Result<Exit> {
    let engine = engine()?;
    let policies = match &args.dir {
        Some(folder) => in_folder(folder, &engine)?,
        None => (BUILTINS.iter())
            .map(|builtin| Listed::new(&engine, &ComponentFile::of(builtin), Some(builtin.about)))
            .collect(),
    };
    let report = ListReport { policies };
    print(&report, args.json)?;
    Ok(report.exit())
}

fn in_folder(folder: &Path, engine: &PolicyEngine) -> anyhow::Result<Vec<Listed>> {
    // The router treats an unreadable folder as empty; the command reports it.
    std::fs::read_dir(folder).map_err(|source| {
        UsageError::new(super::ComponentFileError::Read {
            path: folder.to_owned(),
            source,
        })
    })?;
    let files = policies_in(folder).into_iter();
    let listed = files.map(|(_, path)| {
        Ok(Listed::new(
            engine,
            &ComponentFile::read(&path).map_err(UsageError::new)?,
            None,
        ))
    });
    let misnamed = misnamed_in(folder).map(|path| {
        let listed = Listed::new(
            engine,
            &ComponentFile::read(&path).map_err(UsageError::new)?,
            None,
        );
        let problem = check_policy_name(&listed.name).err();
        Ok(Listed { problem, ..listed })
    });
    listed.chain(misnamed).collect()
}

/// The policies, sorted by name.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct ListReport {
    policies: Vec<Listed>,
}

/// One policy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Listed {
    /// Name for routes.
    name: String,
    /// `builtin NAME`, or the file.
    source: String,
    bytes: usize,
    sha256: String,
    /// Name in its manifest, if it can be loaded.
    manifest: Option<String>,
    version: Option<String>,
    /// True if a pipeline may have it as a scorer.
    scores: bool,
    /// True if it is the default of routes that name no policy.
    default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'static str>,
    /// Problem, if it cannot be loaded.
    problem: Option<String>,
}

impl Listed {
    fn new(engine: &PolicyEngine, subject: &ComponentFile, about: Option<&'static str>) -> Self {
        let description = engine.describe(&subject.bytes, &PolicySettings::default());
        let scores = description.as_ref().is_ok_and(DescribedPolicy::scores_singly);
        let (manifest, problem) = match description {
            Ok(description) => (Some(description.manifest), None),
            Err(error) => (None, Some(format!("failed to {}", error_chain(&error)))),
        };
        let (manifest, version) = manifest.map(|manifest| (manifest.name, manifest.version)).unzip();
        Self {
            name: subject.name.clone(),
            source: subject.label.clone(),
            bytes: subject.bytes.len(),
            sha256: subject.sha256(),
            manifest,
            version,
            scores,
            default: about.is_some() && subject.name == DEFAULT,
            about,
            problem,
        }
    }
}

impl ListReport {
    fn exit(&self) -> Exit {
        if self.policies.iter().any(|policy| policy.problem.is_some()) {
            Exit::Failure
        } else {
            Exit::Success
        }
    }
}

impl fmt::Display for ListReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.policies.is_empty() {
            return writeln!(f, "no policies there: a policy is a file NAME.wasm");
        }
        let mut table = Table::new(&[
            ("policy", Side::Left),
            ("version", Side::Left),
            ("size", Side::Right),
            ("sha256", Side::Left),
            ("", Side::Left),
        ]);
        for policy in &self.policies {
            let mark = if policy.default { " (the default)" } else { "" };
            table.row([
                format!("{}{mark}", policy.name),
                policy.version.clone().unwrap_or_default(),
                size(policy.bytes),
                policy.sha256[..12].to_owned(),
                policy
                    .about
                    .map(str::to_owned)
                    .or_else(|| policy.problem.clone())
                    .or_else(|| policy.scores.then(|| "scorer".to_owned()))
                    .unwrap_or_default(),
            ]);
        }
        table.fmt(f)
    }
}
