//! DNS server with scripted records, over UDP and TCP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

/// Longest answer over UDP.
const LONGEST_DATAGRAM: usize = 512;
/// Ports that are tried until one is free for both protocols.
const TRIES: usize = 50;

/// Reply for a name.
#[derive(Debug, Clone)]
pub enum DnsReply {
    /// Addresses.
    Addresses(Vec<IpAddr>),
    /// Hosts with their ports.
    Services(Vec<(String, u16)>),
    /// The name does not exist.
    NoSuchName,
    /// The server failed.
    Failure,
    /// The server failed for IPv4 addresses, and has these IPv6 addresses.
    FailureOfIpv4(Vec<Ipv6Addr>),
    /// Nothing is sent.
    Silence,
}

/// DNS server on a port of its own.
#[derive(Debug)]
pub struct DnsResponder {
    address: SocketAddr,
    replies: Arc<Mutex<DnsScript>>,
}

/// Replies by name, and the numbers of queries.
#[derive(Debug, Default)]
struct DnsScript {
    replies: HashMap<String, DnsReply>,
    over_tcp: usize,
}

impl DnsResponder {
    /// Starts a server without names.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn start() -> io::Result<Self> {
        let (udp, tcp) = bind(TRIES)?;
        let address = udp.local_addr()?;
        let replies = Arc::<Mutex<DnsScript>>::default();
        let known = Arc::clone(&replies);
        std::thread::spawn(move || serve_udp(&udp, &known));
        let known = Arc::clone(&replies);
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let known = Arc::clone(&known);
                std::thread::spawn(move || drop(serve_tcp(stream, &known)));
            }
        });
        Ok(Self { address, replies })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the reply for a name.
    pub fn set(&self, name: &str, reply: DnsReply) {
        let name = name.trim_end_matches('.').to_owned();
        lock(&self.replies).replies.insert(name, reply);
    }

    /// Returns the number of queries over TCP.
    #[must_use]
    pub fn over_tcp(&self) -> usize {
        lock(&self.replies).over_tcp
    }
}

/// Binds the same port for both protocols.
fn bind(tries: usize) -> io::Result<(UdpSocket, TcpListener)> {
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    match TcpListener::bind(udp.local_addr()?) {
        Ok(tcp) => Ok((udp, tcp)),
        Err(_) if tries > 0 => bind(tries - 1),
        Err(error) => Err(error),
    }
}

fn serve_udp(socket: &UdpSocket, known: &Mutex<DnsScript>) {
    let mut buffer = [0; 4_096];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let Some(message) = answer(&buffer[..length], known) else {
            continue;
        };
        let bytes = message.to_vec().unwrap_or_default();
        let bytes = match bytes.len() > LONGEST_DATAGRAM {
            true => message.truncate().to_vec().unwrap_or_default(),
            false => bytes,
        };
        let _ = socket.send_to(&bytes, from);
    }
}

fn serve_tcp(mut stream: TcpStream, known: &Mutex<DnsScript>) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        lock(known).over_tcp += 1;
        if let Some(message) = answer(&query, known) {
            let bytes = message.to_vec().map_err(io::Error::other)?;
            let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
            stream.write_all(&length.to_be_bytes())?;
            stream.write_all(&bytes)?;
        }
    }
}

/// Returns the answer to a query; `None` for silence.
fn answer(query: &[u8], known: &Mutex<DnsScript>) -> Option<Message> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries.first()?.clone();
    let name = question.name().clone();
    let mut message = Message::response(query.metadata.id, OpCode::Query);
    message.metadata.authoritative = true;
    let kind = question.query_type();
    message.add_query(question);
    let key = name.to_ascii().to_ascii_lowercase();
    let reply = lock(known).replies.get(key.trim_end_matches('.')).cloned();
    match reply.unwrap_or(DnsReply::NoSuchName) {
        DnsReply::Silence => return None,
        DnsReply::Failure => message.metadata.response_code = ResponseCode::ServFail,
        DnsReply::FailureOfIpv4(_) if kind == RecordType::A => {
            message.metadata.response_code = ResponseCode::ServFail;
        }
        DnsReply::FailureOfIpv4(addresses) => {
            let records = addresses.into_iter().map(|address| RData::AAAA(AAAA(address)));
            message.add_answers(records.map(|data| Record::from_rdata(name.clone(), 1, data)));
        }
        DnsReply::NoSuchName => message.metadata.response_code = ResponseCode::NXDomain,
        DnsReply::Addresses(addresses) => {
            let of_kind = addresses.into_iter().filter_map(|address| match (address, kind) {
                (IpAddr::V4(address), RecordType::A) => Some(RData::A(A(address))),
                (IpAddr::V6(address), RecordType::AAAA) => Some(RData::AAAA(AAAA(address))),
                _ => None,
            });
            message.add_answers(of_kind.map(|data| Record::from_rdata(name.clone(), 1, data)));
        }
        DnsReply::Services(services) if kind == RecordType::SRV => {
            let records = services.into_iter().filter_map(|(host, port)| {
                let target = Name::from_ascii(host).ok()?;
                let data = RData::SRV(SRV::new(0, 0, port, target));
                Some(Record::from_rdata(name.clone(), 1, data))
            });
            message.add_answers(records);
        }
        DnsReply::Services(_) => {}
    }
    Some(message)
}

fn lock(script: &Mutex<DnsScript>) -> MutexGuard<'_, DnsScript> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}
