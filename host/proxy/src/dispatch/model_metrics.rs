//! Metrics of requests by pool and model.
//!
//! The label `model` is a closed set: names in the configuration and in the workers' lists. All others are counted as
//! `other`, and so are names beyond [`MOST_MODELS`] in a pool. Handles are made when a name first comes, and a request
//! looks its handle up once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use http::StatusCode;
use inference_api::EndpointClass;
use observability::{ExemplarBook, TracedHistogram};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::base::buckets::BucketBounds;
use crate::base::traced_family::TracedFamily;

/// Label of a model that no configuration and no worker names.
pub(crate) const OTHER_MODEL: &str = "other";
/// Most models of a pool with a label of their own.
const MOST_MODELS: usize = 100;

/// Statuses with a label of their own. Others are counted by their first digit, as `5xx`.
const CODES: [(u16, &str); 22] = [
    (101, "101"),
    (200, "200"),
    (201, "201"),
    (202, "202"),
    (204, "204"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (404, "404"),
    (405, "405"),
    (408, "408"),
    (409, "409"),
    (413, "413"),
    (415, "415"),
    (422, "422"),
    (426, "426"),
    (429, "429"),
    (500, "500"),
    (501, "501"),
    (502, "502"),
    (503, "503"),
    (504, "504"),
];
const CODE_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Statuses whose counters exist from an endpoint's first request on, so that their first increase is seen.
const EXPECTED_CODES: [u16; 6] = [200, 400, 429, 500, 502, 503];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolModelLabel {
    pool: String,
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnsweredLabel {
    pool: String,
    model: String,
    endpoint: &'static str,
    code: &'static str,
}

/// Metric families by pool and model. A clone is another handle to the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct ModelFamilies {
    first_token: TracedFamily<PoolModelLabel>,
    duration: TracedFamily<PoolModelLabel>,
    per_token: TracedFamily<PoolModelLabel>,
    output_tokens: Family<PoolModelLabel, Counter>,
    answered: Family<AnsweredLabel, Counter>,
    /// Tables of the pools that there have been. They outlive snapshots.
    tables: Arc<Mutex<HashMap<String, Arc<ModelTable>>>>,
}

impl ModelFamilies {
    pub(crate) fn new(bounds: &BucketBounds, exemplars: &ExemplarBook) -> Self {
        let family = |name| TracedFamily::new(name, bounds, exemplars);
        Self {
            first_token: family("time_to_first_token_seconds"),
            duration: family("request_duration_seconds"),
            per_token: family("time_per_output_token_seconds"),
            output_tokens: Family::default(),
            answered: Family::default(),
            tables: Arc::default(),
        }
    }
}

/// Metric handles of one model of a pool.
#[derive(Debug)]
pub(crate) struct ModelMetrics {
    /// From the request's head to the first byte of a streamed answer.
    pub(crate) first_token: TracedHistogram,
    /// From the request's head to its end.
    pub(crate) duration: TracedHistogram,
    /// Time of each token after the first of a streamed answer.
    pub(crate) per_token: TracedHistogram,
    pub(crate) output_tokens: Counter,
    label: PoolModelLabel,
    answered: Family<AnsweredLabel, Counter>,
    /// Answers, indexed by the discriminant of the endpoint's class.
    by_class: [OnceLock<Box<ClassAnswers>>; EndpointClass::ALL.len()],
}

/// Answers of one class of endpoints, by status.
#[derive(Debug)]
struct ClassAnswers {
    endpoint: &'static str,
    codes: [OnceLock<Counter>; CODES.len() + CODE_CLASSES.len()],
}

impl ModelFamilies {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "time_to_first_token_seconds",
            "From the request's head to the first byte of a streamed answer",
            self.first_token.family.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "From the request's head to the end of its answer",
            self.duration.family.clone(),
        );
        registry.register(
            "time_per_output_token_seconds",
            "First byte to end of a complete streamed answer, by its tokens less one",
            self.per_token.family.clone(),
        );
        registry.register(
            "output_tokens",
            "Tokens of answers: from their usage, else one for each event of a stream",
            self.output_tokens.clone(),
        );
        registry.register(
            "requests_answered",
            "Answered requests by HTTP status",
            self.answered.clone(),
        );
    }

    /// Returns the models of a pool.
    pub(crate) fn table(&self, pool: &str) -> Arc<ModelTable> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(pool) {
            return Arc::clone(table);
        }
        let table = Arc::new(ModelTable {
            pool: pool.to_owned(),
            families: Self {
                tables: Arc::default(),
                ..self.clone()
            },
            known: ArcSwap::default(),
            writer: Mutex::default(),
            other: Arc::new(self.model(pool, OTHER_MODEL)),
        });
        tables.insert(pool.to_owned(), Arc::clone(&table));
        table
    }

    /// Returns the metrics of one model.
    fn model(&self, pool: &str, model: &str) -> ModelMetrics {
        let label = PoolModelLabel {
            pool: pool.to_owned(),
            model: model.to_owned(),
        };
        let labels = [("pool", pool), ("model", model)];
        ModelMetrics {
            first_token: self.first_token.histogram(&label, &labels),
            duration: self.duration.histogram(&label, &labels),
            per_token: self.per_token.histogram(&label, &labels),
            output_tokens: self.output_tokens.get_or_create_owned(&label),
            label,
            answered: self.answered.clone(),
            by_class: [const { OnceLock::new() }; EndpointClass::ALL.len()],
        }
    }

    /// Counts the answer to a request that no route matched.
    pub(crate) fn unrouted(&self, class: EndpointClass, status: StatusCode) {
        let label = AnsweredLabel {
            pool: String::new(),
            model: OTHER_MODEL.to_owned(),
            endpoint: EndpointClass::ALL[class as usize].1,
            code: code_label(code_index(status)),
        };
        self.answered.get_or_create(&label).inc();
    }
}

