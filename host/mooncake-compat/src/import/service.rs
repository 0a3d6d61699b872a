//! Translation of an entry of `kvevent_instance` to an entry of `[[indexer.services]]`.

use std::collections::HashSet;
use std::net::IpAddr;

use conductor_config::{DEFAULT_TENANT, MOST_MODEL_BYTES, check_endpoint};
use serde_json::{Map, Value};

/// Longest name of an instance, in bytes.
const MOST_INSTANCE_BYTES: usize = 128;

/// Service with a counterpart in `[[indexer.services]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportedService {
    pub(super) endpoint: String,
    pub(super) replay: Option<String>,
    pub(super) kind: &'static str,
    pub(super) model: String,
    pub(super) instance: String,
    pub(super) tenant: String,
    pub(super) block_size: u32,
    pub(super) rank: u16,
    pub(super) lora: Option<String>,
    /// Algorithm and seed of the engine's block hashes.
    pub(super) hash: Option<(String, String)>,
}

/// Reader of the entries, with the services read so far.
#[derive(Debug)]
pub(super) struct ServiceReader {
    pub(super) services: Vec<ImportedService>,
    default_block_size: u32,
    used_default: bool,
    endpoints: HashSet<String>,
    keys: HashSet<(String, String, u16)>,
}

/// Reason for leaving an entry out.
type SkipReason = String;

impl ServiceReader {
    pub(super) fn new(default_block_size: u32) -> Self {
        Self {
            services: Vec::new(),
            default_block_size,
            used_default: false,
            endpoints: HashSet::new(),
            keys: HashSet::new(),
        }
    }

    /// Returns true if a service has the shape without a block size.
    pub(super) fn used_block_size(&self) -> bool {
        self.used_default
    }

    pub(super) fn read(&mut self, name: &str, entry: &Value, warnings: &mut Vec<String>) {
        let mut notes = Vec::new();
        let read = match entry {
            Value::Object(entry) if entry.contains_key("ip") => self.first_shape(name, entry, &mut notes),
            Value::Object(entry) => later_shape(name, entry, &mut notes),
            _ => Err("it is not an object".to_owned()),
        };
        match read.and_then(|service| self.take(name, service, &mut notes)) {
            Ok(()) => {}
            Err(why) => notes.push(format!("it is left out: {why}")),
        }
        warnings.extend(notes.into_iter().map(|note| format!("`{name}`: {note}")));
    }

    fn take(
        &mut self,
        name: &str,
        mut service: ImportedService,
        notes: &mut Vec<String>,
    ) -> Result<(), SkipReason> {
        check_name("`modelname`", &service.model, MOST_MODEL_BYTES)?;
        check_name("the instance's name", &service.instance, MOST_INSTANCE_BYTES)?;
        check_endpoint(&service.endpoint)?;
        if let Some(Err(why)) = service.replay.as_deref().map(check_endpoint) {
            notes.push(format!("it has no replay: {why}"));
            service.replay = None;
        }
        let key =
            |service: &ImportedService| (service.instance.clone(), service.tenant.clone(), service.rank);
        if self.keys.contains(&key(&service)) && service.instance != name {
            notes.push(format!(
                "another service has the instance `{}` too, so this one is called `{name}`",
                service.instance
            ));
            name.clone_into(&mut service.instance);
        }
        if self.keys.contains(&key(&service)) {
            return Err("another service has its instance, tenant and rank".to_owned());
        }
        if !self.endpoints.insert(service.endpoint.clone()) {
            return Err("another service has its endpoint".to_owned());
        }
        self.keys.insert(key(&service));
        self.services.push(service);
        Ok(())
    }

