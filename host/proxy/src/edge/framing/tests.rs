//! Tests of framing with whole and split input.

use proptest::prelude::*;

use super::*;

/// Reads the bytes whole and byte by byte. Both results must be equal.
#[track_caller]
fn read(bytes: &[u8]) -> Result<(), Ambiguity> {
    let mut reader = RequestReader::new();
    let whole = reader.read(bytes).map_err(|(_, why)| why);
    let mut reader = RequestReader::new();
    let cut = bytes
        .iter()
        .try_for_each(|byte| reader.read(&[*byte]).map_err(|(_, why)| why));
    assert_eq!(whole, cut, "{:?}", String::from_utf8_lossy(bytes));
    whole
}

#[track_caller]
fn check(text: &str, expected: Result<(), Ambiguity>) {
    assert_eq!(read(text.as_bytes()), expected, "{text:?}");
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /v1/completions HTTP/1.1\r\nhost: r\r\n{headers}\r\n{body}")
}

#[test]
fn requests_that_can_be_read_in_one_way_pass_one_after_another() {
    let requests = [
        "\r\nGET /health HTTP/1.1\r\nhost: r\r\n\r\n".to_owned(),
        post("content-length: 5\r\n", "a\nb\rc"),
        post("content-length: 0\r\n", ""),
        post("transfer-encoding: chunked\r\n", "3\r\na\nb\r\n0\r\n\r\n"),
        post(
            "Transfer-Encoding: gzip, Chunked\r\n",
            "A ;x=y\r\n0123456789\r\n00\r\nx-sum: 1\r\n\r\n",
        ),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
    ];
    check(&requests.concat(), Ok(()));
}

#[test]
fn lines_end_with_crlf_in_heads_chunks_and_trailers() {
    use Ambiguity::{BareCr, BareLf};
    check("GET / HTTP/1.1\nhost: r\r\n\r\n", Err(BareLf));
    check("GET / HTTP/1.1\r\nhost: r\n\r\n", Err(BareLf));
    check("GET / HTTP/1.1\r\nhost: r\r\n\n", Err(BareLf));
    check("GET / HTTP/1.1\r\nhost: r\rx: y\r\n\r\n", Err(BareCr));
    check("GET / HTTP/1.1\r\nhost: r\rx: y\n\r\n", Err(BareCr));
    let chunked = |body: &str| post("transfer-encoding: chunked\r\n", body);
    check(&chunked("1\na\r\n0\r\n\r\n"), Err(BareLf));
    check(&chunked("1;x\na\r\n0\r\n\r\n"), Err(BareLf));
    check(&chunked("1\r\na\n0\r\n\r\n"), Err(BareLf));
    check(&chunked("0\r\nx: y\n\r\n"), Err(BareLf));
    check(&chunked("0\r\n\nGET /admin HTTP/1.1\r\n\r\n"), Err(BareLf));
}

#[test]
fn a_body_has_one_framing() {
    use Ambiguity::{BadChunk, BadCoding, BadLength, Connect, OldVersion, TwoFramings, TwoLengths};
    check(
        &post("content-length: 1\r\ntransfer-encoding: chunked\r\n", ""),
        Err(TwoFramings),
    );
    check(
        &post("transfer-encoding: chunked\r\ncontent-length: 0\r\n", ""),
        Err(TwoFramings),
    );
    check(
        &post("content-length: 1\r\nContent-Length: 1\r\n", ""),
        Err(TwoLengths),
    );
    for length in ["", "+1", "1, 1", "0x1", "1 1", "99999999999999999999"] {
        check(
            &post(&format!("content-length: {length}\r\n"), ""),
            Err(BadLength),
        );
    }
    check(&post("transfer-encoding: chunked, gzip\r\n", ""), Err(BadCoding));
    check(&post("transfer-encoding: xchunked\r\n", ""), Err(BadCoding));
    check(
        "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
        Err(OldVersion),
    );
    check("CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", Err(Connect));
    for size in ["", "g", "-1", "0x1", "1 1", "11111111111111111"] {
        let body = format!("{size}\r\n");
        check(&post("transfer-encoding: chunked\r\n", &body), Err(BadChunk));
    }
    check(
        &post("transfer-encoding: chunked\r\n", "1\r\nab\r\n"),
        Err(BadChunk),
    );
}

#[test]
fn bytes_before_an_ambiguity_are_counted() {
    let good = post("content-length: 2\r\n", "{}");
    let both = format!("{good}GET / HTTP/1.1\nhost: r\r\n\r\n");
    let mut reader = RequestReader::new();
    assert_eq!(reader.read(both.as_bytes()), Err((good.len(), Ambiguity::BareLf)));
}

#[test]
fn a_line_longer_than_what_is_kept_of_it_passes() {
    let long = "v".repeat(10_000);
    check(&post(&format!("x: {long}\r\ncontent-length: 1\r\n"), "a"), Ok(()));
}

proptest! {
    #[test]
    fn bytes_are_read_alike_however_they_are_cut_up(
        bytes in proptest::collection::vec(
            prop_oneof![
                Just(b"GET / HTTP/1.1\r\n".to_vec()),
                Just(b"content-length: 3\r\n".to_vec()),
                Just(b"transfer-encoding: chunked\r\n".to_vec()),
                Just(b"\r\n".to_vec()),
                Just(b"3\r\n".to_vec()),
                Just(b"abc".to_vec()),
                Just(b"0\r\n\r\n".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ],
            0..12,
        ),
    ) {
        let _ = read(&bytes.concat());
    }
}
