//! Exemplars of histograms: for each bucket the trace of a request that fell into it.
//!
//! A histogram is observed by every request, and stays the plain one. Its slots stand beside it, and only traced
//! requests write to them: one attempt to take a slot's lock, which no observation needs. The exposition reads the
//! slots and adds them to the lines of an OpenMetrics page.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::histogram::Histogram;

/// Histogram with slots for exemplars.
#[derive(Debug, Clone)]
pub struct TracedHistogram {
    histogram: Histogram,
    slots: Arc<ExemplarSlots>,
}

/// Slots of one histogram, a bucket each.
#[derive(Debug)]
struct ExemplarSlots {
    /// Upper bounds of the buckets. The last bucket has none.
    bounds: Arc<[f64]>,
    /// Made by the first exemplar.
    each: OnceLock<Box<[Mutex<Option<Exemplar>>]>>,
}

#[derive(Debug, Clone, Copy)]
struct Exemplar {
    trace: [u8; 16],
    value: f64,
    /// Time since 1970.
    at: Duration,
}

/// Book of the histograms with exemplars. Clones are handles of the same book.
#[derive(Debug, Clone, Default)]
pub struct ExemplarBook {
    series: Arc<Mutex<HashMap<String, Arc<ExemplarSlots>>>>,
}

impl TracedHistogram {
    /// Observes a value.
    pub fn observe(&self, value: f64) {
        self.histogram.observe(value);
    }

    /// Keeps an observed value with the trace of its request. It is left out while another one is being kept.
    pub fn keep_exemplar(&self, value: f64, trace: [u8; 16]) {
        let slots = &self.slots;
        let bucket = slots.bounds.partition_point(|bound| *bound < value);
        let each = slots.each.get_or_init(|| {
            let buckets = 0..=slots.bounds.len();
            buckets.map(|_| Mutex::default()).collect()
        });
        if let Some(Ok(mut slot)) = each.get(bucket).map(Mutex::try_lock) {
            let at = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            *slot = Some(Exemplar { trace, value, at });
        }
    }

    /// Returns the histogram.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }
}

impl ExemplarBook {
    /// Adds slots to a histogram. `name` is that of the family on the page, `labels` are in the order of the page.
    #[must_use]
    pub fn attach(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: Histogram,
        bounds: &Arc<[f64]>,
    ) -> TracedHistogram {
        let slots = Arc::new(ExemplarSlots {
            bounds: Arc::clone(bounds),
            each: OnceLock::new(),
        });
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = series.entry(series_key(name, labels));
        let slots = Arc::clone(kept.or_insert(slots));
        TracedHistogram { histogram, slots }
    }

    /// Returns the exemplars of all series, by the text of the series without its bound.
    pub(crate) fn read(&self) -> PageExemplars {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let used = series.iter().filter_map(|(key, slots)| {
            Some((key.clone(), slots.each.get()?.iter().map(read_slot).collect()))
        });
        PageExemplars(used.collect())
    }
}

