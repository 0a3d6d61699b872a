//! `conductor import`: command lines and files of other routers, in our form.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;
use conductor_config::{Diagnostic, Severity};
use conductor_tools::{Exit, UsageError, print};
use local_files::ConfigSource;
use mooncake_compat::fleet_flags::FleetArgs;
use mooncake_compat::import::{LegacyEnvironment, import_file};
use router_import::{ForeignRouter, ImportedText, import_flags, import_picker};

use crate::cli::{ImportArgs, ImportFrom};
use crate::reload;
use crate::serve::source_of;

/// Command line of Mooncake's proxies.
#[derive(Debug, Parser)]
struct ProxyLine {
    #[command(flatten)]
    fleet: FleetArgs,
}

/// Runs `conductor import`: prints the TOML, and on standard error the omitted flags and the mistakes of the TOML.
///
/// # Errors
/// If the file cannot be read, or the words are not of that router.
pub fn run(args: &ImportArgs) -> Result<Exit> {
    let words = &args.words;
    let imported = match args.from {
        None => of_conductor(file_of(words)?)?,
        Some(ImportFrom::Mooncake) if is_flags(words) => of_proxy(words)?,
        Some(ImportFrom::Mooncake) => of_conductor(file_of(words)?)?,
        Some(ImportFrom::LlmD) => {
            let file = file_of(words)?;
            let text = std::fs::read_to_string(file).with_context(|| format!("failed to read `{file}`"))?;
            import_picker(file, &text).map_err(UsageError::new)?
        }
        Some(ImportFrom::VllmRouter) => import_flags(ForeignRouter::Vllm, words),
        Some(ImportFrom::SglangRouter) => import_flags(ForeignRouter::Sglang, words),
        Some(ImportFrom::Dynamo) => import_flags(ForeignRouter::Dynamo, words),
        Some(ImportFrom::ProductionStack) => import_flags(ForeignRouter::ProductionStack, words),
    };
    for note in &imported.notes {
        eprintln!("warning: {note}");
    }
    let mistakes = mistakes(&imported.toml);
    for mistake in &mistakes {
        eprintln!("error: {mistake}");
    }
    print::write(imported.toml)?;
    Ok(match mistakes.is_empty() {
        true => Exit::Success,
        false => Exit::Failure,
    })
}

/// Returns the errors of a translated text: a value of the other router may be out of range here.
fn mistakes(toml: &str) -> Vec<String> {
    let source = ConfigSource::Text(toml.to_owned());
    let found = match reload::examine(&source, toml) {
        Ok(examined) => examined.diagnostics,
        Err(mistakes) => mistakes,
    };
    let errors = found.items().iter();
    let errors = errors.filter(|item| item.severity() == Severity::Error);
    let sentence = |item: &Diagnostic| {
        let help = item.help.as_deref().map(|help| format!(": {help}"));
        let (line, help) = (item.primary.location.line, help.unwrap_or_default());
        format!("line {line} of the printed file: {}{help}", item.message)
    };
    errors.map(sentence).collect()
}

fn is_flags(words: &[String]) -> bool {
    words.iter().any(|word| word.starts_with('-'))
}

fn file_of(words: &[String]) -> Result<&str> {
    match words {
        [file] if !file.starts_with('-') => Ok(file),
        _ => Err(UsageError::new(anyhow::anyhow!(
            "failed to import `{}`: it is no file; name the router of a command line with --from",
            words.join(" ")
        ))
        .into()),
    }
}

/// Translates the JSON of Mooncake's old conductor.
fn of_conductor(file: &str) -> Result<ImportedText> {
    let imported = import_file(Path::new(file), &LegacyEnvironment::of_process())?;
    Ok(ImportedText {
        toml: imported.toml,
        notes: imported.warnings,
    })
}

/// Translates the flags of Mooncake's proxies, which `conductor serve` takes too.
fn of_proxy(words: &[String]) -> Result<ImportedText> {
    let flags = words.iter().skip_while(|word| !word.starts_with('-')).cloned();
    let line = std::iter::once("mooncake".to_owned()).chain(flags);
    let line = ProxyLine::try_parse_from(line).map_err(UsageError::new)?;
    let toml = source_of(&line.fleet)?.read()?;
    Ok(ImportedText {
        toml,
        notes: Vec::new(),
    })
}
