//! Operator control of a running cache: modes and quotas, writing back, and dropping clean blocks.

use tiermem_base::Bytes;
use tiermem_policy::extents::{Mode, Service, Share};

use super::Engine;
use super::op::op_bytes_max;
use super::shared::Shared;

/// Blocks that one call of [`Engine::drop_clean`] looks at.
const DROP_BLOCKS: usize = 1024;
/// A share has room for at least this number of the largest operations, as each holds its blocks while it runs.
const QUOTA_OPS_MIN: u64 = 4;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// It takes no writes.
    #[error("{name} is read-only, so no mode says where its writes go")]
    ReadOnly {
        /// The export.
        name: String,
    },
    /// Its store does not take the record that it may lack data from now on.
    #[error(
        "the store of {name} cannot note that it may lack data from now on: {why}; the mode stays as it is"
    )]
    Label {
        /// The export.
        name: String,
        /// Why not.
        why: String,
    },
    /// More than there is.
    #[error("a quota of {quota} is more than the cache has ({capacity}): give less, or none")]
    Quota {
        /// As asked.
        quota: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// The cache was opened for fewer quotas.
    #[error(
        "the cache was started for fewer quotas: give this export one in the configuration, and start it again"
    )]
    Shares,
    /// The store failed.
    #[error(
        "the store of {name} failed while {bytes} were left to be written back, which goes on by itself: see the log for why"
    )]
    Store {
        /// The export.
        name: String,
        /// What the store lacked then.
        bytes: Bytes,
    },
}

/// A requested write-back: [`Engine::begin_write_back`].
#[derive(Clone, Debug)]
pub struct WriteBack {
    volume: usize,
    /// All epochs up to this one must be in the store.
    epoch: Option<u64>,
    /// This flush of the store must have ended.
    flush: Option<u64>,
    /// The store's failures when it began.
    failures: u64,
    bytes: u64,
}

/// Progress of dropping clean blocks: [`Engine::drop_clean`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    from_slot: u32,
    bytes: u64,
}