fn read_slot(slot: &Mutex<Option<Exemplar>>) -> Option<Exemplar> {
    *slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Exemplars at the time of a scrape.
pub(crate) struct PageExemplars(HashMap<String, Vec<Option<Exemplar>>>);

/// Position in the buckets of a page: the series, and the number of its next bucket.
#[derive(Default)]
pub(crate) struct BucketCursor {
    series: String,
    bucket: usize,
}

impl PageExemplars {
    /// Adds the exemplar of a sample's bucket to its line, where there is one.
    pub(crate) fn add(&self, sample: &str, cursor: &mut BucketCursor, page: &mut String) {
        let Some(series) = self.series_of(sample) else {
            return;
        };
        if cursor.series != series {
            *cursor = BucketCursor { series, bucket: 0 };
        }
        let exemplars = self.0.get(&cursor.series);
        if let Some(Some(exemplar)) = exemplars.and_then(|each| each.get(cursor.bucket)) {
            exemplar.write(page);
        }
        cursor.bucket += 1;
    }

    /// Returns the key of a bucket's series. `None` for other samples, and without any exemplar.
    fn series_of(&self, sample: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let (name, labels) = sample.split_once("_bucket{le=\"")?;
        // A bound has no quote. The value of the last label may contain any character.
        let (_, labels) = labels.split_once('"')?;
        let end = labels.rfind("} ")?;
        let labels = labels[..end].trim_start_matches(',');
        Some(format!("{name}{{{labels}"))
    }
}

impl Exemplar {
    fn write(&self, page: &mut String) {
        page.push_str(" # {trace_id=\"");
        for byte in self.trace {
            let _ = write!(page, "{byte:02x}");
        }
        let _ = write!(page, "\"}} {} {:.3}", self.value, self.at.as_secs_f64());
    }
}

/// Returns the text of a series on the page, without its bound.
fn series_key(name: &str, labels: &[(&str, &str)]) -> String {
    let mut key = format!("{name}{{");
    for (number, (label, value)) in labels.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let escaped = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(key, "{comma}{label}=\"{escaped}\"");
    }
    key
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::openmetrics_page;

    const TRACE: [u8; 16] = [0xab; 16];

    #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Labels {
        pool: String,
        model: String,
    }

    /// Registry with one family, and one histogram of it for each pool.
    fn registry(pools: &[&str]) -> (Registry, ExemplarBook, Vec<TracedHistogram>) {
        let bounds: Arc<[f64]> = [0.5, 1.0].into();
        let of_bounds = Arc::clone(&bounds);
        let family = Family::<Labels, Histogram, _>::new_with_constructor(move || {
            Histogram::new(of_bounds.iter().copied())
        });
        let mut registry = Registry::with_prefix("conductor");
        registry.register("time_seconds", "Time", family.clone());
        let book = ExemplarBook::default();
        let attach = |pool: &&str| {
            let labels = Labels {
                pool: (*pool).to_owned(),
                model: "m".to_owned(),
            };
            let names = [("pool", *pool), ("model", "m")];
            let histogram = family.get_or_create_owned(&labels);
            book.attach("conductor_time_seconds", &names, histogram, &bounds)
        };
        let histograms = pools.iter().map(attach).collect();
        (registry, book, histograms)
    }

    fn page(registry: &Registry, book: &ExemplarBook) -> String {
        let mut page = String::new();
        encode(&mut page, registry).unwrap();
        openmetrics_page(&page, book)
    }

    /// Returns the lines with an exemplar, each without the time.
    fn exemplars(page: &str) -> Vec<&str> {
        let lines = page.lines().filter(|line| line.contains(" # {"));
        lines.map(|line| line.rsplit_once(' ').unwrap().0).collect()
    }

    #[test]
    fn a_kept_value_stands_at_its_bucket_of_its_series() {
        let (registry, book, each) = registry(&["a", r#"b"} 1 # \"#]);
        for histogram in &each {
            histogram.observe(0.7);
        }
        assert!(exemplars(&page(&registry, &book)).is_empty());
        each[1].keep_exemplar(0.7, TRACE);
        let page = page(&registry, &book);
        let id = "ab".repeat(16);
        let expected = format!(
            r#"conductor_time_seconds_bucket{{le="1.0",pool="b\"}} 1 # \\",model="m"}} 1 # {{trace_id="{id}"}} 0.7"#
        );
        assert_eq!(exemplars(&page), [expected]);
    }

    #[test]
    fn every_bucket_keeps_its_latest_value() {
        let (registry, book, each) = registry(&["a"]);
        for value in [0.1, 0.5, 0.9, 1.0, 2.0, 5.0] {
            each[0].observe(value);
            each[0].keep_exemplar(value, TRACE);
        }
        let page = page(&registry, &book);
        let values = exemplars(&page)
            .into_iter()
            .map(|line| line.rsplit_once(' ').unwrap().1);
        assert_eq!(values.collect::<Vec<_>>(), ["0.5", "1", "5"]);
    }

    #[test]
    fn a_slot_that_is_being_read_is_left_as_it_is() {
        let (_, _, each) = registry(&["a"]);
        each[0].keep_exemplar(0.1, TRACE);
        let slots = each[0].slots.each.get().unwrap();
        let reader = slots[0].lock().unwrap();
        each[0].keep_exemplar(0.2, TRACE);
        assert_eq!(reader.unwrap().value, 0.1);
    }

    #[test]
    fn a_series_that_is_attached_twice_has_one_set_of_slots() {
        let (_, book, each) = registry(&["a"]);
        let again = book.attach(
            "conductor_time_seconds",
            &[("pool", "a"), ("model", "m")],
            each[0].histogram().clone(),
            &each[0].slots.bounds,
        );
        assert!(Arc::ptr_eq(&each[0].slots, &again.slots));
    }
}