impl ModelMetrics {
    /// Makes the counters of an endpoint, where it has none.
    pub(crate) fn expects(&self, class: EndpointClass) {
        self.class(class);
    }

    /// Returns the label of the model.
    pub(crate) fn name(&self) -> &str {
        &self.label.model
    }

    /// Counts an answer.
    pub(crate) fn answered(&self, class: EndpointClass, status: StatusCode) {
        self.counter(self.class(class), code_index(status)).inc();
    }

    fn class(&self, class: EndpointClass) -> &ClassAnswers {
        self.by_class[class as usize].get_or_init(|| {
            let answers = ClassAnswers {
                endpoint: EndpointClass::ALL[class as usize].1,
                codes: [const { OnceLock::new() }; CODES.len() + CODE_CLASSES.len()],
            };
            for code in EXPECTED_CODES.iter().filter_map(|code| exact_index(*code)) {
                self.counter(&answers, code);
            }
            Box::new(answers)
        })
    }

    fn counter<'a>(&self, answers: &'a ClassAnswers, code: usize) -> &'a Counter {
        answers.codes[code].get_or_init(|| {
            self.answered.get_or_create_owned(&AnsweredLabel {
                pool: self.label.pool.clone(),
                model: self.label.model.clone(),
                endpoint: answers.endpoint,
                code: code_label(code),
            })
        })
    }
}

fn exact_index(code: u16) -> Option<usize> {
    CODES.iter().position(|(known, _)| *known == code)
}

fn code_index(status: StatusCode) -> usize {
    let code = status.as_u16();
    let digit = usize::from(code / 100).clamp(1, CODE_CLASSES.len());
    exact_index(code).unwrap_or(CODES.len() + digit - 1)
}

fn code_label(index: usize) -> &'static str {
    match CODES.get(index) {
        Some((_, label)) => label,
        None => CODE_CLASSES[index - CODES.len()],
    }
}

/// Models of a pool with their metrics.
#[derive(Debug)]
pub(crate) struct ModelTable {
    pool: String,
    families: ModelFamilies,
    /// Names that were known once. The third `ArcSwap` of the request path: it changes with the first request of a
    /// model, and readers do not wait for that.
    known: ArcSwap<HashMap<Box<str>, Arc<ModelMetrics>>>,
    /// Lock that is held while a name is added.
    writer: Mutex<()>,
    other: Arc<ModelMetrics>,
}

