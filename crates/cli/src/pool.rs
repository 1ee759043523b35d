//! A hybrid pool: tiers of memory that fill one after the other, over flash.

use std::str::FromStr;

use anyhow::anyhow;
use tiermem_base::tier::Capacity;
use tiermem_base::{Bytes, TierKind, TierSpec};

use crate::failure::Failure;

/// `--pool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// The tiers of memory are those that were given.
    Tiers,
    /// DRAM is divided into local and remote memory, in these parts.
    Split {
        /// The part of the local node.
        local: u64,
        /// The part of the remote node.
        remote: u64,
    },
}

/// Parts are percentages or other small numbers.
const PART_MAX: u64 = 1_000_000;

impl FromStr for Pool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "tiers" {
            return Ok(Pool::Tiers);
        }
        let part = |text: &str| text.parse().ok().filter(|part| *part <= PART_MAX);
        let parts = text.split_once(':').and_then(|(local, remote)| Some((part(local)?, part(remote)?)));
        match parts {
            Some((local, remote)) if local + remote > 0 => Ok(Pool::Split { local, remote }),
            _ => Err(format!(
                "{text:?} is neither tiers nor two parts LOCAL:REMOTE such as 50:50, each at most {PART_MAX}"
            )),
        }
    }
}

impl Pool {
    /// Divides the first tier, DRAM, as far as that is asked for. A part without a frame is no tier.
    pub fn divide(
        self,
        tiers: Vec<TierSpec>,
        frame: Bytes,
        working_set_bytes: u64,
    ) -> Result<Vec<TierSpec>, Failure> {
        let Pool::Split { local, remote } = self else { return Ok(tiers) };
        let mut tiers = tiers.into_iter();
        let dram = tiers.next().filter(|tier| tier.kind == TierKind::Dram);
        let Some(capacity) = dram.and_then(|dram| dram.capacity) else {
            return Err(Failure::usage(anyhow!(
                "--pool {local}:{remote} divides DRAM; say with --dram SIZE or --overcommit R how much there is, or write \
                 --pool tiers to use the tiers as they are given"
            )));
        };
        let frames = capacity.of_working_set(working_set_bytes) / frame.0;
        let local_frames = (u128::from(frames) * u128::from(local) / u128::from(local + remote)) as u64;
        let part = |kind, frames: u64| TierSpec {
            capacity: Some(Capacity::Bytes(Bytes(frames * frame.0))),
            ..TierSpec::unsized_of(kind)
        };
        let parts = [(TierKind::Dram, local_frames), (TierKind::Numa, frames - local_frames)];
        // Where DRAM has no frame at all, that is told of it and not of its parts.
        let kept =
            parts.into_iter().filter(|(kind, part)| *part > 0 || (frames == 0 && *kind == TierKind::Dram));
        Ok(kept.map(|(kind, frames)| part(kind, frames)).chain(tiers).collect())
    }
}
