//! `conductor block-hashes`: the hashes of a prompt's blocks, to compare with those of engines and indexers.

use std::io::Read as _;

use anyhow::{Context as _, Result, bail};
use block_hash::{Algorithm, ExtraKey, LegacyChain, RFC_1527_SEED, VllmHasher, sequence_hashes};

use crate::Exit;
use crate::args::{BlockHashesArgs, HashScheme};
use crate::print;

/// Prints the hash of each whole block of the prompt on standard input, a JSON array of token ids; one a line.
///
/// # Errors
/// If the prompt is invalid, the arguments do not fit together, or standard output cannot be written.
pub fn print(args: &BlockHashesArgs) -> Result<Exit> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("read the prompt")?;
    let tokens = read_tokens(&text)?;
    let hashes = hashes(args, &tokens)?;
    if let Some(why) = why_none(args, &tokens) {
        eprintln!("conductor: {why}");
    }
    let lines: String = hashes.iter().map(|hash| format!("{hash}\n")).collect();
    print::write(lines)?;
    Ok(Exit::Success)
}

/// Reads token ids as upstream does: integers of 32 bits with a sign.
fn read_tokens(text: &str) -> Result<Vec<u32>> {
    let ids: Vec<i64> = serde_json::from_str(text).context("read the prompt as a JSON array of token ids")?;
    let token = |(index, &id): (usize, &i64)| match i32::try_from(id) {
        Ok(id) => Ok(id as u32),
        Err(_) => bail!("failed to read the prompt: element {index} is {id}, outside the int32 range"),
    };
    ids.iter().enumerate().map(token).collect()
}

/// Returns the reason for which there is no hash to print, if there is one.
fn why_none(args: &BlockHashesArgs, tokens: &[u32]) -> Option<String> {
    let (tokens, size) = (tokens.len(), args.block_size.get() as usize);
    (tokens < size).then(|| {
        format!("no hashes: only whole blocks have one, and the prompt has {tokens} tokens, a block {size} (--block-size)")
    })
}

/// Returns the text unless it is empty. Engines and upstream take an empty text as none.
fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn hashes(args: &BlockHashesArgs, tokens: &[u32]) -> Result<Vec<u64>> {
    let size = args.block_size.get() as usize;
    let number = || args.seed.as_deref().map(str::parse::<u64>).transpose();
    Ok(match args.scheme {
        HashScheme::Rfc1527 => {
            let seed = number().context("read --seed as a number")?;
            sequence_hashes(tokens, size, seed.unwrap_or(RFC_1527_SEED))
        }
        HashScheme::Xxh64 => {
            let seed = number().context("read --seed as a number")?;
            let salted = || LegacyChain::salted(args.cache_salt.as_deref().unwrap_or_default());
            seed.map_or_else(salted, LegacyChain::seeded).hashes(tokens, size)
        }
        HashScheme::Sha256 => vllm(args, Algorithm::Sha256, tokens)?,
        HashScheme::Sha256Cbor => vllm(args, Algorithm::Sha256Cbor, tokens)?,
        HashScheme::Xxhash => vllm(args, Algorithm::Xxhash, tokens)?,
        HashScheme::XxhashCbor => vllm(args, Algorithm::XxhashCbor, tokens)?,
    })
}

fn vllm(args: &BlockHashesArgs, algorithm: Algorithm, tokens: &[u32]) -> Result<Vec<u64>> {
    let Some(mut hasher) = VllmHasher::seeded(algorithm, args.seed.as_deref()) else {
        bail!(
            "{} needs --seed: without PYTHONHASHSEED its root is random",
            algorithm.as_str()
        );
    };
    let lora = given(&args.lora).map(|name| match given(&args.lora_path) {
        Some(path) => ExtraKey::Lora { name, path },
        None => ExtraKey::Text(name),
    });
    let salt = given(&args.cache_salt).map(|salt| match args.untagged {
        true => ExtraKey::Text(salt),
        false => ExtraKey::CacheSalt(salt),
    });
    let first: Vec<_> = lora.into_iter().chain(salt).collect();
    let later: Vec<_> = lora.into_iter().collect();
    let mut parent = hasher.root();
    let blocks = tokens.chunks_exact(args.block_size.get() as usize).enumerate();
    Ok(blocks
        .map(|(number, block)| {
            parent = hasher.block(&parent, block, if number == 0 { &first } else { &later });
            parent.low64()
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn args(scheme: HashScheme) -> BlockHashesArgs {
        BlockHashesArgs {
            scheme,
            block_size: NonZeroU32::new(4).unwrap(),
            seed: None,
            lora: None,
            lora_path: None,
            cache_salt: None,
            untagged: false,
        }
    }

    /// First hashes of the tokens 1 to 4, as vLLM 0.32 computes them.
    #[test]
    fn each_scheme_names_blocks_in_its_own_way() {
        let check = |args: &BlockHashesArgs, expected: u64| {
            assert_eq!(hashes(args, &[1, 2, 3, 4, 5]).unwrap(), [expected], "{args:?}");
        };
        check(&args(HashScheme::Sha256), 1_882_140_585_328_457_242);
        check(&args(HashScheme::Sha256Cbor), 9_561_501_211_280_363_793);
        let salted = BlockHashesArgs {
            cache_salt: Some("tenant-salt".into()),
            ..args(HashScheme::Sha256Cbor)
        };
        check(&salted, 576_749_888_399_183_587);
        check(&args(HashScheme::Xxh64), 17_479_108_795_143_759_033);
        let salted = BlockHashesArgs {
            cache_salt: Some("test-salt".into()),
            ..args(HashScheme::Xxh64)
        };
        check(&salted, 9_426_078_380_181_780_810);
        assert!(hashes(&args(HashScheme::Xxhash), &[]).is_err());
    }

    #[test]
    fn an_empty_salt_or_adapter_is_none() {
        for scheme in [HashScheme::Sha256, HashScheme::Sha256Cbor, HashScheme::Xxh64] {
            let plain = args(scheme);
            let empty = BlockHashesArgs {
                lora: Some(String::new()),
                lora_path: Some(String::new()),
                cache_salt: Some(String::new()),
                ..args(scheme)
            };
            let tokens: Vec<u32> = (1..=8).collect();
            assert_eq!(
                hashes(&empty, &tokens).unwrap(),
                hashes(&plain, &tokens).unwrap(),
                "{scheme:?}"
            );
        }
    }

    /// The numbers are of Python's own `pickle` and of the bytes of RFC 8949.
    #[test]
    fn negative_ids_are_integers_of_32_bits() {
        let tokens = read_tokens("[-1, 2, 3, 4]").unwrap();
        let hash = |scheme| hashes(&args(scheme), &tokens).unwrap();
        assert_eq!(hash(HashScheme::Sha256Cbor), [8_961_349_410_252_606_695]);
        assert_eq!(hash(HashScheme::Sha256), [497_063_722_318_341_819]);
        for outside in ["[2147483648]", "[1, -2147483649]"] {
            let error = read_tokens(outside).unwrap_err().to_string();
            assert!(error.contains("outside the int32 range"), "{error}");
        }
        assert!(read_tokens("[1.5]").is_err());
    }

    #[test]
    fn less_than_a_block_is_reported() {
        let args = args(HashScheme::Sha256);
        let why = why_none(&args, &[1, 2, 3]).unwrap();
        assert!(why.contains("3 tokens") && why.contains("a block 4"), "{why}");
        assert_eq!(why_none(&args, &[1, 2, 3, 4]), None);
    }
}
