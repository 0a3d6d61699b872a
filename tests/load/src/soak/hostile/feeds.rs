//! Publishers of KV events that mean harm: messages without end, huge frames, block names chosen to collide, and stores
//! that take long to compare.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rmp::encode::{self, ByteBuf};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::field::Field;
use super::zmtp;

const IN_MEMORY: &str = "writing to memory cannot fail";
const BLOCK: usize = 16;
/// Names a batch, and stores of a batch that are compared.
const NAMES: u64 = 1_000;
const STORES: usize = 600;

/// Attack of a publisher on its subscribers.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Endless,
    Huge,
    Chosen,
    Sparse,
}

/// Of each publisher, by turns. There are three of them: the hostile policies serve two or three workers.
const HARMS: [&[(Harm, &str)]; 3] = [
    &[
        (Harm::Endless, "feeds: messages without end"),
        (Harm::Huge, "feeds: frames of 60 MiB"),
    ],
    &[(Harm::Chosen, "feeds: chosen block names")],
    &[(Harm::Sparse, "feeds: stores that take long to compare")],
];

/// Bound publishers that do not answer yet.
pub(super) struct Feeds(Vec<TcpListener>);

impl Feeds {
    pub(super) async fn bind() -> Result<Self> {
        let mut listeners = Vec::new();
        for _ in HARMS {
            listeners.push(
                TcpListener::bind("127.0.0.1:0")
                    .await
                    .context("failed to listen as a publisher")?,
            );
        }
        Ok(Self(listeners))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn endpoints(&self) -> Vec<String> {
        let addresses = self.0.iter().filter_map(|listener| listener.local_addr().ok());
        addresses.map(|address| format!("tcp://{address}")).collect()
    }

    /// Begins; a quiet run is over.
    pub(super) fn spawn(self, attacks: &mut JoinSet<()>, field: &Arc<Field>) {
        for (listener, harms) in self.0.into_iter().zip(HARMS) {
            let field = Arc::clone(field);
            attacks.spawn(async move {
                for (harm, name) in harms.iter().copied().cycle() {
                    if let Ok((stream, _)) = listener.accept().await {
                        field.saw(name, "begun");
                        // Ends when the router closes the connection.
                        if publish(stream, harm).await.is_err() {
                            field.saw(name, "closed by the router");
                        }
                    }
                }
            });
        }
    }
}

async fn publish(mut stream: TcpStream, harm: Harm) -> io::Result<()> {
    zmtp::greet(&mut stream).await?;
    let piece = vec![0; 64 << 10];
    match harm {
        Harm::Endless => loop {
            stream.write_all(&zmtp::header(piece.len() as u64, true)).await?;
            stream.write_all(&piece).await?;
        },
        Harm::Huge => loop {
            stream.write_all(&zmtp::header(60 << 20, false)).await?;
            for _ in 0..960 {
                stream.write_all(&piece).await?;
            }
        },
        Harm::Chosen => {
            let mut names = fibonacci();
            for sequence in 0.. {
                let payload = chosen(&mut names);
                stream.write_all(&zmtp::message(sequence, &payload)).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Ok(())
        }
        Harm::Sparse => {
            let payload = sparse();
            for sequence in 0.. {
                stream.write_all(&zmtp::message(sequence, &payload)).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        }
    }
}

/// Numbers that a multiplication by the golden ratio leaves near each other: i F_n + j F_(n+1).
fn fibonacci() -> impl Iterator<Item = u64> {
    let (mut one, mut other) = (1_u64, 1_u64);
    while let Some(next) = one.checked_add(other).filter(|next| *next < 1 << 46) {
        (one, other) = (other, next);
    }
    (0..).flat_map(move |sum: u64| {
        (0..=sum).map(move |i| i.wrapping_mul(one).wrapping_add((sum - i).wrapping_mul(other)))
    })
}

/// Returns a batch of stores of one block each, with the next names.
fn chosen(names: &mut impl Iterator<Item = u64>) -> Vec<u8> {
    let names: Vec<u64> = names.take(NAMES as usize).collect();
    batch(names.len(), |out, at| store(out, &[names[at]], None, BLOCK))
}

/// Returns a batch in which full stores and stores with fewer names than blocks have the same parent.
fn sparse() -> Vec<u8> {
    let names: Vec<u64> = (1_000..1_008).collect();
    batch(STORES, |out, at| {
        let names = if at % 2 == 0 { &names[..] } else { &names[..1] };
        store(out, names, Some(7), 8 * BLOCK);
    })
}

fn batch(count: usize, mut store: impl FnMut(&mut ByteBuf, usize)) -> Vec<u8> {
    let mut out = ByteBuf::new();
    encode::write_array_len(&mut out, 3).expect(IN_MEMORY);
    encode::write_f64(&mut out, 1.0).expect(IN_MEMORY);
    encode::write_array_len(&mut out, count as u32).expect(IN_MEMORY);
    (0..count).for_each(|at| store(&mut out, at));
    encode::write_uint(&mut out, 0).expect(IN_MEMORY);
    out.into_vec()
}

/// Writes `BlockStored` as vLLM does.
fn store(out: &mut ByteBuf, names: &[u64], parent: Option<u64>, tokens: usize) {
    let text = |out: &mut ByteBuf, text: &str| encode::write_str(out, text).expect(IN_MEMORY);
    encode::write_map_len(out, 7).expect(IN_MEMORY);
    text(out, "type");
    text(out, "BlockStored");
    text(out, "block_hashes");
    encode::write_array_len(out, names.len() as u32).expect(IN_MEMORY);
    for name in names {
        encode::write_uint(out, *name).expect(IN_MEMORY);
    }
    text(out, "parent_block_hash");
    match parent {
        Some(parent) => drop(encode::write_uint(out, parent).expect(IN_MEMORY)),
        None => encode::write_nil(out).expect(IN_MEMORY),
    }
    text(out, "token_ids");
    encode::write_array_len(out, tokens as u32).expect(IN_MEMORY);
    for token in 0..tokens {
        encode::write_uint(out, token as u64 % 90).expect(IN_MEMORY);
    }
    text(out, "block_size");
    encode::write_uint(out, BLOCK as u64).expect(IN_MEMORY);
    text(out, "lora_id");
    encode::write_nil(out).expect(IN_MEMORY);
    text(out, "medium");
    text(out, "GPU");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_names_are_distinct() {
        let names: Vec<u64> = fibonacci().take(10_000).collect();
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }
}
