//! `POST /cache` of the first generation: share of a prompt that each listed engine holds, in percent.
//!
//! The answer contains the members of that generation (`HitStatus`, `status`) and those planned in its documentation.
//! That generation names engines by IP address; this service also accepts an instance's name. Upstream continued past
//! a block that an engine did not hold; here only a prefix counts.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Serialize;

use crate::directory::Directory;
use crate::document::{Document, Field};
use crate::lookup::{EngineCandidates, InstanceHoldings, LookupResult, LookupSources};
use crate::refusal::{Reason, Refusal};
use crate::request::{EngineSelection, LookupKeys};
use crate::service::{QueryContext, Service, ServiceKind};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CacheRequest {
    instances: Vec<Box<str>>,
    tokens: Vec<u32>,
    model: Box<str>,
    /// Adapter number; -1 is the base model.
    lora: i64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CacheAnswer {
    /// The engine that holds most, the first listed of equals. `None` if no engine holds anything.
    best_prefiller: Option<Box<str>>,
    /// Share held by the best engine.
    cache_hit_percent: u32,
    /// All engines that hold anything.
    matched_engines: BTreeMap<Box<str>, u32>,
    #[serde(rename = "HitStatus")]
    hit_status: BTreeMap<Box<str>, u32>,
    status: &'static str,
}

impl CacheRequest {
    /// Reads the body. Its error messages are those of the first generation.
    pub(crate) fn read(body: &Document<'_>) -> Result<Self, Refusal> {
        let instances = list(body, "instances")?;
        let instance = |(index, field): (usize, Field<'_>)| match field {
            Field::Text(text) => Ok(Box::from(&*text)),
            _ => {
                let error = format!("\"instances[{index}]\" is not a string");
                Err(Refusal::bad(Reason::InvalidType, "instances", error).at(index))
            }
        };
        let instances = instances
            .into_iter()
            .enumerate()
            .map(instance)
            .collect::<Result<_, _>>()?;
        let token = |(index, field): (usize, Field<'_>)| {
            let number = number(&field).and_then(|number| i32::try_from(number).ok());
            number.map(|token| token as u32).ok_or_else(|| {
                let error = format!("\"token_ids[{index}]\" is not a number of 32 bits");
                Refusal::bad(Reason::InvalidType, "token_ids", error).at(index)
            })
        };
        let tokens = list(body, "token_ids")?.into_iter().enumerate();
        let tokens = tokens.map(token).collect::<Result<_, _>>()?;
        let Field::Text(model) = present(body, "model_name")? else {
            return Err(wrong("model_name", "a string"));
        };
        let lora = number(present(body, "lora_id")?).ok_or_else(|| wrong("lora_id", "a number"))?;
        Ok(Self {
            instances,
            tokens,
            model: Box::from(&**model),
            lora,
        })
    }

    /// Returns the answer and the number of instances left out because their feeds are not live. Adapters are known by
    /// name here, so any adapter number but -1 matches nothing.
    pub(crate) fn answer(&self, sources: &LookupSources<'_>) -> Result<(CacheAnswer, usize), Refusal> {
        let (mut found, mut left_out) = (BTreeMap::new(), 0);
        if self.lora == -1 {
            let registered = LookupSources {
                workers: &[],
                ..*sources
            };
            for (context, services) in sources.directory.contexts() {
                if context.model == self.model && context.lora.is_empty() {
                    let held = self.query(context, &registered)?;
                    left_out += held.not_current.len();
                    let services = services.iter().map(|known| &*known.service);
                    let engines = services.filter(|service| service.kind != ServiceKind::Mooncake);
                    engines.for_each(|service| {
                        self.note(service, context.block_size, &held.instances, &mut found);
                    });
                }
            }
            left_out += self.answer_workers(sources, &mut found)?;
        }
        Ok((self.rank(found), left_out))
    }

    /// Adds the router's own workers. Returns how many of them are left out.
    fn answer_workers(
        &self,
        sources: &LookupSources<'_>,
        found: &mut BTreeMap<Box<str>, u32>,
    ) -> Result<usize, Refusal> {
        // A block size of 1 token: the workers' own block sizes count.
        let context = QueryContext {
            tenant: "default".into(),
            model: self.model.clone(),
            lora: "".into(),
            block_size: 1,
        };
        let own = LookupSources {
            directory: &Directory::default(),
            ..*sources
        };
        let held = self.query(&context, &own)?;
        for known in sources.workers {
            let name = &known.worker.spec().name;
            let size = sources.index.block_size(known.worker.id()).unwrap_or(1);
            let endpoint = known.feeds.first().map_or("", |feed| &feed.endpoint);
            self.note_named(name, endpoint, size, &held.instances, found);
        }
        Ok(held.not_current.len())
    }

    fn query(&self, context: &QueryContext, sources: &LookupSources<'_>) -> Result<LookupResult, Refusal> {
        let selection = EngineSelection {
            context: context.clone(),
            salt: "".into(),
            instance: None,
        };
        let candidates = EngineCandidates::of(&selection, sources);
        candidates.query(
            sources.index,
            &selection,
            &LookupKeys::Tokens(self.tokens.clone()),
        )
    }

    fn note(
        &self,
        service: &Service,
        size: u32,
        held: &InstanceHoldings,
        found: &mut BTreeMap<Box<str>, u32>,
    ) {
        self.note_named(&service.instance, &service.endpoint, size, held, found);
    }

    fn note_named(
        &self,
        instance: &str,
        endpoint: &str,
        block_size: u32,
        held: &InstanceHoldings,
        found: &mut BTreeMap<Box<str>, u32>,
    ) {
        let mut requested = self.instances.iter().map(|name| &**name);
        let Some(name) = requested.find(|name| *name == instance || *name == host(endpoint)) else {
            return;
        };
        let ranks = held.get(instance).into_iter().flatten();
        let tokens = ranks.map(|(_, held)| held.disk).max().unwrap_or(0);
        // As upstream counts: whole blocks held, of the whole blocks queried.
        let blocks = self.tokens.len() as u64 / u64::from(block_size);
        let percent = (u64::from(tokens / block_size) * 100)
            .checked_div(blocks)
            .unwrap_or(0);
        if percent > 0 {
            let entry = found.entry(name.into()).or_default();
            *entry = (*entry).max(percent.min(100) as u32);
        }
    }

    fn rank(&self, found: BTreeMap<Box<str>, u32>) -> CacheAnswer {
        let percent = found.values().copied().max().unwrap_or(0);
        let best = self
            .instances
            .iter()
            .find(|name| found.get(*name) == Some(&percent));
        CacheAnswer {
            best_prefiller: best.cloned(),
            cache_hit_percent: percent,
            matched_engines: found.clone(),
            hit_status: found,
            status: "ok",
        }
    }
}

/// Returns the host of an endpoint: `10.0.0.1` of `tcp://10.0.0.1:5557`.
fn host(endpoint: &str) -> &str {
    let address = endpoint
        .split_once("://")
        .map_or(endpoint, |(_, address)| address);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn present<'f, 'b>(body: &'f Document<'b>, name: &str) -> Result<&'f Field<'b>, Refusal> {
    body.get(name)
        .ok_or_else(|| Refusal::bad(Reason::Missing, name, format!("missing key: {name}")))
}

fn list<'b>(body: &Document<'b>, name: &str) -> Result<Vec<Field<'b>>, Refusal> {
    match present(body, name)? {
        Field::List(fields) => Ok(fields.clone()),
        Field::Ints(numbers) => Ok(numbers.iter().copied().map(Field::Int).collect()),
        _ => Err(Refusal::because(
            StatusCode::BAD_REQUEST,
            Reason::NotArray,
            format!("the value of {name} is not an array"),
        )),
    }
}

/// Truncates floats, as the first generation did.
fn number(field: &Field<'_>) -> Option<i64> {
    match field {
        Field::Int(number) => Some(*number),
        Field::Float(number) if number.is_finite() => Some(*number as i64),
        _ => None,
    }
}

fn wrong(name: &str, kind: &str) -> Refusal {
    Refusal::bad(
        Reason::InvalidType,
        name,
        format!("\"the value of: {name}\" is not {kind}"),
    )
}
