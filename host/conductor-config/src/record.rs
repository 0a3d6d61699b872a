//! `[record]`: recording of decisions in the decision log, and in memory for explanations.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::document::code::Code;
use crate::document::report::Problem;
use crate::document::section::Section;
use crate::document::value::Item;
use crate::known::PolicyFiles;

/// `[record]`.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordConfig {
    /// Decision log, as written; a relative path starts at the file's folder. `None` for no log.
    pub file: Option<PathBuf>,
    /// Share of requests whose decisions are logged, above 0 and at most 1.
    pub sample: f64,
    /// Log of shadow decisions, one line each, as written; a relative path starts at the file's folder. `None` for no
    /// log.
    pub shadow_file: Option<PathBuf>,
    /// Size at which a log is rotated, in bytes.
    pub max_bytes: u64,
    /// Number of rotated files that are kept.
    pub keep: u32,
    /// Records every column, not only those requested by the policy.
    pub all_columns: bool,
    /// Block size in tokens, if hashes of prompt blocks are recorded.
    pub prompt_blocks: Option<NonZeroU32>,
    /// Most requests kept in memory for explanations; 0 for none.
    pub explain: u32,
    /// Share of requests that are kept, in addition to those in the log.
    pub explain_sample: f64,
    /// Keeps requests with `x-conductor-explain: 1`.
    pub explain_header: bool,
}

/// Sizes at which a log can be rotated, in bytes.
pub(crate) const FILE_SIZES: RangeInclusive<u64> = 64 << 10..=1 << 40;

impl Default for RecordConfig {
    fn default() -> Self {
        Self {
            file: None,
            sample: 0.01,
            shadow_file: None,
            max_bytes: 256 << 20,
            keep: 4,
            all_columns: false,
            prompt_blocks: None,
            explain: 1_000,
            explain_sample: 0.01,
            explain_header: true,
        }
    }
}

/// Reads the section. `access` is the file of the access log.
pub(crate) fn read(
    section: Option<Section<'_>>,
    access: Option<&Path>,
    files: &dyn PolicyFiles,
) -> RecordConfig {
    let default = RecordConfig::default();
    let Some(mut record) = section else {
        return default;
    };
    let share = |item: Option<Item<'_>>, default| item.and_then(|item| item.positive(1.0)).unwrap_or(default);
    let (file, shadow_file) = (record.item("file"), record.item("shadow-file"));
    let config = RecordConfig {
        file: file.as_ref().and_then(|item| read_file(item, "decisions.jsonl")),
        shadow_file: shadow_file
            .as_ref()
            .and_then(|item| read_file(item, "shadows.jsonl")),
        sample: share(record.item("sample"), default.sample),
        max_bytes: record.size("max-bytes", default.max_bytes, FILE_SIZES),
        keep: count(&mut record, "keep", default.keep, 1_000),
        all_columns: record.choice("columns", default.all_columns, &[("plan", false), ("all", true)]),
        prompt_blocks: NonZeroU32::new(count(&mut record, "prompt-blocks", 0, 65_536)),
        explain: count(&mut record, "explain", default.explain, 100_000),
        explain_sample: share(record.item("explain-sample"), default.explain_sample),
        explain_header: record
            .item("explain-header")
            .and_then(|item| item.flag())
            .unwrap_or(default.explain_header),
    };
    if let (Some(file), Some(shadow_file)) = (&file, &shadow_file)
        && meet(config.file.as_deref(), config.shadow_file.as_deref())
    {
        let problem = Problem::new(
            Code::ConflictingKeys,
            &shadow_file.span,
            "`shadow-file` is the file, or one that was put aside, of `file`",
        );
        let problem = problem.also(&file.span, "decisions are written there");
        let help = "name another, for example \"shadows.jsonl\"";
        shadow_file.report.push(problem.help(help));
    }
    for (item, path) in [(&file, &config.file), (&shadow_file, &config.shadow_file)] {
        if let (Some(item), Some(path)) = (item, path) {
            warn_of_folder(item, path, files);
        }
        if let Some(item) = item
            && meet(path.as_deref(), access)
        {
            let message = format!(
                "`{}` is the file of `log.access`, or one that was put aside",
                item.key
            );
            let problem = Problem::new(Code::ConflictingKeys, &item.span, message);
            item.report
                .push(problem.help("name another, for example \"decisions.jsonl\""));
        }
    }
    record.finish();
    config
}

/// Warns of a file whose folder does not exist: the router makes none.
pub(crate) fn warn_of_folder(item: &Item<'_>, path: &Path, files: &dyn PolicyFiles) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| files.is_missing(folder)) {
        let message = format!(
            "the folder `{}` of `{}` does not exist",
            folder.display(),
            item.key
        );
        let problem = Problem::new(Code::MissingFolder, &item.span, message);
        item.report
            .push(problem.help("create it: until then every line of the file is lost"));
    }
}

/// Returns `true` if one of the two files is the other, or a rotated version of it.
fn meet(one: Option<&Path>, other: Option<&Path>) -> bool {
    let of = |path: Option<&Path>| path.map(|path| path.display().to_string());
    let (Some(one), Some(other)) = (of(one), of(other)) else {
        return false;
    };
    let is_aside = |path: &str, of: &str| {
        let number = path.strip_prefix(of).and_then(|rest| rest.strip_prefix('.'));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    one == other || is_aside(&one, &other) || is_aside(&other, &one)
}

/// Reads a number of at most `most`.
pub(crate) fn count(record: &mut Section<'_>, key: &'static str, default: u32, most: u32) -> u32 {
    let count = record.count(key, u64::from(default), 0..=u64::from(most));
    u32::try_from(count).expect("within a range that ends at a u32")
}

/// Reads the path of a file, such as `example`.
pub(crate) fn read_file(item: &Item<'_>, example: &str) -> Option<PathBuf> {
    let text = item.text()?;
    if text.text.is_empty() {
        item.report.push(
            Problem::new(Code::InvalidValue, &text.span, format!("`{}` is empty", item.key)).help(format!(
                "name a file, for example \"{example}\", or leave the key out"
            )),
        );
        return None;
    }
    Some(PathBuf::from(text.text))
}
