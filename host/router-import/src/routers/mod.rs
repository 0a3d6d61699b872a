//! The other routers, and the translation of their flags.

mod dynamo;
mod production_stack;
mod sglang;
mod shared;
mod vllm;

use mooncake_compat::quoted;

use crate::arguments::{GivenFlag, given_flags};
use crate::draft::{ConfigDraft, ImportedText};
use crate::rule::{Effect, FlagRule, KeyPlace};

/// Router whose command line is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignRouter {
    /// vLLM's router.
    Vllm,
    /// SGLang's router, also named smg.
    Sglang,
    /// Frontend of NVIDIA Dynamo.
    Dynamo,
    /// Router of vLLM's production stack.
    ProductionStack,
}

/// Policies that predict caches from the prompts that they have sent, without KV events.
const PREDICTING: [&str; 2] = ["cache_aware", "prefixaware"];

/// Most attempts of a request.
const MOST_ATTEMPTS: u64 = 16;

impl ForeignRouter {
    /// Returns its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm-router",
            Self::Sglang => "sglang-router",
            Self::Dynamo => "Dynamo's frontend",
            Self::ProductionStack => "production-stack",
        }
    }

    /// Returns host and port that it listens on without flags.
    fn default_listen(self) -> (&'static str, u16) {
        match self {
            Self::Vllm => vllm::LISTEN,
            Self::Sglang => sglang::LISTEN,
            Self::Dynamo => dynamo::LISTEN,
            Self::ProductionStack => production_stack::LISTEN,
        }
    }

    /// Returns whether its policies for these flags predict caches from the prompts that they have sent.
    fn predicts_caches(self, flags: &[GivenFlag]) -> bool {
        let policies = flags.iter().filter(|flag| {
            let rule = self.rule(&flag.name);
            rule.is_some_and(|rule| matches!(rule.effect, Effect::Policy(..)))
        });
        // The default of these two is `cache_aware`.
        let has_default = matches!(self, Self::Vllm | Self::Sglang)
            && !policies.clone().any(|flag| flag.name == "--policy");
        has_default
            || policies
                .filter_map(|flag| flag.values.last())
                .any(|policy| PREDICTING.contains(&&*policy.replace('-', "_")))
    }

    fn rule(self, name: &str) -> Option<FlagRule> {
        let tables: &[&[FlagRule]] = match self {
            Self::Vllm => &[vllm::RULES, shared::RULES],
            Self::Sglang => &[sglang::RULES, shared::RULES],
            Self::Dynamo => &[dynamo::RULES],
            Self::ProductionStack => &[production_stack::RULES],
        };
        // Some of these programs take both spellings.
        let name = name.replace('_', "-");
        let mut rules = tables.iter().flat_map(|rules| rules.iter());
        rules.find(|rule| rule.name == name).copied()
    }
}

/// Translates the command line of another router.
#[must_use]
pub fn import_flags(router: ForeignRouter, words: &[String]) -> ImportedText {
    let mut draft = ConfigDraft::default();
    let mut flags = given_flags(words, |name| router.rule(name));
    // Some flags take precedence over others, in any order.
    flags.sort_by_key(|flag| router.rule(&flag.name).map(|rule| rule.effect.rank()));
    if router.predicts_caches(&flags) {
        draft.assume_caches();
    }
    for flag in flags {
        match router.rule(&flag.name) {
            Some(rule) => apply(&mut draft, &flag, rule.effect),
            None => draft.notes.push(format!(
                "`{}` is no flag of {} that this import knows: look for it in the migration page",
                flag.name,
                router.as_str()
            )),
        }
    }
    let (host, port) = router.default_listen();
    draft.host.get_or_insert_with(|| host.to_owned());
    draft.port.get_or_insert_with(|| port.to_string());
    draft.finish(router.as_str())
}

/// Applies a flag to the draft.
fn apply(draft: &mut ConfigDraft, flag: &GivenFlag, effect: Effect) {
    let value = flag.values.last().map(String::as_str);
    let applied = match effect {
        Effect::Fixed(place, toml) => {
            draft.set(place, toml.to_owned());
            Ok(())
        }
        Effect::List(place) => {
            let texts: Vec<String> = flag.values.iter().map(|text| quoted(text)).collect();
            draft.set(place, format!("[{}]", texts.join(", ")));
            Ok(())
        }
        Effect::Split(dialect) => {
            draft.set(("pools.main.pd", "dialect"), quoted(dialect));
            Ok(())
        }
        Effect::Workers(_) | Effect::Bootstrapped(_) | Effect::Models | Effect::Ranks => {
            apply_to_workers(draft, flag, effect)
        }
        Effect::AssumedCaches => {
            draft.assume_caches();
            Ok(())
        }
        Effect::Selector(role) => {
            draft.pods.add_selector(role, &flag.values.join(","));
            Ok(())
        }
        Effect::Needless(why) => Err(format!("not needed: {why}")),
        Effect::Absent(remedy) => Err(format!("no equivalent: {remedy}")),
        _ => match value {
            Some(value) => apply_value(draft, value, effect),
            None => Err("it has no value".to_owned()),
        },
    };
    if let Err(note) = applied {
        draft.notes.push(format!("`{}`: {note}", flag.name));
    }
}

