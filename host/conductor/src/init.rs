//! `conductor init`: an annotated configuration for workers, from what they reveal.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use conductor_tools::{Exit, UsageError, print};
use live_check::{WorkerSketch, sketch_all};
use local_files::ConfigSource;
use mooncake_compat::{comment, quoted};
use policy_store::builtin;
use routing::Role;
use thiserror::Error;

use crate::check::check;
use crate::cli::InitArgs;

/// A configuration is not written.
#[derive(Debug, Error)]
enum InitError {
    #[error("failed to write `{}`: it exists; give another --file, or --force to replace it", .0.display())]
    Exists(PathBuf),
    #[error("failed to write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to write a configuration for these workers:\n{0}")]
    Invalid(String),
}

/// Runs `conductor init`.
///
/// # Errors
/// If the file exists or cannot be written, or a URL is no worker's.
pub fn run(args: &InitArgs) -> Result<Exit> {
    if args.file.exists() && !args.force {
        return Err(UsageError::new(InitError::Exists(args.file.clone())).into());
    }
    let given = [
        (&args.worker, None),
        (&args.prefill, Some(Role::Prefill)),
        (&args.decode, Some(Role::Decode)),
    ];
    let given = given.into_iter().flat_map(|(urls, role)| {
        let urls = urls.iter().map(|url| with_scheme(url));
        urls.map(move |url| (url, role))
    });
    let (urls, roles): (Vec<String>, Vec<Option<Role>>) = given.unzip();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let sketches = runtime.block_on(sketch_all(&urls));
    // A socket that still connects is not waited for.
    runtime.shutdown_background();
    let workers: Vec<(WorkerSketch, Role)> = sketches
        .into_iter()
        .zip(roles)
        .map(|(sketch, role)| {
            let role = role.or(sketch.role).unwrap_or(Role::Mixed);
            (sketch, role)
        })
        .collect();
    let text = configuration(&workers);
    let checked = check(&ConfigSource::Text(text.clone()))?;
    if checked.errors > 0 {
        return Err(UsageError::new(InitError::Invalid(checked.rendered())).into());
    }
    write(&args.file, &text, args.force).map_err(UsageError::new)?;
    let mut exit = Exit::Success;
    for (worker, _) in &workers {
        if let Some(problem) = &worker.problem {
            eprintln!("warning: {}: {}", worker.url, comment(problem));
            exit = Exit::Failure;
        }
    }
    let file = args.file.display();
    print::write(format!(
        "wrote {file}; next:\n  conductor check --live {file}\n  conductor --config {file}\n"
    ))?;
    Ok(exit)
}

fn with_scheme(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match url.contains("://") {
        true => url.to_owned(),
        false => format!("http://{url}"),
    }
}

/// Writes the file whole or not at all.
fn write(path: &Path, text: &str, replaces: bool) -> Result<(), InitError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let failed = |source| InitError::Write {
        path: path.to_owned(),
        source,
    };
    // The process' mask applies to these permissions.
    let mut part = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    part.write_all(text.as_bytes()).map_err(failed)?;
    let written = match replaces {
        true => part.persist(path),
        false => part.persist_noclobber(path),
    };
    match written {
        Ok(_) => Ok(()),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(InitError::Exists(path.to_owned()))
        }
        Err(error) => Err(failed(error.error)),
    }
}

const HEAD: &str = "\
# Configuration of Conductor, written by `conductor init`. An edit applies while the router runs.
#
#   conductor check --live FILE    checks the file and queries the workers
#   conductor --config FILE        runs the router
#
# Every key with its default: config/conductor.toml of the repository, /usr/share/doc/conductor of the package.

# NAME.wasm in this folder is a policy NAME for routes.
#policy-dir = \"policies.d\"

[server]
# Address for clients. \"0.0.0.0:8080\" is reachable from other machines.
listen = \"127.0.0.1:8080\"
# Dashboard, metrics and admin pages. Give it a key before other machines reach it.
admin-listen = \"127.0.0.1:8081\"
#admin-api-key = { env = \"ADMIN_API_KEY\" }

[pools.main]
# Key that the workers require. Absent: the client's own is sent.
#authorization = { env = \"OPENAI_API_KEY\" }
";

/// Returns the annotated text.
fn configuration(workers: &[(WorkerSketch, Role)]) -> String {
    let mut text = HEAD.to_owned();
    let is_split = workers.iter().any(|(_, role)| *role != Role::Mixed);
    if is_split {
        text.push_str(
            "# Handover between prefill and decode workers. `auto` detects nixl, mooncake-connector and sglang.\n\
             pd = { dialect = \"auto\" }\n",
        );
    }
    text.push_str(
        "\n# Models and LoRA adapters are learned from each worker's /v1/models, KV events from its own pages.\n",
    );
    for (worker, role) in workers {
        write_worker(&mut text, worker, *role);
    }
    let _ = write!(
        text,
        "# All requests. Further routes select by `match = {{ model = [\"llama-*\"] }}`; the first that matches counts.\n\
         [[routes]]\npool = \"main\"\n# Built-in policies: `conductor policy list`.\npolicy = {}\n",
        quoted(builtin::DEFAULT)
    );
    text
}

fn write_worker(text: &mut String, worker: &WorkerSketch, role: Role) {
    let mut about: Vec<String> = Vec::new();
    about.extend(worker.engine.clone());
    let named = |kind: &str, names: &[String]| {
        let names: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
        (!names.is_empty()).then(|| format!("{kind} {}", names.join(", ")))
    };
    about.extend(named("serves", &worker.models));
    about.extend(named("adapters", &worker.adapters));
    match &worker.problem {
        Some(problem) => about.push(problem.clone()),
        None => about.push(worker.events.clone()),
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# {}", comment(&about.join("; ")));
    let _ = writeln!(text, "[[pools.main.workers]]\nurl = {}", quoted(&worker.url));
    if role != Role::Mixed {
        let _ = writeln!(text, "role = \"{}\"", role.as_str());
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(url: &str) -> WorkerSketch {
        WorkerSketch {
            url: url.to_owned(),
            role: None,
            engine: Some("SGLang 0.5".to_owned()),
            models: vec!["llama\n[x]".to_owned()],
            adapters: Vec::new(),
            events: "KV events at tcp://a:5557".to_owned(),
            problem: None,
        }
    }

    #[test]
    fn the_written_text_passes_the_check_whatever_a_worker_answers() {
        let workers = [
            (sketch("http://a:1"), Role::Prefill),
            (sketch("http://b:1"), Role::Decode),
        ];
        let text = configuration(&workers);
        let checked = check(&ConfigSource::Text(text.clone())).unwrap();
        assert_eq!(checked.errors, 0, "{}\n{text}", checked.rendered());
        assert!(
            text.contains("# SGLang 0.5; serves llama [x]; KV events at tcp://a:5557\n"),
            "{text}"
        );
        assert!(
            text.contains("role = \"decode\"") && text.contains("pd = "),
            "{text}"
        );
    }

    #[test]
    fn a_file_is_replaced_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("conductor.toml");
        write(&file, "one", false).unwrap();
        assert!(matches!(write(&file, "two", false), Err(InitError::Exists(_))));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
        write(&file, "two", true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
    }
}
