//! Attributes, resources and scopes.

/// Process that sends spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    /// Attributes.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// Library that makes spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct InstrumentationScope {
    /// Name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// Value of an attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    pub value: Option<Value>,
}

/// Kinds of values.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    Text(String),
    /// Truth value.
    #[prost(bool, tag = "2")]
    Flag(bool),
    /// Whole number.
    #[prost(int64, tag = "3")]
    Whole(i64),
    /// Number.
    #[prost(double, tag = "4")]
    Number(f64),
    /// List.
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

/// List of values.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArrayValue {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl KeyValue {
    /// Makes an attribute.
    #[must_use]
    pub fn new(key: &str, value: impl Into<Value>) -> Self {
        Self {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(value.into()),
            }),
        }
    }
}