impl Drops {
    /// Bytes of the volume that the cache has dropped so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Engine {
    /// The place of the export of that name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.shared.volumes.exports().iter().position(|export| export.name == name)
    }

    /// Sets where writes of a volume go that begin from now on. Writes that go to
    /// the store wait until it has all dirty data, which are written back at once.
    ///
    /// # Errors
    /// When it is read-only.
    pub fn set_mode(&mut self, volume: usize, mode: Mode) -> Result<(), ControlError> {
        let export = &self.shared.volumes.exports()[volume];
        if export.read_only {
            return Err(ControlError::ReadOnly { name: export.name.clone() });
        }
        if mode == Mode::WriteBack && self.shared.log.is_kept() {
            let name = export.name.clone();
            self.shared.volumes[volume]
                .set_label(true)
                .map_err(|error| ControlError::Label { name, why: error.to_string() })?;
        }
        let export = &self.shared.volumes.exports()[volume];
        tracing::info!(export = export.name, from = ?self.shared.volumes[volume].mode, to = ?mode, "the mode changes");
        let Shared { volumes, write_back, extents, .. } = &mut self.shared;
        volumes[volume].mode = mode;
        let drains = mode != Mode::WriteBack || extents.service() == Service::OutOfUse;
        write_back.cleaner_mut().drain(volumes[volume].number, drains);
        // Operations that waited because of the old mode may not need to wait any more.
        self.call_parked();
        Ok(())
    }

    /// Sets the most of the cache that a volume may have, or no limit; it always has room for a few
    /// requests. If it took its space from a common share before, its blocks stay charged there until
    /// they are evicted. Blocks beyond a smaller quota are evicted as soon as any volume needs room.
    ///
    /// # Errors
    /// When the cache has less, or was opened for fewer [shares](super::EngineConfig::shares).
    pub fn set_quota(&mut self, volume: usize, quota_bytes: Option<u64>) -> Result<(), ControlError> {
        let Shared { extents, volumes, .. } = &mut self.shared;
        let capacity = extents.geometry().capacity_bytes();
        if let Some(quota) = quota_bytes.filter(|quota| *quota > capacity) {
            return Err(ControlError::Quota { quota: Bytes(quota), capacity: Bytes(capacity) });
        }
        let own = volumes[volume].share;
        let others =
            |share: Share| volumes.iter().enumerate().any(|(at, other)| at != volume && other.share == share);
        // Those without a quota share the first.
        let share = if own.0 != 0 && !others(own) {
            own
        } else if quota_bytes.is_none() {
            return Ok(());
        } else {
            let free = (1..extents.shares().count()).map(Share).find(|share| !others(*share));
            free.ok_or(ControlError::Shares)?
        };
        extents.shares_mut().assign(volumes[volume].number, share);
        volumes[volume].share = share;
        self.limit(volume, quota_bytes);
        tracing::info!(export = self.shared.volumes.name(volume), quota_bytes, "the quota changes");
        Ok(())
    }

    /// Sets what the volume's share may have.
    pub(super) fn limit(&mut self, volume: usize, quota_bytes: Option<u64>) {
        let Shared { extents, volumes, .. } = &mut self.shared;
        let least = QUOTA_OPS_MIN * op_bytes_max(extents.geometry());
        let volume = &mut volumes[volume];
        volume.quota_bytes = quota_bytes;
        extents.shares_mut().set_limit(volume.share, quota_bytes.map_or(u64::MAX, |quota| quota.max(least)));
    }

    /// Begins to write back all that is dirty of a volume, and to flush its store; ask [`Self::written_back_by`] how it goes.
    pub fn begin_write_back(&mut self, volume: usize) -> WriteBack {
        let Shared { volumes, write_back, .. } = &mut self.shared;
        let (state, cleaner) = (&mut volumes[volume], write_back.cleaner_mut());
        let bytes = cleaner.standing(state.number).unwritten_bytes();
        let epoch = cleaner.close_epoch(state.number);
        if let Some(epoch) = epoch {
            cleaner.want(state.number, epoch);
        }
        let flush = state.flushing.needed();
        state.flushing.want(flush.unwrap_or(0));
        let failures = state.counts.write_back_failures;
        self.shared.flush_store(volume);
        WriteBack { volume, epoch, flush, failures, bytes }
    }

    /// Number of bytes written back, once all that was dirty at the request is in the store; `None` until then.
    ///
    /// # Errors
    /// When the store has failed meanwhile.
    pub fn written_back_by(&self, asked: &WriteBack) -> Option<Result<u64, ControlError>> {
        let (volume, cleaner) = (&self.shared.volumes[asked.volume], self.shared.write_back.cleaner());
        let is_done = asked.epoch.is_none_or(|epoch| cleaner.is_flushed(volume.number, epoch))
            && asked.flush.is_none_or(|flush| volume.flushing.has_ended(flush));
        if volume.counts.write_back_failures > asked.failures {
            let bytes = Bytes(cleaner.standing(volume.number).unwritten_bytes());
            return Some(Err(ControlError::Store {
                name: self.shared.volumes.name(asked.volume).to_owned(),
                bytes,
            }));
        }
        is_done.then_some(Ok(asked.bytes))
    }

    /// Drops a volume's clean blocks, a portion at a time so that other requests do not wait for long; returns whether
    /// it is done. Blocks that are dirty or in use stay. While the log is full nothing is dropped: call again later.
    pub fn drop_clean(&mut self, volume: usize, drops: &mut Drops) -> bool {
        let Shared { extents, volumes, log, write_order, .. } = &mut self.shared;
        let has_failed = log.failure().is_some();
        if has_failed || !log.has_room() {
            return has_failed;
        }
        let number = volumes[volume].number;
        let next = extents.forget_clean(number, drops.from_slot, DROP_BLOCKS, &mut drops.bytes);
        write_order.note_map(log, extents);
        drops.from_slot = next.unwrap_or(u32::MAX);
        next.is_none()
    }
}
