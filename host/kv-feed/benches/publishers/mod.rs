//! Many publishers in one process: PUB and ROUTER sockets that keep every batch and answer replays, in one thread.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use zmq::{Context, DONTWAIT, Socket, SocketType};

/// Events in each batch.
pub(crate) const EVENTS: usize = 4;
/// libzmq allows 1,023 sockets a context.
const A_CONTEXT: usize = 400;

struct BenchPublisher {
    live: Socket,
    replay: Socket,
    kept: Vec<Vec<u8>>,
}

/// Prints both endpoints of each publisher, a line each, then sends from each as many batches as each line of stdin
/// has.
pub(crate) fn run(count: usize) {
    let mut publishers = Vec::new();
    let mut context = Context::new();
    for number in 0..count {
        if number % A_CONTEXT == 0 {
            context = Context::new();
        }
        let publisher = BenchPublisher {
            live: bind(&context, SocketType::PUB),
            replay: bind(&context, SocketType::ROUTER),
            kept: Vec::new(),
        };
        let endpoint = |socket: &Socket| socket.get_last_endpoint().unwrap().unwrap();
        println!("{} {}", endpoint(&publisher.live), endpoint(&publisher.replay));
        publishers.push(publisher);
    }
    serve(&mut publishers, &orders());
}

fn bind(context: &Context, kind: SocketType) -> Socket {
    let socket = context.socket(kind).unwrap();
    socket.set_linger(0).unwrap();
    socket.set_sndhwm(100_000).unwrap();
    socket.bind("tcp://127.0.0.1:*").unwrap();
    socket
}

fn orders() -> Receiver<usize> {
    let (orders, received) = sync_channel(4);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if orders.send(line.parse().unwrap()).is_err() {
                break;
            }
        }
    });
    received
}

fn serve(publishers: &mut [BenchPublisher], orders: &Receiver<usize>) {
    loop {
        match orders.try_recv() {
            Ok(batches) => {
                for _ in 0..batches {
                    publishers.iter_mut().for_each(BenchPublisher::publish);
                }
            }
            Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryRecvError::Disconnected) => return,
        }
        publishers.iter().for_each(BenchPublisher::answer);
    }
}

impl BenchPublisher {
    fn publish(&mut self) {
        let number = self.kept.len() as u64;
        let payload = batch(number);
        let frames: [&[u8]; 3] = [b"kv-events", &number.to_be_bytes(), &payload];
        self.live.send_multipart(frames, 0).unwrap();
        self.kept.push(payload);
    }

    fn answer(&self) {
        while let Ok(request) = self.replay.recv_multipart(DONTWAIT) {
            let start = u64::from_be_bytes(request[2][..].try_into().unwrap());
            let reply = |number: u64, payload: &[u8]| {
                let frames: [&[u8]; 5] = [&request[0], b"", b"kv-events", &number.to_be_bytes(), payload];
                self.replay.send_multipart(frames, 0).unwrap();
            };
            for (number, payload) in (0..).zip(&self.kept).filter(|(number, _)| *number >= start) {
                reply(number, payload);
            }
            reply(u64::MAX, b"");
        }
    }
}

/// Stores of a block of 16 tokens each.
fn batch(number: u64) -> Vec<u8> {
    let event = |place: usize| {
        let hash = number * EVENTS as u64 + place as u64 + 1;
        let parent = (hash > 1).then(|| hash - 1);
        ("BlockStored", [hash], parent, [7; 16], 16, None::<u64>)
    };
    let events: Vec<_> = (0..EVENTS).map(event).collect();
    rmp_serde::to_vec(&(number as f64, events, Some(0))).unwrap()
}
