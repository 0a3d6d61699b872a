//! CPython's pickle, protocol 5 (PEP 3154 and 574), of vLLM's hash input: byte for byte the output of `pickle.dumps`.
//!
//! The memo stores every string, bytes and tuple by the object's identity. Only values that are one object in vLLM
//! share an entry: its literals do, other equal values do not.

use crate::serial::{BATCH, BATCH_BYTES, Serializer, append_batch};

const PROTOCOL: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
const MEMOIZE: u8 = 0x94;
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';
const NONE: u8 = b'N';
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const EMPTY_TUPLE: u8 = b')';
/// Opcodes for one, two and three values.
const TUPLES: [u8; 3] = [0x85, 0x86, 0x87];
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const SHORT_BINBYTES: u8 = b'C';
const BINBYTES: u8 = b'B';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';
const STOP: u8 = b'.';

/// A frame of this size is closed before the next object; a payload of this length is written outside frames.
const FRAME_TARGET: usize = 64 * 1024;
/// A shorter frame is written without its head.
const FRAME_MIN: usize = 4;
/// Opcode and 8 bytes of length.
const FRAME_HEAD: usize = 9;

/// Appends one value to a buffer.
pub(crate) struct PickleWriter<'b> {
    out: &'b mut Vec<u8>,
    /// Position of the open frame's head.
    frame: Option<usize>,
    memoized: u32,
    words: Vec<(&'static str, u32)>,
}

impl<'b> PickleWriter<'b> {
    pub(crate) fn new(out: &'b mut Vec<u8>) -> Self {
        out.extend_from_slice(&PROTOCOL);
        Self {
            out,
            frame: None,
            memoized: 0,
            words: Vec::new(),
        }
    }

    /// Marks a position between two objects, where a frame may end.
    #[inline]
    fn next_object(&mut self) {
        match self.frame {
            None => self.open_frame(),
            Some(head) if self.out.len() - head - FRAME_HEAD >= FRAME_TARGET => {
                self.close_frame();
                self.open_frame();
            }
            Some(_) => {}
        }
    }

    fn open_frame(&mut self) {
        if self.frame.is_none() {
            self.frame = Some(self.out.len());
            self.out.extend_from_slice(&[FRAME, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }

    fn close_frame(&mut self) {
        let Some(head) = self.frame.take() else { return };
        let body = head + FRAME_HEAD;
        let len = self.out.len() - body;
        if len < FRAME_MIN {
            self.out.drain(head..body);
        } else {
            self.out[head + 1..body].copy_from_slice(&(len as u64).to_le_bytes());
        }
    }

    #[inline]
    fn memoize(&mut self) -> u32 {
        self.open_frame();
        self.out.push(MEMOIZE);
        self.memoized += 1;
        self.memoized - 1
    }

    /// Writes a string or bytes: `short` for up to 255 bytes, `long` beyond.
    fn payload(&mut self, short: u8, long: u8, bytes: &[u8]) {
        self.next_object();
        if bytes.len() >= FRAME_TARGET {
            self.close_frame();
        }
        match u8::try_from(bytes.len()) {
            Ok(len) => self.out.extend_from_slice(&[short, len]),
            Err(_) => {
                self.out.push(long);
                self.out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            }
        }
        self.out.extend_from_slice(bytes);
    }

    fn recall(&mut self, memo: u32) {
        self.next_object();
        match u8::try_from(memo) {
            Ok(memo) => self.out.extend_from_slice(&[BINGET, memo]),
            Err(_) => {
                self.out.push(LONG_BINGET);
                self.out.extend_from_slice(&memo.to_le_bytes());
            }
        }
    }

    #[inline]
    fn int32(&mut self, number: i32) {
        self.next_object();
        let (bytes, len) = short_int(number);
        self.out.extend_from_slice(&bytes[..len]);
    }

    /// Returns `true` if the open frame can take another batch of ints.
    fn has_room(&self) -> bool {
        let used = self.frame.map(|head| self.out.len() - head - FRAME_HEAD);
        used.is_some_and(|used| used + BATCH_BYTES < FRAME_TARGET)
    }
}

/// Writes an int with the number of significant bytes.
#[inline]
fn short_int(number: i32) -> ([u8; 5], usize) {
    let [a, b, c, d] = number.to_le_bytes();
    match number {
        0..=0xff => ([BININT1, a, 0, 0, 0], 2),
        0x100..=0xffff => ([BININT2, a, b, 0, 0], 3),
        _ => ([BININT, a, b, c, d], 5),
    }
}

impl Serializer for PickleWriter<'_> {
    fn none(&mut self) {
        self.next_object();
        self.out.push(NONE);
    }

    fn int(&mut self, number: i64) {
        if let Ok(number) = i32::try_from(number) {
            return self.int32(number);
        }
        self.next_object();
        // Two's complement, as short as its sign allows.
        let bytes = number.to_le_bytes();
        let sign = if number < 0 { 0xff } else { 0 };
        let mut len = 8;
        while bytes[len - 1] == sign && (bytes[len - 2] ^ sign) & 0x80 == 0 {
            len -= 1;
        }
        self.out.extend_from_slice(&[LONG1, len as u8]);
        self.out.extend_from_slice(&bytes[..len]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.payload(SHORT_BINBYTES, BINBYTES, bytes);
        self.memoize();
    }

    fn text(&mut self, text: &str) {
        self.payload(SHORT_BINUNICODE, BINUNICODE, text.as_bytes());
        self.memoize();
    }

    fn word(&mut self, word: &'static str) {
        if let Some(&(_, memo)) = self.words.iter().find(|(known, _)| *known == word) {
            return self.recall(memo);
        }
        self.payload(SHORT_BINUNICODE, BINUNICODE, word.as_bytes());
        let memo = self.memoize();
        self.words.push((word, memo));
    }

    #[inline]
    fn open(&mut self, len: usize) {
        self.next_object();
        if len > TUPLES.len() {
            self.out.push(MARK);
        }
    }

    #[inline]
    fn close(&mut self, len: usize) {
        self.open_frame();
        match len {
            0 => return self.out.push(EMPTY_TUPLE),
            1..=3 => self.out.push(TUPLES[len - 1]),
            _ => self.out.push(TUPLE),
        }
        self.memoize();
    }

    #[inline]
    fn ints(&mut self, numbers: &[u32]) {
        self.open(numbers.len());
        for batch in numbers.chunks(BATCH) {
            if self.has_room() {
                append_batch(self.out, batch, short_int);
            } else {
                batch.iter().for_each(|&number| self.int32(number as i32));
            }
        }
        self.close(numbers.len());
    }

    fn end(&mut self) {
        self.open_frame();
        self.out.push(STOP);
        self.close_frame();
    }
}
