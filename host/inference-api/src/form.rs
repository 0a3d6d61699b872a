//! Reader of `multipart/form-data` bodies (RFC 2046, RFC 7578): finds the fields that routing needs, in place.
//!
//! It is as strict as the engines' parser (Starlette's `python-multipart`): lines end in CRLF, and a delimiter is
//! followed by CRLF or `--`. Ambiguous forms are refused: if router and engine read different models, a client could
//! bypass its limits.

use memchr::memmem::{self, Finder};
use thiserror::Error;

/// Longest boundary (RFC 2046, section 5.1.1).
const LONGEST_BOUNDARY: usize = 70;
/// Most parts that are examined; engines take 1,000 fields.
const MOST_PARTS: usize = 1_000;
/// Longest headers of a part, in bytes.
const LONGEST_HEAD: usize = 8 << 10;
/// Longest name of a model, in bytes.
const LONGEST_MODEL: usize = 4 << 10;

/// The body is not an unambiguous form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FormError {
    /// Another content type, or an ambiguous one.
    #[error(
        "the `Content-Type` is not `multipart/form-data` with a boundary of 1 to {LONGEST_BOUNDARY} characters"
    )]
    NoBoundary,
    /// The first delimiter or the last one is missing.
    #[error("it does not end with its closing boundary")]
    NoEnd,
    /// Too many parts.
    #[error("it has more than {MOST_PARTS} parts")]
    TooManyParts,
    /// The headers of a part have no end.
    #[error("the headers of a part are longer than {LONGEST_HEAD} bytes, or not ended")]
    HeadTooLong,
    /// A part has no name, or an ambiguous one.
    #[error("a part has no `Content-Disposition: form-data` with one plain `name`")]
    BadName,
    /// The model's name is too long, or not UTF-8.
    #[error("its `model` is longer than {LONGEST_MODEL} bytes, or not UTF-8")]
    BadModel,
    /// Parsers differ in which of them counts.
    #[error("it names two different models")]
    TwoModels,
}

/// Sizes of a form's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FormSize {
    /// Bytes of all fields that are not files.
    pub text_bytes: usize,
    /// Files.
    pub files: usize,
}

/// Fields of a form that routing needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Form<'a> {
    pub(crate) model: Option<&'a str>,
    pub(crate) stream: bool,
    pub(crate) size: FormSize,
}

impl<'a> Form<'a> {
    /// Reads a body with the boundary in its content type.
    pub(crate) fn read(content_type: &[u8], body: &'a [u8]) -> Result<Self, FormError> {
        let boundary = boundary(content_type).ok_or(FormError::NoBoundary)?;
        let delimiter = [b"\r\n--", boundary].concat();
        let finder = Finder::new(&delimiter);
        let mut rest = opened(body, &finder).ok_or(FormError::NoEnd)?;
        let mut form = Self::default();
        for _ in 0..=MOST_PARTS {
            if rest.starts_with(b"--") {
                return Ok(form);
            }
            let (head, after) = split_head(rest)?;
            let end = next_delimiter(after, &finder).ok_or(FormError::NoEnd)?;
            form.take(head, &after[..end])?;
            rest = &after[end + delimiter.len()..];
        }
        Err(FormError::TooManyParts)
    }

    fn take(&mut self, head: &[u8], value: &'a [u8]) -> Result<(), FormError> {
        let field = DispositionField::of(head).ok_or(FormError::BadName)?;
        if field.is_file {
            self.size.files += 1;
            return Ok(());
        }
        self.size.text_bytes += value.len();
        match field.name {
            b"model" => {
                let text = Some(value).filter(|value| value.len() <= LONGEST_MODEL);
                let model = text.and_then(|text| std::str::from_utf8(text).ok());
                let model = model.ok_or(FormError::BadModel)?;
                if self.model.is_some_and(|before| before != model) {
                    return Err(FormError::TwoModels);
                }
                self.model = Some(model);
            }
            b"stream" => self.stream = is_true(value),
            _ => {}
        }
        Ok(())
    }
}

/// Parses a flag as pydantic does.
fn is_true(value: &[u8]) -> bool {
    let words: [&[u8]; 6] = [b"true", b"1", b"on", b"yes", b"t", b"y"];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Returns the rest after the first delimiter, which may be at the very beginning.
fn opened<'a>(body: &'a [u8], finder: &Finder<'_>) -> Option<&'a [u8]> {
    let delimiter = finder.needle();
    if let Some(rest) = body.strip_prefix(&delimiter[2..])
        && ends_delimiter(rest)
    {
        return Some(rest);
    }
    let at = next_delimiter(body, finder)?;
    Some(&body[at + delimiter.len()..])
}

/// Returns the position of the next delimiter. Its text followed by other bytes belongs to the part.
fn next_delimiter(bytes: &[u8], finder: &Finder<'_>) -> Option<usize> {
    let length = finder.needle().len();
    finder
        .find_iter(bytes)
        .find(|at| ends_delimiter(&bytes[at + length..]))
}

fn ends_delimiter(rest: &[u8]) -> bool {
    rest.starts_with(b"\r\n") || rest.starts_with(b"--")
}

/// Splits a part's headers, each line with its end, from the rest.
fn split_head(rest: &[u8]) -> Result<(&[u8], &[u8]), FormError> {
    let start = rest.strip_prefix(b"\r\n").ok_or(FormError::NoEnd)?;
    if start.starts_with(b"\r\n") {
        return Err(FormError::BadName);
    }
    let searched = &start[..start.len().min(LONGEST_HEAD + 4)];
    let end = memmem::find(searched, b"\r\n\r\n").ok_or(FormError::HeadTooLong)?;
    Ok((&start[..end], &start[end + 4..]))
}

/// Contents of a part's `Content-Disposition`.
struct DispositionField<'h> {
    name: &'h [u8],
    is_file: bool,
}