    /// Reads the first shape: `ip`, `port`, `type`, `modelname`, `lora_id`. Replay is on the next port.
    fn first_shape(
        &mut self,
        name: &str,
        entry: &Map<String, Value>,
        notes: &mut Vec<String>,
    ) -> Result<ImportedService, SkipReason> {
        note_unknown_keys(entry, &["ip", "port", "type", "modelname", "lora_id"], notes);
        let address: IpAddr = text(entry, "ip")?
            .parse()
            .map_err(|_| "`ip` is not an IP address".to_owned())?;
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let port = entry.get("port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or("`port` is not a port")?;
        match entry.get("lora_id").map(Value::as_i64) {
            None | Some(Some(-1)) => {}
            _ => notes.push(
                "`lora_id` is left out, as adapters go by name: add lora = \"NAME\" if its queries name one"
                    .to_owned(),
            ),
        }
        self.used_default = true;
        Ok(ImportedService {
            endpoint: format!("tcp://{host}:{port}"),
            replay: port.checked_add(1).map(|port| format!("tcp://{host}:{port}")),
            kind: kind(entry)?,
            model: text(entry, "modelname")?,
            instance: name.to_owned(),
            tenant: DEFAULT_TENANT.to_owned(),
            block_size: self.default_block_size,
            rank: 0,
            lora: None,
            hash: None,
        })
    }
}

const LATER_KEYS: [&str; 12] = [
    "endpoint",
    "replay_endpoint",
    "type",
    "modelname",
    "lora_name",
    "tenant_id",
    "instance_id",
    "block_size",
    "dp_rank",
    "additionalsalt",
    "cache_group",
    "hash_profile",
];

fn later_shape(
    name: &str,
    entry: &Map<String, Value>,
    notes: &mut Vec<String>,
) -> Result<ImportedService, SkipReason> {
    note_unknown_keys(entry, &LATER_KEYS, notes);
    let optional = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` is not a string")),
    };
    let number = |key: &str, most: u64| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("`{key}` is {value}, not a number from 0 to {most}")),
        },
    };
    if number("cache_group", u64::from(u32::MAX))?.is_some_and(|group| group != 0) {
        return Err("its `cache_group` is not 0".to_owned());
    }
    if optional("additionalsalt")?.is_some() {
        notes.push(
            "`additionalsalt` is left out: salts come with the engine's events, and queries give theirs"
                .to_owned(),
        );
    }
    let block_size = number("block_size", 1 << 20)?.filter(|size| *size > 0);
    let block_size = block_size.and_then(|size| u32::try_from(size).ok());
    let rank = number("dp_rank", u64::from(u16::MAX))?.unwrap_or_default();
    Ok(ImportedService {
        endpoint: text(entry, "endpoint")?,
        replay: optional("replay_endpoint")?,
        kind: kind(entry)?,
        model: text(entry, "modelname")?,
        instance: optional("instance_id")?.unwrap_or_else(|| name.to_owned()),
        tenant: optional("tenant_id")?.unwrap_or_else(|| DEFAULT_TENANT.to_owned()),
        block_size: block_size.ok_or("it has no `block_size` above 0")?,
        rank: u16::try_from(rank).unwrap_or_default(),
        lora: optional("lora_name")?,
        hash: hash(entry.get("hash_profile"), notes),
    })
}

/// Returns algorithm and seed of a `hash_profile`. Only queries by engine hashes need them.
fn hash(profile: Option<&Value>, notes: &mut Vec<String>) -> Option<(String, String)> {
    read_profile(profile?)
        .map_err(|why| notes.push(format!("`hash_profile` is left out: {why}")))
        .ok()
}

const PROFILE_KEYS: [&str; 4] = ["strategy", "algorithm", "python_hash_seed", "index_projection"];
const ALGORITHMS: [&str; 4] = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"];

/// Reads a profile by the rules of the older conductor, which skipped the whole service if it broke one.
fn read_profile(profile: &Value) -> Result<(String, String), SkipReason> {
    let profile = profile.as_object().ok_or("it is not an object")?;
    if let Some(key) = profile.keys().find(|key| !PROFILE_KEYS.contains(&key.as_str())) {
        return Err(format!("`{key}` is not known"));
    }
    let one_of = |key: &str, known: &[&str]| {
        let text = text(profile, key)?;
        if known.contains(&text.as_str()) {
            return Ok(text);
        }
        Err(format!("its `{key}` is `{text}`, none of {}", known.join(", ")))
    };
    one_of("strategy", &["vllm_v1"])?;
    let algorithm = one_of("algorithm", &ALGORITHMS)?;
    one_of("index_projection", &["low64_be"])?;
    let seed = text(profile, "python_hash_seed")?;
    let digits = !seed.is_empty() && seed.bytes().all(|byte| byte.is_ascii_digit());
    if seed != "random" && !(digits && seed.parse::<u32>().is_ok()) {
        return Err(format!(
            "its `python_hash_seed` is `{seed}`, neither a number up to 4294967295 nor `random`"
        ));
    }
    Ok((algorithm, seed))
}

fn kind(entry: &Map<String, Value>) -> Result<&'static str, SkipReason> {
    match text(entry, "type")?.as_str() {
        "vLLM" => Ok("vllm"),
        "SGLang" => Ok("sglang"),
        "Mooncake" => Ok("mooncake"),
        other => Err(format!("its type `{other}` is none of vLLM, SGLang and Mooncake")),
    }
}

fn text(entry: &Map<String, Value>, key: &str) -> Result<String, SkipReason> {
    match entry.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("its `{key}` is not a string")),
        None => Err(format!("it has no `{key}`")),
    }
}

fn check_name(what: &str, name: &str, most: usize) -> Result<(), SkipReason> {
    if name.is_empty() || name.len() > most {
        return Err(format!("{what} must have 1 to {most} bytes, not {}", name.len()));
    }
    Ok(())
}

fn note_unknown_keys(entry: &Map<String, Value>, known: &[&str], notes: &mut Vec<String>) {
    let unknown = entry.keys().filter(|key| !known.contains(&key.as_str()));
    notes.extend(unknown.map(|key| format!("`{key}` is not known and left out")));
}
