//! Detection of clients that begin with HTTP/2 on a plain connection (RFC 9113, section 3.3).

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::sleep;

/// Beginning of the HTTP/2 preface, which no HTTP/1.1 method equals (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI ";
/// First pause while only a part of the preface has come.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Returns `true` if a client begins with HTTP/2. Only peeks: consumes nothing from the stream.
pub(in crate::edge) async fn begins_with_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut begin = [0; PREFACE.len()];
    let mut pause = FIRST_PAUSE;
    loop {
        let read = stream.peek(&mut begin).await?;
        if read == 0 || !PREFACE.starts_with(&begin[..read]) {
            return Ok(false);
        }
        if read == PREFACE.len() {
            return Ok(true);
        }
        // Bytes already in the buffer keep the stream readable.
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn check(pieces: &[&[u8]], expected: bool) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let writing = async {
            for piece in pieces {
                client.write_all(piece).await.unwrap();
                sleep(Duration::from_millis(5)).await;
            }
            client.shutdown().await.unwrap();
        };
        let (begins, ()) = tokio::join!(begins_with_http2(&stream), writing);
        assert_eq!(begins.unwrap(), expected, "{pieces:?}");
    }

    #[tokio::test]
    async fn only_the_preface_is_taken_for_http_2_however_it_is_cut() {
        check(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], true).await;
        check(&[b"P", b"RI", b" * HTTP/2.0\r\n"], true).await;
        check(&[b"P", b"OST / HTTP/1.1\r\n"], false).await;
        check(&[b"GET / HTTP/1.1\r\n"], false).await;
        check(&[], false).await;
    }
}
