//! Numbers with an exact JSON form: finite ones as JSON numbers, the others as text.
//!
//! The default NaN is `"NaN"`; with another sign or payload it is `"NaN:"` and the 16 hexadecimal digits of its bits.
//! `"inf"`, `"-inf"`.

use serde::de::Error as _;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Limit below which every whole number is exact as a double.
const WHOLE: f64 = 9_007_199_254_740_992.0;
const NOT_A_NUMBER: &str = "NaN";

/// Number, compared bit by bit.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub f64);

/// Numbers, compared bit by bit.
#[derive(Debug, Clone, Default)]
pub struct Numbers(pub Vec<f64>);

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl PartialEq for Numbers {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |of: &Self| of.0.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        numbers(self) == numbers(other)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = self.0;
        if number.is_nan() {
            return if number.to_bits() == f64::NAN.to_bits() {
                serializer.serialize_str(NOT_A_NUMBER)
            } else {
                serializer.collect_str(&format_args!("{NOT_A_NUMBER}:{:016x}", number.to_bits()))
            };
        }
        if number.is_infinite() {
            return serializer.serialize_str(if number > 0.0 { "inf" } else { "-inf" });
        }
        let is_short = number.fract() == 0.0 && number.abs() < WHOLE;
        if is_short && number.to_bits() != (-0.0_f64).to_bits() {
            serializer.serialize_i64(number as i64)
        } else {
            serializer.serialize_f64(number)
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // serde_json's own parser reads some doubles off by one bit.
        let text = <&RawValue>::deserialize(deserializer)?.get();
        parse(text)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format_args!("`{text}` is not a number")))
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for number in &self.0 {
            list.serialize_element(&Number(*number))?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<Number>::deserialize(deserializer)?;
        Ok(Self(numbers.into_iter().map(|number| number.0).collect()))
    }
}

fn parse(text: &str) -> Option<f64> {
    let Some(word) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return text.parse().ok();
    };
    match word {
        NOT_A_NUMBER => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => {
            let bits = word.strip_prefix(NOT_A_NUMBER)?.strip_prefix(':')?;
            let number = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
            number.is_nan().then_some(number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(number: f64, json: &str) {
        let written = serde_json::to_string(&Number(number)).unwrap();
        assert_eq!(written, json);
        let read: Number = serde_json::from_str(&written).unwrap();
        assert_eq!(read, Number(number), "{json}");
    }

    #[test]
    fn every_kind_of_number_round_trips_bit_by_bit() {
        check(3.0, "3");
        check(-17.0, "-17");
        check(0.0, "0");
        check(-0.0, "-0.0");
        check(0.1, "0.1");
        check(1.0 / 3.0, "0.3333333333333333");
        check(f64::INFINITY, "\"inf\"");
        check(f64::NEG_INFINITY, "\"-inf\"");
        check(f64::NAN, "\"NaN\"");
        check(f64::from_bits(0xfff8_0000_0000_0001), "\"NaN:fff8000000000001\"");
    }

    #[test]
    fn random_bit_patterns_read_back() {
        let mut bits = 1_u64;
        for _ in 0..50 {
            let numbers = Numbers(
                (0..1000)
                    .map(|_| {
                        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        f64::from_bits(bits ^ (bits >> 29))
                    })
                    .collect(),
            );
            let json = serde_json::to_string(&numbers).unwrap();
            assert_eq!(serde_json::from_str::<Numbers>(&json).unwrap(), numbers);
        }
    }

    #[test]
    fn other_text_is_rejected() {
        for text in [
            "\"nan\"",
            "\"NaN:7ff0000000000000\"",
            "\"NaN:x\"",
            "true",
            "[]",
            "\"1\"",
        ] {
            assert!(serde_json::from_str::<Number>(text).is_err(), "{text}");
        }
    }
}
