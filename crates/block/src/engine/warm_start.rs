//! Warm start: blocks and volumes of a cache restored from a device, and the images that the blocks belong to.

use std::collections::HashSet;

use tiermem_policy::extents::Volume;

use super::config::{EngineError, VolumeConfig};
use super::shared::Shared;
use crate::journal::{self, BlockState, Journal, VolumeInfo};
use tiermem_tier::backing::{Backing, Identity};

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

    /// The number under which the cache knows a volume: the one that it had, or one that none has had.
    fn number_of(&self, name: &str) -> Result<Volume, EngineError> {
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

    /// Takes a volume up: finds its number, compares its image with the one that the cache knows, and notes that it will be written.
    pub fn take_up(
        &mut self,
        config: &VolumeConfig,
        backing: &mut dyn Backing,
    ) -> Result<Volume, EngineError> {
        let number = self.number_of(&config.name)?;
        let size_bytes = backing.size_bytes();
        let limit = Volume::bytes_max(self.extents.geometry().piece_bytes());
        if size_bytes > limit {
            return Err(EngineError::VolumeSize { name: config.name.clone(), size_bytes, limit });
        }
        let known = self
            .log
            .journal()
            .and_then(|journal| journal.volumes().find(|it| it.number == number.0))
            .cloned();
        let is_read_only = config.read_only || backing.is_read_only();
        let now = backing.identity();
        if let Some(VolumeInfo { state: journal::VolumeState::Settled { which, version }, .. }) = known {
            let before = Identity { which, version };
            let differs = |before: &Option<String>, now: &Option<String>| {
                before.is_some() && now.is_some() && before != now
            };
            if differs(&before.which, &now.which) || differs(&before.version, &now.version) {
                self.part_with(config, number, &before, &now)?;
            }
        }
        let settled =
            || journal::VolumeState::Settled { which: now.which.clone(), version: now.version.clone() };
        let state = if is_read_only { settled() } else { journal::VolumeState::Writing };
        let info = VolumeInfo { number: number.0, name: config.name.clone(), size_bytes, state };
        self.log.note_volume(&info);
        Ok(number)
    }

    /// The image was changed by another writer: its cached blocks are stale.
    fn part_with(
        &mut self,
        config: &VolumeConfig,
        number: Volume,
        before: &Identity,
        now: &Identity,
    ) -> Result<(), EngineError> {
        let mut dirty_bytes = 0;
        let extents = &mut self.extents;
        extents.visit_dirty(|owner, part| dirty_bytes += if owner == number { part.bytes } else { 0 });
        if dirty_bytes > 0 {
            let words = |identity: &Identity| {
                let part = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
                format!("{}, version {}", part(&identity.which), part(&identity.version))
            };
            let (name, before, now) = (config.name.clone(), words(before), words(now));
            return Err(EngineError::Stranger { name, dirty_bytes, before, now });
        }
        tracing::warn!(
            export = config.name,
            "the image was changed by somebody else: nothing of it stays cached"
        );
        let piece_bytes = extents.geometry().piece_bytes();
        let mut blocks = Vec::new();
        extents.map().visit_blocks(|owner, _, block| {
            if owner == number {
                blocks.push(block.piece * piece_bytes..(block.piece + block.pieces) * piece_bytes);
            }
        });
        for range in blocks {
            extents.discard(number, range);
        }
        self.write_order.note_map(&mut self.log, extents);
        Ok(())
    }
}
