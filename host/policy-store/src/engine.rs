//! Policy engine with its cache of compiled code, which saves nine tenths of the time from a start to the first answer.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use conductor_config::{Config, PolicyCache, PolicyCompileConfig};
use local_files::ConfigSource;
use observability::error_chain;
use policy_runtime::child::{ChildCompiler, ChildLimits};
use policy_runtime::{CodeCache, CompileBounds, EngineError, EngineLimits, PolicyEngine};
use tracing::{debug, warn};

/// Returns the cache folder of the router's user: below systemd's `CacheDirectory=`, else the user's own (XDG Base
/// Directory Specification).
#[must_use]
pub fn user_cache_folder() -> Option<PathBuf> {
    folder(|name| std::env::var_os(name))
}

fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    // systemd makes that folder readable for all, which a folder for code must not be. Colons separate several.
    let of_service = variable("CACHE_DIRECTORY").and_then(|folders| {
        let first = std::env::split_paths(&folders).next()?;
        first.is_absolute().then(|| first.join("policies"))
    });
    let of_user = || named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
    of_service.or_else(|| of_user().map(|caches| caches.join("conductor")))
}

/// Properties of the process that compiles policies.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Folder for compiled policies if the configuration names none.
    pub cache_folder: Option<PathBuf>,
    /// True if this program compiles a policy when it is started as a child process for that.
    pub compiles_in_child: bool,
}

/// Returns the engine, with a folder for compiled code if there is a trusted one: the configuration's, else the
/// process's.
///
/// # Errors
/// [`EngineError`] if WebAssembly cannot be set up.
pub fn policy_engine(
    config: &Config,
    source: &ConfigSource,
    options: &EngineOptions,
) -> Result<PolicyEngine, EngineError> {
    let mut engine = PolicyEngine::new(EngineLimits::default())?.with_bounds(compile_bounds(config));
    if options.compiles_in_child {
        match ChildCompiler::of_this_program(child_limits(config)) {
            Ok(child) => {
                engine = engine.with_child(child.with_room(process_resources::room_for_child));
            }
            Err(error) => warn!(
                error = error_chain(&error),
                "policies are compiled in the router's own process, without limits: its program is not known"
            ),
        }
    }
    let (folder, is_configured) = match &config.policy_cache {
        PolicyCache::Folder(folder) => (source.resolve(folder), true),
        PolicyCache::OfUser => match &options.cache_folder {
            Some(folder) => (folder.clone(), false),
            None => return Ok(engine),
        },
        PolicyCache::Off => return Ok(engine),
    };
    if let (false, Some(caches)) = (is_configured, folder.parent()) {
        // `~/.cache` of a new user. If it cannot be made, the next step reports why.
        let _ = DirBuilder::new().mode(0o700).create(caches);
    }
    match CodeCache::open(&folder) {
        Ok(cache) => return Ok(engine.with_cache(cache)),
        Err(error) if is_configured => warn!(
            error = error_chain(&error),
            "compiled policies are not kept on disk"
        ),
        // Read-only file systems and users without a home are common.
        Err(error) => debug!(
            error = error_chain(&error),
            "compiled policies are not kept on disk"
        ),
    }
    Ok(engine)
}

/// Returns the limits of components that are compiled.
#[must_use]
pub fn compile_bounds(config: &Config) -> CompileBounds {
    let PolicyCompileConfig {
        functions,
        function_size,
        function_locals,
        ..
    } = config.policy_compile;
    CompileBounds {
        functions,
        function_bytes: function_size,
        function_locals,
        ..CompileBounds::default()
    }
}

/// Returns the limits of the child process that compiles.
fn child_limits(config: &Config) -> ChildLimits {
    let PolicyCompileConfig {
        memory, cpu, time, ..
    } = config.policy_compile;
    ChildLimits {
        memory_bytes: memory,
        cpu,
        time,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::sync::Arc;

    use conductor_config::Known;
    use policy_runtime::PolicySettings;

    use super::*;
    use crate::builtin;

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: Option<&str>) {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        assert_eq!(folder(variable), expected.map(PathBuf::from), "{variables:?}");
    }

    #[test]
    fn the_folder_is_the_services_else_the_users() {
        check(&[], None);
        check(&[("HOME", "/home/u")], Some("/home/u/.cache/conductor"));
        check(&[("HOME", "u")], None);
        let caches = ("XDG_CACHE_HOME", "/caches");
        check(&[("HOME", "/home/u"), caches], Some("/caches/conductor"));
        let service = ("CACHE_DIRECTORY", "/var/cache/a:/var/cache/b");
        check(&[caches, service], Some("/var/cache/a/policies"));
        check(&[("XDG_CACHE_HOME", ""), ("CACHE_DIRECTORY", "")], None);
    }

    /// Returns the number of cached files for one policy.
    fn kept(head: &str, home: &Path) -> usize {
        let text = format!(
            "{head}\n[[pools.p.workers]]\nurl = \"http://127.0.0.1:1\"\n[[routes]]\npool = \"p\"\npolicy = \"round-robin\"\n"
        );
        let source = ConfigSource::Text(text.clone());
        let known = Known {
            builtins: &builtin::names(),
            former_builtins: builtin::FORMER_NAMES,
            default_policy: builtin::DEFAULT,
            files: &source,
            has_admin_key: false,
        };
        let config = Config::parse("test", &text, &known).unwrap().config;
        let folder = home.join("caches/conductor");
        let options = EngineOptions {
            cache_folder: Some(folder.clone()),
            compiles_in_child: false,
        };
        let engine = policy_engine(&config, &source, &options).unwrap();
        let settings = PolicySettings::default();
        let round_robin = builtin::find("round-robin").unwrap();
        engine
            .load("round-robin", round_robin.bytes, &settings, Arc::default())
            .unwrap();
        let files = fs::read_dir(folder).into_iter().flatten();
        let code = files.filter(|file| file.as_ref().unwrap().path().extension().is_some());
        code.count()
    }

    #[test]
    fn code_is_kept_by_default_and_not_where_that_is_off_or_others_could_write() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(kept("policy-cache = false", home.path()), 0);
        assert!(!home.path().join("caches").exists());
        assert_eq!(kept("", home.path()), 1);
        let folder = home.path().join("caches/conductor");
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a stranger's"), "").unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(kept("", home.path()), 0);
    }
}
