//! Warm start: blocks of a cache restored from a device, and the numbers of its volumes.

use std::collections::HashSet;

use tiermem_policy::extents::Volume;

use super::config::EngineError;
use super::shared::Shared;
use crate::journal::{BlockState, Journal, Recovered};

/// Ranges that are told one by one.
const TOLD_MAX: usize = 100;

impl Shared {
    /// Takes up the blocks that the log knows.
    pub fn restore(&mut self) -> Result<(), EngineError> {
        let Shared { extents, log, device, .. } = self;
        let Some(journal) = log.journal() else { return Ok(()) };
        let mut result = Ok(());
        journal.each_block(device.cache(), |block| {
            let BlockState { slot, class, volume, piece, valid, dirty, poisoned: lost } = block;
            // What is lost reads as an error, and must not be fetched: the store has something older.
            let mut all: Vec<_> = valid.iter().chain(lost).cloned().collect();
            all.sort_unstable_by_key(|run| run.start);
            let mut unclean: Vec<_> = dirty.iter().chain(lost).cloned().collect();
            unclean.sort_unstable_by_key(|run| run.start);
            let restored =
                extents.restore(*slot, usize::from(*class), Volume(*volume), *piece, &all, &unclean);
            match restored {
                Ok(()) => lost.iter().for_each(|run| _ = extents.units_mut().lose(run.clone())),
                Err(error) if result.is_ok() => result = Err(EngineError::Damaged(error.to_string())),
                Err(_) => {}
            }
        })?;
        result
    }

    /// Says which bytes nobody can check: some of them may be neither what they were nor what was being written.
    pub fn note_unchecked(&mut self, recovered: &Recovered) {
        for (at, (volume, bytes)) in recovered.unchecked.iter().enumerate() {
            let length = bytes.end - bytes.start;
            self.unchecked_bytes += length;
            if at < TOLD_MAX {
                let name = recovered
                    .volumes
                    .iter()
                    .find(|info| info.number == *volume)
                    .map(|info| info.name.as_str());
                tracing::warn!(
                    export = name,
                    offset = bytes.start,
                    length,
                    "was being overwritten when the last process ended, and cannot be checked: old, new, or a mix"
                );
            }
        }
        if recovered.unchecked.len() > TOLD_MAX {
            tracing::warn!(ranges = recovered.unchecked.len(), "more ranges cannot be checked");
        }
    }

    /// The number under which the cache knows a volume: the one that it had, or one that none has had.
    pub fn number_of(&self, name: &str) -> Result<Volume, EngineError> {
        let mut used: HashSet<u16> = self.volumes.iter().map(|volume| volume.number.0).collect();
        for info in self.log.journal().into_iter().flat_map(Journal::volumes) {
            if info.name == name {
                return Ok(Volume(info.number));
            }
            used.insert(info.number);
        }
        let free = (0..Volume::COUNT_MAX).find(|number| !used.contains(number));
        free.map(Volume).ok_or(EngineError::Volumes(Volume::COUNT_MAX))
    }
}
