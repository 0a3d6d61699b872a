//! JSON reader for one flat object of parameters.
//!
//! Uses miniserde, which adds 10 KB to a component; serde_json adds 65 KB.

use miniserde::de::{Deserialize, Map, Seq, Visitor};
use miniserde::{Result, json, make_place};

/// Value of one parameter.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Flag(bool),
    Number(f64),
    Text(String),
    /// Null, array or object: valid for no parameter.
    Other,
}

/// Reads the members of a JSON object, in order; none if the text is no object.
pub(super) fn read(text: &str) -> Option<Vec<(String, Value)>> {
    json::from_str::<ObjectMembers>(text)
        .ok()
        .map(|members| members.0)
}

struct ObjectMembers(Vec<(String, Value)>);

make_place!(Place);

impl Deserialize for Value {
    fn begin(out: &mut Option<Self>) -> &mut dyn Visitor {
        Place::new(out)
    }
}

impl Visitor for Place<Value> {
    fn null(&mut self) -> Result<()> {
        self.out = Some(Value::Other);
        Ok(())
    }

    fn boolean(&mut self, flag: bool) -> Result<()> {
        self.out = Some(Value::Flag(flag));
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<()> {
        self.out = Some(Value::Text(text.to_owned()));
        Ok(())
    }

    fn negative(&mut self, number: i64) -> Result<()> {
        self.float(number as f64)
    }

    fn nonnegative(&mut self, number: u64) -> Result<()> {
        self.float(number as f64)
    }

    fn float(&mut self, number: f64) -> Result<()> {
        self.out = Some(Value::Number(number));
        Ok(())
    }

    fn seq(&mut self) -> Result<Box<dyn Seq + '_>> {
        self.out = Some(Value::Other);
        <dyn Visitor>::ignore().seq()
    }

    fn map(&mut self) -> Result<Box<dyn Map + '_>> {
        self.out = Some(Value::Other);
        <dyn Visitor>::ignore().map()
    }
}

impl Deserialize for ObjectMembers {
    fn begin(out: &mut Option<Self>) -> &mut dyn Visitor {
        Place::new(out)
    }
}

impl Visitor for Place<ObjectMembers> {
    fn map(&mut self) -> Result<Box<dyn Map + '_>> {
        Ok(Box::new(ObjectReader {
            out: &mut self.out,
            read: Vec::new(),
            name: String::new(),
            value: None,
        }))
    }
}

/// Partially read object: `value` belongs to `name` and is filled after `key` has returned.
struct ObjectReader<'a> {
    out: &'a mut Option<ObjectMembers>,
    read: Vec<(String, Value)>,
    name: String,
    value: Option<Value>,
}

impl ObjectReader<'_> {
    fn keep(&mut self) {
        if let Some(value) = self.value.take() {
            self.read.push((std::mem::take(&mut self.name), value));
        }
    }
}

impl Map for ObjectReader<'_> {
    fn key(&mut self, name: &str) -> Result<&mut dyn Visitor> {
        self.keep();
        name.clone_into(&mut self.name);
        Ok(Deserialize::begin(&mut self.value))
    }

    fn finish(&mut self) -> Result<()> {
        self.keep();
        *self.out = Some(ObjectMembers(std::mem::take(&mut self.read)));
        Ok(())
    }
}
