//! Files of the connections to NATS and to sources of workers. The router starts without them, so a check warns of
//! those that it cannot read.

use conductor_config::{Code, Config, Diagnostic, DiscoveryPlace, NamedFile, ReplicasConfig};

use crate::certificates::LONGEST;
use local_files::ConfigSource;
use local_files::regular_file::read_bounded;
use observability::error_chain;

/// Help for the files of `[replicas]`, which are read at start.
const REPLICAS: &str =
    "make sure that the router can read it: without it, it exchanges nothing with other routers";
/// Help for the files of sources, which are read for each query.
const SOURCE: &str = "make sure that the router can read it: without it, the source has no workers";

/// Returns a warning for every unreadable file.
pub(crate) fn problems(config: &Config, source: &ConfigSource) -> Vec<Diagnostic> {
    let of_replicas = config.replicas.iter().flat_map(of_replicas);
    let of_sources = config.discovery.iter().filter_map(|source| {
        let ca = match &source.place {
            DiscoveryPlace::HttpSd { ca, .. } => ca.as_ref()?,
            DiscoveryPlace::Kubernetes(kubernetes) => kubernetes.ca.as_ref()?,
            DiscoveryPlace::Dns { .. } | DiscoveryPlace::Srv { .. } | DiscoveryPlace::FileSd(_) => {
                return None;
            }
        };
        Some((format!("`ca` of `[discovery.{}]`", source.name), ca, SOURCE))
    });
    of_replicas
        .chain(of_sources)
        .filter_map(|(what, file, help)| problem(&what, file, help, source))
        .collect()
}

fn of_replicas(replicas: &ReplicasConfig) -> impl Iterator<Item = (String, &NamedFile, &'static str)> {
    let password = replicas.login.as_ref().map(|login| &login.password_file);
    let files = [
        ("credentials", replicas.credentials.as_ref()),
        ("password-file", password),
        ("ca", replicas.ca.as_ref()),
    ];
    files
        .into_iter()
        .filter_map(|(key, file)| Some((format!("`replicas.{key}`"), file?, REPLICAS)))
}

fn problem(what: &str, file: &NamedFile, help: &str, source: &ConfigSource) -> Option<Diagnostic> {
    let path = source.resolve(&file.path);
    let error = read_bounded(&path, LONGEST).err()?;
    let (path, cause) = (path.display(), error_chain(&error));
    let message = format!("failed to read {what} from the file `{path}`: {cause}");
    Some(Diagnostic::new(
        Code::FileNotHere,
        &file.at,
        message,
        Some(help.to_owned()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_config::parsed;

    #[test]
    fn every_missing_file_is_a_warning_at_its_place() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("here.pem"), "x").unwrap();
        let text = "[replicas]\nservers = [\"nats://n:1\"]\ncredentials = \"no.creds\"\nca = \"here.pem\"\n\
             user = \"u\"\npassword-file = \"no.password\"\n[pools.a]\n\
             [discovery.h]\npool = \"a\"\nhttp-sd = \"https://s/\"\nca = \"no.ca\"\n\
             [discovery.k]\npool = \"a\"\n\
             kubernetes = { service = \"s\", ca = \"here.pem\" }\n";
        let source = ConfigSource::File(folder.path().join("conductor.toml"));
        let problems = problems(&parsed(&source, text), &source);
        let found: Vec<_> = problems
            .iter()
            .map(|problem| (problem.primary.location.line, problem.code))
            .collect();
        assert_eq!(found, [3, 6, 11].map(|line| (line, Code::FileNotHere)));
        assert!(
            problems[0].message.contains("`replicas.credentials`"),
            "{problems:?}"
        );
    }
}
