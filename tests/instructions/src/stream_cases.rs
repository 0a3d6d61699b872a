//! Case of a streamed answer: one request, whose tokens arrive one by one.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::cases::Outcome;
use crate::request_cases::{Problem, RouterShape, read_message, run_router};

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const EVENT: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":0,"model":"bench","choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}"#;
const END: &[u8] = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

/// Streams so many tokens. The engine sends each one after the client has received the one before.
pub(crate) fn streamed(tokens: u32) -> Outcome {
    let received = Arc::new(Semaphore::new(1));
    let engine_waits = Arc::clone(&received);
    let engine = |listener| serve_engine(listener, tokens, engine_waits);
    run_router(engine, RouterShape::default(), move |router| {
        receive(router, tokens, received)
    })
}

async fn serve_engine(listener: TcpListener, tokens: u32, received: Arc<Semaphore>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A broken connection ends the case with an error of the client.
        let _ = answer(stream, tokens, &received).await;
    }
}

async fn answer(mut stream: TcpStream, tokens: u32, received: &Semaphore) -> Result<(), Problem> {
    read_message(&mut stream, &mut Vec::new()).await?;
    stream.write_all(HEAD).await?;
    let token = format!("{:x}\r\n{EVENT}\n\n\r\n", EVENT.len() + 2);
    for _ in 0..tokens {
        received.acquire().await?.forget();
        stream.write_all(token.as_bytes()).await?;
    }
    stream.write_all(END).await?;
    Ok(())
}

async fn receive(router: SocketAddr, tokens: u32, received: Arc<Semaphore>) -> Outcome {
    let mut stream = TcpStream::connect(router).await?;
    let body = r#"{"model":"bench","stream":true,"prompt":"word"}"#;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = vec![0; 4_096];
    let (mut seen, mut is_over) = (0, false);
    while !is_over {
        let read = stream.read(&mut bytes).await?;
        if read == 0 {
            return Err("the router closed the connection".into());
        }
        // Each token ends with the only braces of its kind.
        let new = bytes[..read].windows(2).filter(|pair| pair == b"}]").count();
        seen += new as u32;
        is_over = bytes[..read].ends_with(b"0\r\n\r\n");
        received.add_permits(new);
    }
    if seen < tokens {
        return Err(format!("{seen} of {tokens} tokens arrived").into());
    }
    Ok(())
}