/// Applies a flag that names workers or their properties.
fn apply_to_workers(draft: &mut ConfigDraft, flag: &GivenFlag, effect: Effect) -> Result<(), String> {
    let urls = flag.values.iter().flat_map(|value| value.split(','));
    let urls: Vec<&str> = urls.map(str::trim).filter(|url| !url.is_empty()).collect();
    match effect {
        Effect::Workers(role) => urls.iter().for_each(|url| draft.add_worker(url, role, None)),
        Effect::Bootstrapped(role) => {
            let mut urls = urls.into_iter().peekable();
            while let Some(url) = urls.next() {
                // A host alone is more likely a mistyped port.
                if !url.contains(':') {
                    draft.notes.push(format!(
                        "`{}`: `{url}` is neither a URL nor a port: write http://HOST:PORT, and after it the bootstrap port or `none`",
                        flag.name
                    ));
                    continue;
                }
                let port = urls.next_if(|word| *word == "none" || word.parse::<u16>().is_ok());
                draft.add_worker(url, role, port.filter(|port| *port != "none"));
            }
        }
        Effect::Models => {
            for (worker, model) in draft.workers.iter_mut().zip(urls) {
                worker.models = Some(model.to_owned());
            }
        }
        Effect::Ranks => {
            let number = flag.values.last().and_then(|value| value.parse::<u64>().ok());
            draft.ranks = Some(number.ok_or("it needs a number")?);
        }
        _ => {}
    }
    Ok(())
}

/// Applies a flag with one value.
fn apply_value(draft: &mut ConfigDraft, value: &str, effect: Effect) -> Result<(), String> {
    let number = || {
        value
            .parse::<u64>()
            .map_err(|_| format!("`{value}` is no whole number"))
    };
    match effect {
        Effect::Text(place) => draft.set(place, quoted(value)),
        Effect::Number(_) if value.starts_with('-') => {}
        Effect::Number(place) => draft.set(place, number()?.to_string()),
        Effect::NumberAfter(place, other) => {
            let number = number()?;
            if draft.has(place) {
                return Err(format!(
                    "`{}` has the value of `{other}`, which takes precedence",
                    place.1
                ));
            }
            draft.set(place, number.to_string());
        }
        Effect::Attempts(place) => draft.set(place, number()?.clamp(1, MOST_ATTEMPTS).to_string()),
        Effect::Time(place, unit) => set_time(draft, place, value, unit)?,
        Effect::Times(places, unit) => {
            for place in places {
                set_time(draft, *place, value, unit)?;
            }
        }
        Effect::Size(place, unit) => draft.set(place, quoted(&format!("{}{unit}", number()?))),
        Effect::Host => draft.host = Some(value.to_owned()),
        Effect::Port => draft.port = Some(number()?.to_string()),
        Effect::AdminPort => draft.admin_port = Some(number()?.to_string()),
        Effect::Policy(key, names) => set_policy(draft, key, names, value)?,
        Effect::EngineKey => {
            let key = "{ env = \"ENGINE_API_KEY\" }".to_owned();
            draft.set(("pools.main", "authorization"), key);
            return Err("the key is not written: set the environment variable ENGINE_API_KEY".to_owned());
        }
        Effect::LogLevel => set_log_level(draft, value)?,
        Effect::Dialect(names) => {
            let ours = names.iter().find(|(theirs, _)| *theirs == value);
            let (_, ours) = ours.ok_or_else(|| format!("`{value}` has no equivalent: see `dialect`"))?;
            draft.set(("pools.main.pd", "dialect"), quoted(ours));
        }
        Effect::Namespace => draft.pods.namespace = Some(value.to_owned()),
        Effect::WorkerPort => draft.pods.port = Some(number()?.to_string()),
        _ => {}
    }
    Ok(())
}

/// Sets the policy of the same rule as the other router's. `key` is the key of the policy in the route.
fn set_policy(
    draft: &mut ConfigDraft,
    key: &'static str,
    names: &[(&str, &str)],
    value: &str,
) -> Result<(), String> {
    let ours = names
        .iter()
        .find(|(theirs, _)| *theirs == value.replace('-', "_"));
    let (_, ours) = ours.ok_or_else(|| {
        format!("`{value}` has no equivalent: the default policy decides; see policies/README.md")
    })?;
    draft.policies.retain(|(known, _)| *known != key);
    draft.policies.push((key, (*ours).to_owned()));
    if value == "priority" {
        let header = "set `priority-header` of [pools.main.admission] to the header with the priority";
        return Err(header.to_owned());
    }
    Ok(())
}

fn set_log_level(draft: &mut ConfigDraft, value: &str) -> Result<(), String> {
    let level = value.to_ascii_lowercase();
    let level = match &*level {
        "warning" => "warn",
        "critical" => "error",
        level @ ("error" | "warn" | "info" | "debug" | "trace") => level,
        _ => return Err(format!("`{value}` is no level: set `level` of [log]")),
    };
    draft.set(("log", "level"), quoted(level));
    Ok(())
}

fn set_time(draft: &mut ConfigDraft, place: KeyPlace, value: &str, unit: &str) -> Result<(), String> {
    let amount: f64 = value.parse().map_err(|_| format!("`{value}` is no number"))?;
    if !amount.is_finite() || amount <= 0.0 {
        return Err(format!(
            "`{value}` has no equivalent: the default of `{}` stays",
            place.1
        ));
    }
    draft.set(place, quoted(&format!("{amount}{unit}")));
    Ok(())
}

#[cfg(test)]
mod tests;
