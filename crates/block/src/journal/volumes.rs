//! Volumes in the log. They have no page in the table: each volume's last record
//! stays in the log, and is written again before the log's end would pass it.

use std::collections::BTreeMap;

use super::Lsn;
use super::record::{VolumeInfo, VolumeState};

#[derive(Debug)]
struct Known {
    info: VolumeInfo,
    /// Its last record.
    lsn: Lsn,
    /// Its last record that survives power loss, if there is one.
    synced: Option<Lsn>,
}

/// The volumes by number.
#[derive(Debug, Default)]
pub struct Volumes {
    known: BTreeMap<u16, Known>,
    /// Some record is not synced.
    unsynced: bool,
}

impl Volumes {
    /// Takes a record.
    pub fn apply(&mut self, lsn: Lsn, info: &VolumeInfo) {
        let synced = self.known.get(&info.number).and_then(|known| known.synced);
        self.known.insert(info.number, Known { info: info.clone(), lsn, synced });
        self.unsynced = true;
    }

    /// All records up to here survive power loss.
    pub fn synced(&mut self, upto: Lsn) {
        if !self.unsynced {
            return;
        }
        self.unsynced = false;
        self.known.retain(|_, known| {
            if known.lsn <= upto {
                known.synced = Some(known.lsn);
                return known.info.state != VolumeState::Removed;
            }
            self.unsynced = true;
            true
        });
    }

    /// The LSN from which on the log is needed.
    pub fn oldest(&self) -> Option<Lsn> {
        self.known.values().map(|known| known.synced.unwrap_or(known.lsn)).min()
    }

    /// Volumes with a last record older than this.
    pub fn older(&self, than: Lsn) -> Vec<VolumeInfo> {
        self.known.values().filter(|known| known.lsn < than).map(|known| known.info.clone()).collect()
    }

    /// All that were not removed, by number.
    pub fn list(&self) -> impl Iterator<Item = &VolumeInfo> {
        let all = self.known.values().map(|known| &known.info);
        all.filter(|info| info.state != VolumeState::Removed)
    }

    /// Bytes of all their records, with this one in its place.
    pub fn record_bytes(&self, with: Option<&VolumeInfo>) -> u64 {
        let others = self.known.iter().filter(|(number, _)| with.is_none_or(|it| it.number != **number));
        let others: usize = others.map(|(_, known)| known.info.record_bytes()).sum();
        (others + with.map_or(0, VolumeInfo::record_bytes)) as u64
    }
}
