//! Name resolution: pools and policies that routes and pipelines refer to.

use std::collections::HashSet;

use crate::document::code::Code;
use crate::document::renamed::warn_renamed;
use crate::document::report::{Problem, Report};
use crate::document::source::Mark;
use crate::document::suggest;
use crate::document::value::Text;
use crate::known::Known;
use crate::policies::model::{DeclaredPolicy, PolicyConfig, PolicySource};
use crate::pools::{DeclaredPool, PoolConfig};

/// Names that routes can refer to.
pub(crate) struct Names<'n> {
    pub(crate) known: &'n Known<'n>,
    pub(crate) pools: &'n [DeclaredPool],
    pub(crate) policies: &'n [DeclaredPolicy],
    /// Files of the policy folder, if there is one.
    pub(crate) in_folder: Option<&'n [String]>,
    /// Pools with a source of workers, whose models are not known here.
    pub(crate) discovered: &'n HashSet<String>,
}

pub(super) fn find_pool<'n>(text: &Text<'_>, names: &Names<'n>, report: &Report) -> Option<&'n PoolConfig> {
    let found = names.pools.iter().find(|pool| pool.config.name == text.text);
    if found.is_none() {
        let all = names.pools.iter().map(|pool| pool.config.name.as_str());
        report.push(
            Problem::new(
                Code::NoSuchPool,
                &text.span,
                format!("there is no pool `{}`", text.text),
            )
            .maybe_help(suggest::help(text.text, all)),
        );
    }
    found.map(|pool| &pool.config)
}

pub(crate) fn find_policy(
    text: &Text<'_>,
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
    report: &Report,
) -> Option<String> {
    let place = report.mark(&text.span);
    let found = resolve(text.text, names, implied, place.clone()).or_else(|| {
        let renamed = names.known.renamed_builtin(text.text)?;
        warn_renamed(report, &text.span, renamed);
        resolve(renamed.1, names, implied, place)
    });
    if found.is_none() {
        let declared = names.policies.iter().map(|policy| policy.config.name.as_str());
        let in_folder = names.in_folder.unwrap_or_default().iter().map(String::as_str);
        let mut all: Vec<&str> = Vec::new();
        for name in declared
            .chain(names.known.builtins.iter().copied())
            .chain(in_folder)
        {
            // A table or a file may have the name of a builtin.
            if !all.contains(&name) {
                all.push(name);
            }
        }
        let name = text.text;
        let help = suggest::help(name, all.iter().copied()).map(|help| match names.in_folder {
            Some(_) => format!("{help}; or put {name}.wasm into the folder `policy-dir` names"),
            None => help,
        });
        report.push(
            Problem::new(
                Code::NoSuchPolicy,
                &text.span,
                format!("there is no policy `{}`", text.text),
            )
            .maybe_help(help),
        );
    }
    found
}

/// Resolves a policy: its own table, else a builtin, else a file of the policy folder.
pub(super) fn resolve(
    name: &str,
    names: &Names<'_>,
    implied: &mut Vec<PolicyConfig>,
    place: Mark,
) -> Option<String> {
    let exists = names.policies.iter().any(|policy| policy.config.name == name)
        || implied.iter().any(|policy| policy.name == name);
    if !exists {
        let source = if names.known.builtins.contains(&name) {
            PolicySource::Builtin(name.to_owned())
        } else if names
            .in_folder
            .is_some_and(|files| files.iter().any(|file| file == name))
        {
            PolicySource::Folder
        } else {
            return None;
        };
        implied.push(PolicyConfig::implied(name, source, place));
    }
    Some(name.to_owned())
}
