//! Canonical CBOR (RFC 8949, section 4.2.1: shortest heads, definite lengths) of vLLM's hash input.

use crate::serial::{BATCH, Serializer, append_batch};

const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const NULL: u8 = 0xf6;

/// Appends to a buffer.
pub(crate) struct CborWriter<'b>(pub(crate) &'b mut Vec<u8>);

impl CborWriter<'_> {
    #[inline]
    fn head(&mut self, major: u8, number: u64) {
        let major = major << 5;
        match number {
            0..=23 => self.0.push(major | number as u8),
            24..=0xff => self.0.extend_from_slice(&[major | 24, number as u8]),
            0x100..=0xffff => {
                let [high, low] = (number as u16).to_be_bytes();
                self.0.extend_from_slice(&[major | 25, high, low]);
            }
            0x1_0000..=0xffff_ffff => {
                let [a, b, c, d] = (number as u32).to_be_bytes();
                self.0.extend_from_slice(&[major | 26, a, b, c, d]);
            }
            _ => {
                self.0.push(major | 27);
                self.0.extend_from_slice(&number.to_be_bytes());
            }
        }
    }
}

/// Writes an int like [`CborWriter::int`], with the number of significant bytes.
#[inline]
fn short_int(number: i32) -> ([u8; 5], usize) {
    let (major, number) = if number < 0 {
        (NEGATIVE << 5, !number as u32)
    } else {
        (0, number as u32)
    };
    let [a, b, c, d] = number.to_be_bytes();
    match number {
        0..=23 => ([major | d, 0, 0, 0, 0], 1),
        24..=0xff => ([major | 24, d, 0, 0, 0], 2),
        0x100..=0xffff => ([major | 25, c, d, 0, 0], 3),
        _ => ([major | 26, a, b, c, d], 5),
    }
}

impl Serializer for CborWriter<'_> {
    fn none(&mut self) {
        self.0.push(NULL);
    }

    #[inline]
    fn int(&mut self, number: i64) {
        if number < 0 {
            // -1 - n, which cannot overflow.
            self.head(NEGATIVE, !number as u64);
        } else {
            self.head(0, number as u64);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.head(BYTES, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.head(TEXT, text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn word(&mut self, word: &'static str) {
        self.text(word);
    }

    fn open(&mut self, len: usize) {
        self.head(ARRAY, len as u64);
    }

    fn close(&mut self, _: usize) {}

    #[inline]
    fn ints(&mut self, numbers: &[u32]) {
        self.open(numbers.len());
        for batch in numbers.chunks(BATCH) {
            append_batch(self.0, batch, short_int);
        }
    }

    fn end(&mut self) {}
}