impl<'h> DispositionField<'h> {
    /// Returns `None` unless the header appears once and unambiguously.
    fn of(head: &'h [u8]) -> Option<Self> {
        const NAME: &[u8] = b"content-disposition";
        let mut disposition = None;
        let mut rest = Some(head);
        while let Some(lines) = rest {
            let end = memmem::find(lines, b"\r\n");
            let (line, after) = end.map_or((lines, None), |end| (&lines[..end], Some(&lines[end + 2..])));
            rest = after;
            let colon = memchr::memchr(b':', line)?;
            let (name, value) = (&line[..colon], &line[colon + 1..]);
            // A continued line, or space before the colon.
            if name.iter().any(|byte| byte.is_ascii_whitespace()) {
                return None;
            }
            if name.eq_ignore_ascii_case(NAME) && disposition.replace(value).is_some() {
                return None;
            }
        }
        let (kind, parameters) = parameters(disposition?);
        if !kind.eq_ignore_ascii_case(b"form-data") {
            return None;
        }
        let (mut name, mut is_file) = (None, false);
        for parameter in parameters {
            let HeaderParameter { key, value } = parameter?;
            if key.eq_ignore_ascii_case(b"name") {
                // Some parsers decode an escape, others keep it.
                if name.is_some() || value.contains(&b'\\') {
                    return None;
                }
                name = Some(value);
            }
            // `name*` and `name*0` are forbidden here, but some parsers read them.
            if key
                .get(..5)
                .is_some_and(|start| start.eq_ignore_ascii_case(b"name*"))
            {
                return None;
            }
            is_file |= key.eq_ignore_ascii_case(b"filename") || key.eq_ignore_ascii_case(b"filename*");
        }
        name.map(|name| Self { name, is_file })
    }
}

/// Returns the boundary in a content type.
fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let (kind, parameters) = parameters(content_type);
    if !kind.eq_ignore_ascii_case(b"multipart/form-data") {
        return None;
    }
    let mut boundary = None;
    for parameter in parameters {
        let HeaderParameter { key, value } = parameter?;
        let is_extended = key
            .get(..9)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"boundary*"));
        if is_extended || key.eq_ignore_ascii_case(b"boundary") && boundary.replace(value).is_some() {
            return None;
        }
    }
    let is_good = |boundary: &&[u8]| {
        (1..=LONGEST_BOUNDARY).contains(&boundary.len())
            && !boundary.contains(&b'\\')
            && !boundary.ends_with(b" ")
    };
    boundary.filter(is_good)
}

/// `key=value`; the value without its quotes, with its escapes.
struct HeaderParameter<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

/// Returns the text before the first `;`, and the parameters after it; `None` for a parameter that is not `key=value`.
fn parameters(header: &[u8]) -> (&[u8], impl Iterator<Item = Option<HeaderParameter<'_>>>) {
    let end = memchr::memchr(b';', header).unwrap_or(header.len());
    let mut rest = header[end..].trim_ascii();
    let next = move || {
        rest = rest.trim_ascii_start();
        if matches!(rest, b"" | b";") {
            return None;
        }
        let read = parameter(rest);
        rest = read.as_ref().map_or(&[][..], |(_, after)| after);
        Some(read.map(|(parameter, _)| parameter))
    };
    (header[..end].trim_ascii(), std::iter::from_fn(next))
}

fn parameter(text: &[u8]) -> Option<(HeaderParameter<'_>, &[u8])> {
    let text = text.strip_prefix(b";")?;
    let equals = memchr::memchr2(b'=', b';', text).filter(|at| text[*at] == b'=')?;
    let (key, value) = (text[..equals].trim_ascii(), text[equals + 1..].trim_ascii_start());
    let (value, after) = match value.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = end_of_quoted(quoted)?;
            (&quoted[..end], &quoted[end + 1..])
        }
        None => {
            let end = memchr::memchr(b';', value).unwrap_or(value.len());
            (value[..end].trim_ascii_end(), &value[end..])
        }
    };
    // Parsers differ in how they read a quote in the middle.
    let is_plain = !key.is_empty() && !key.contains(&b'"');
    is_plain.then_some((HeaderParameter { key, value }, after))
}

/// Returns the position of the closing quote.
fn end_of_quoted(quoted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', quoted.get(at..)?)?;
        if quoted[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
