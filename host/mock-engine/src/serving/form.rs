//! Reader of `multipart/form-data` bodies (RFC 7578), as far as test clients use them: the files and fields of a form.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// A part of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormPart {
    pub(super) name: String,
    pub(super) value: Bytes,
}

/// Returns the parts of a form in order; `None` if the body is not a form.
pub(super) fn parts(headers: &HeaderMap, body: &Bytes) -> Option<Vec<FormPart>> {
    let delimiter = format!("\r\n--{}", boundary(headers)?);
    let delimiter = delimiter.as_bytes();
    // The first delimiter may be at the very beginning.
    let mut at = if body.starts_with(&delimiter[2..]) {
        delimiter.len() - 2
    } else {
        find(body, delimiter)? + delimiter.len()
    };
    let mut parts = Vec::new();
    loop {
        if body[at..].starts_with(b"--") {
            return Some(parts);
        }
        let rest = body.slice(at..);
        let end = find(&rest, delimiter)?;
        parts.push(part(rest.slice(..end))?);
        at += end + delimiter.len();
    }
}

fn boundary(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let parameters = content_type.strip_prefix("multipart/form-data")?;
    let mut parameters = parameters.split(';').map(str::trim);
    let boundary = parameters.find_map(|parameter| parameter.strip_prefix("boundary="))?;
    Some(boundary.trim_matches('"').to_owned())
}

/// Parses a part: its headers, an empty line, its value.
fn part(bytes: Bytes) -> Option<FormPart> {
    let head_end = find(&bytes, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..head_end]).ok()?;
    let disposition = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let mut parameters = disposition.split(';').map(str::trim);
    let name = parameters.find_map(|parameter| parameter.strip_prefix("name="))?;
    Some(FormPart {
        name: name.trim_matches('"').to_owned(),
        value: bytes.slice(head_end + 4..),
    })
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[track_caller]
    fn check(content_type: &'static str, body: &'static str, expected: Option<&[(&str, &'static str)]>) {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let read = parts(&headers, &Bytes::from_static(body.as_bytes()));
        let expected = expected.map(|parts| {
            let part = |(name, value): &(&str, &'static str)| FormPart {
                name: (*name).to_owned(),
                value: Bytes::from_static(value.as_bytes()),
            };
            parts.iter().map(part).collect()
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn the_parts_of_a_form_are_read_in_order() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n\r\n-\r\n--b--\r\n";
        let parts = [("model", "m"), ("file", "\r\n-")];
        check("multipart/form-data; boundary=b", body, Some(&parts));
        check("multipart/form-data; boundary=\"b\"", body, Some(&parts));
    }

    #[test]
    fn a_body_that_is_no_form_has_no_parts() {
        let open = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n";
        check("multipart/form-data; boundary=b", open, None);
        check("multipart/form-data; boundary=b", "", None);
        check("multipart/form-data", open, None);
        check("application/json", "{}", None);
    }
}
