//! Lines as they are written, read by a parser that refuses a repeated key.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;
use tracing::{debug, debug_span, warn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt as subscriber_fmt};

use super::*;

#[derive(Debug, Error)]
#[error("out of cash")]
struct Cash;

#[derive(Debug, Error)]
#[error("buy a yak")]
struct Buy(#[source] Cash);

#[derive(Debug, Error)]
#[error("shave the yak")]
struct Shave(#[source] Buy);

/// An object none of whose keys is repeated.
#[derive(Debug)]
struct Unique(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
                let mut keys = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if keys.insert(key.clone(), value).is_some() {
                        return Err(serde::de::Error::custom(format!("the key `{key}` is repeated")));
                    }
                }
                Ok(Unique(keys))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the only line that `log` writes.
#[track_caller]
fn line(log: impl FnOnce()) -> BTreeMap<String, Value> {
    let written = Written::default();
    let writer = written.clone();
    let layer = subscriber_fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(JsonLines)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    tracing::subscriber::with_default(Registry::default().with(layer), log);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    let Unique(keys) = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    keys
}

#[test]
fn an_error_is_written_with_its_whole_chain_once() {
    let error = Shave(Buy(Cash));
    let error = &error as &dyn Error;
    let keys = line(|| warn!(error, "no yak"));
    assert_eq!(keys["message"], "no yak");
    assert_eq!(keys["level"], "WARN");
    assert_eq!(keys["error"], "shave the yak");
    assert_eq!(keys["error.sources"], json!(["buy a yak", "out of cash"]));
}

#[test]
fn an_error_without_a_cause_has_no_sources() {
    let error = &Cash as &dyn Error;
    let keys = line(|| warn!(error, "no yak"));
    assert_eq!(keys["error"], "out of cash");
    assert!(!keys.contains_key("error.sources"), "{keys:?}");
}

#[test]
fn no_key_is_repeated_whatever_fields_an_event_and_its_spans_have() {
    let keys = line(|| {
        let outer = debug_span!("outer", name = "mine", id = 1);
        let _outer = outer.enter();
        let inner = debug_span!("inner", id = 2, level = "high");
        let _inner = inner.enter();
        debug!(
            level = 3,
            target = "t",
            span = "s",
            spans = 4,
            timestamp = "now",
            id = 5,
            "said"
        );
    });
    assert_eq!(keys["level"], "DEBUG");
    assert_eq!(keys["field.level"], 3);
    assert_eq!(keys["field.target"], "t");
    assert_eq!(keys["field.timestamp"], "now");
    assert_eq!(keys["id"], 5);
    assert_eq!(keys["span"], json!({ "name": "inner", "id": 2, "level": "high" }));
    let outer = json!({ "name": "outer", "field.name": "mine", "id": 1 });
    assert_eq!(keys["spans"], json!([outer, keys["span"]]));
}

#[test]
fn values_that_json_cannot_express_are_written_as_text() {
    let keys = line(|| debug!(share = f64::NAN, quoted = "a \"b\"\n\u{1b}", "odd"));
    assert_eq!(keys["share"], "NaN");
    assert_eq!(keys["quoted"], "a \"b\"\n\u{1b}");
}