impl ModelTable {
    /// Returns the metrics of requests for a model. `is_known` is called for a name that did not come before.
    pub(crate) fn find(&self, model: &str, is_known: impl FnOnce() -> bool) -> Arc<ModelMetrics> {
        let known = self.known.load();
        match known.get(model) {
            Some(metrics) => Arc::clone(metrics),
            None if known.len() < MOST_MODELS && is_known() => self.add(model),
            None => self.other(),
        }
    }

    /// Calls `look` with the metrics of each model.
    pub(crate) fn each(&self, mut look: impl FnMut(&ModelMetrics)) {
        look(&self.other);
        self.known.load().values().for_each(|model| look(model));
    }

    /// Returns the metrics of requests for models without a label of their own.
    pub(crate) fn other(&self) -> Arc<ModelMetrics> {
        Arc::clone(&self.other)
    }

    #[cold]
    fn add(&self, model: &str) -> Arc<ModelMetrics> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load();
        if let Some(metrics) = known.get(model) {
            return Arc::clone(metrics);
        }
        if known.len() >= MOST_MODELS {
            return self.other();
        }
        let metrics = Arc::new(self.families.model(&self.pool, model));
        let mut known = HashMap::clone(&known);
        known.insert(model.into(), Arc::clone(&metrics));
        self.known.store(Arc::new(known));
        metrics
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn page(families: &ModelFamilies) -> String {
        let mut registry = Registry::default();
        families.register(&mut registry);
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn unknown_models_share_a_label_and_known_ones_keep_theirs() {
        let families = ModelFamilies::new(&BucketBounds::default(), &ExemplarBook::default());
        let table = families.table("main");
        table.find("llama", || true).output_tokens.inc();
        table.find("made-up-1", || false).output_tokens.inc();
        table.find("made-up-2", || false).output_tokens.inc();
        // It is known for good, for instance while its worker is away.
        table.find("llama", || false).output_tokens.inc();
        let page = page(&families);
        for line in [
            r#"output_tokens_total{pool="main",model="llama"} 2"#,
            r#"output_tokens_total{pool="main",model="other"} 2"#,
        ] {
            assert!(page.contains(line), "{page}");
        }
        assert!(!page.contains("made-up"), "{page}");
    }

    #[test]
    fn a_pool_has_a_bounded_number_of_model_labels() {
        let families = ModelFamilies::new(&BucketBounds::default(), &ExemplarBook::default());
        let table = families.table("main");
        for number in 0..2 * MOST_MODELS {
            table.find(&number.to_string(), || true).output_tokens.inc();
        }
        let page = page(&families);
        let labels = page
            .lines()
            .filter(|line| line.starts_with("output_tokens_total{"));
        assert_eq!(labels.count(), MOST_MODELS + 1);
    }

    #[test]
    fn answers_are_counted_by_status_and_unusual_ones_by_its_first_digit() {
        let families = ModelFamilies::new(&BucketBounds::default(), &ExemplarBook::default());
        let model = families.table("main").find("m", || true);
        model.expects(EndpointClass::Chat);
        for code in [200, 200, 418, 529, 999] {
            model.answered(EndpointClass::Chat, StatusCode::from_u16(code).unwrap());
        }
        families.unrouted(EndpointClass::Embedding, StatusCode::NOT_FOUND);
        let page = page(&families);
        let counted = |pool: &str, model: &str, endpoint: &str, code: &str, count: u64| {
            let line = format!(
                r#"requests_answered_total{{pool="{pool}",model="{model}",endpoint="{endpoint}",code="{code}"}} {count}"#
            );
            assert!(page.contains(&line), "{line}: {page}");
        };
        counted("main", "m", "chat", "200", 2);
        counted("main", "m", "chat", "4xx", 1);
        counted("main", "m", "chat", "5xx", 2);
        counted("main", "m", "chat", "503", 0);
        counted("", "other", "embedding", "404", 1);
    }
}
