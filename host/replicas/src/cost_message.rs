//! Message with samples of the workers' costs.
//!
//! Little endian: version u8, router u64, sequence u64; the workers (count, then key u64 and its samples each). The
//! samples have a count, then the line u8 and three numbers (f32) each. Counts are variable-length.

use routing::{CostLine, CostSample};

use crate::id::{RouterId, WorkerKey};
use crate::load_message::MOST_WORKERS;
use crate::wire::{VERSION, WireError, WireReader, put_varint};

/// Maximum number of samples in a message. The samples of further workers go into later messages.
pub const MOST_COST_SAMPLES: usize = 8_192;
/// Bytes of a sample.
const SAMPLE: usize = 13;
/// Bytes of a worker, at least.
const LEAST_WORKER: usize = 9;

/// Newest samples of one router.
#[derive(Debug, Clone, PartialEq)]
pub struct CostMessage {
    /// Sender.
    pub router: RouterId,
    /// Number of the message, from 1.
    pub sequence: u64,
    /// Samples by worker.
    pub workers: Vec<WorkerSamples>,
}

/// Samples of one worker.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSamples {
    /// The worker.
    pub worker: WorkerKey,
    /// Its samples.
    pub samples: Vec<CostSample>,
}

impl CostMessage {
    /// Returns the bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(VERSION);
        bytes.extend(self.router.0.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        put_varint(&mut bytes, self.workers.len() as u64);
        for WorkerSamples { worker, samples } in &self.workers {
            bytes.extend(worker.0.to_le_bytes());
            put_varint(&mut bytes, samples.len() as u64);
            for sample in samples {
                bytes.push(number_of(sample.line));
                for number in sample.numbers {
                    bytes.extend(number.to_le_bytes());
                }
            }
        }
        bytes
    }

    /// Reads a message. Allocates no more than the message's own bytes can fill.
    ///
    /// # Errors
    /// [`WireError`] where it is not a message of this version, or exceeds a bound.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = WireReader::begin(bytes)?;
        let (router, sequence) = (RouterId(reader.u64()?), reader.u64()?);
        let mut left = MOST_COST_SAMPLES;
        let mut workers = Vec::new();
        for _ in 0..reader.count(MOST_WORKERS, LEAST_WORKER)? {
            let worker = WorkerKey(reader.u64()?);
            let count = reader.count(left, SAMPLE)?;
            left -= count;
            let samples: Result<Vec<_>, _> = (0..count).map(|_| read_sample(&mut reader)).collect();
            workers.push(WorkerSamples {
                worker,
                samples: samples?,
            });
        }
        reader.end()?;
        Ok(Self {
            router,
            sequence,
            workers,
        })
    }
}

fn number_of(line: CostLine) -> u8 {
    match line {
        CostLine::Prefill => 0,
        CostLine::Transfer => 1,
        CostLine::Decode => 2,
        CostLine::Fetched => 3,
    }
}

fn read_sample(reader: &mut WireReader<'_>) -> Result<CostSample, WireError> {
    let number = reader.u8()?;
    let mut lines = CostLine::ALL.into_iter();
    let line = lines.find(|line| number_of(*line) == number);
    let line = line.ok_or(WireError::Kind(number))?;
    let mut numbers = [0.0; 3];
    for number in &mut numbers {
        *number = f32::from_bits(reader.u32()?);
        if !number.is_finite() || *number < 0.0 {
            return Err(WireError::Number);
        }
    }
    Ok(CostSample { line, numbers })
}
