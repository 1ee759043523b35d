//! Mapping of a request of the trace to an export and an offset.

use std::collections::HashMap;

use tiermem_base::Access;

use super::pattern::SECTOR_BYTES;
use super::survey::{Survey, sends};
use crate::nbd::NbdUri;

/// Alignment of volumes that share an export, in bytes.
const VOLUME_ALIGN: u64 = 4096;

/// An export and the volumes that are replayed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The export.
    pub uri: NbdUri,
    /// The trace's volumes that lie in it, one behind the other in this order, each as long as the trace's requests reach.
    pub volumes: Vec<u32>,
}

/// Why a trace does not fit the exports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A volume that lies nowhere.
    #[error("no export is given for volume {0} of the trace")]
    NoExport(u32),
    /// A volume that lies in two places.
    #[error("volume {0} is given two exports")]
    TwoExports(u32),
    /// The trace reaches beyond the export's end.
    #[error("{uri} has {size_bytes} bytes, and the trace needs {needed_bytes}")]
    TooSmall {
        /// The export.
        uri: String,
        /// How large it is.
        size_bytes: u64,
        /// How large it must be for the trace.
        needed_bytes: u64,
    },
    /// The export holds not even the least that can be asked of it.
    #[error("{uri} has {size_bytes} bytes, less than one block of {grain_bytes}")]
    Tiny {
        /// The export.
        uri: String,
        /// How large it is.
        size_bytes: u64,
        /// What requests are multiples of.
        grain_bytes: u64,
    },
    /// A record that was not there when the trace was surveyed.
    #[error(
        "the trace has changed since it was read first: volume {volume}, offset {offset}, length {len_bytes}"
    )]
    Changed {
        /// The record's volume.
        volume: u32,
        /// Its offset.
        offset: u64,
        /// Its length.
        len_bytes: u32,
    },
}

/// The bytes to be sent for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The export's number: its place among the targets.
    pub export: usize,
    /// The trace's volume.
    pub volume: u32,
    /// The first byte in the export.
    pub offset: u64,
    /// Number of bytes, at least one grain.
    pub bytes: u64,
    /// Whether it writes.
    pub write: bool,
    /// Whether it was made larger to begin and end at grains.
    pub widened: bool,
    /// Whether it reached beyond the end, and lies elsewhere therefore.
    pub wrapped: bool,
}

/// One export: what fits in it.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// What requests are multiples of: a sector, or the export's least block if that is larger.
    grain: u64,
    /// Its size, rounded down to grains.
    usable: u64,
}

/// Where the volumes lie.
#[derive(Debug)]
pub struct Layout {
    rooms: Vec<Room>,
    /// By volume: its export, and where in it the volume begins.
    places: HashMap<u32, (usize, u64)>,
    wrap: bool,
}

impl Layout {
    /// Lays volumes out. `exports` are size and least block of each target in bytes, in the targets' order. With
    /// `wrap`, requests beyond an export's end wrap around to its begin; otherwise all of the trace must fit.
    ///
    /// # Errors
    /// When a volume lies nowhere or twice, or an export is too small.
    pub fn new(
        survey: &Survey,
        targets: &[Target],
        exports: &[(u64, u32)],
        wrap: bool,
    ) -> Result<Self, LayoutError> {
        let (mut rooms, mut places) = (Vec::new(), HashMap::new());
        for (number, (target, (size_bytes, minimum))) in targets.iter().zip(exports).enumerate() {
            // Both are powers of two, so each multiple of the larger is one of the other.
            let grain = SECTOR_BYTES.max(u64::from(*minimum));
            let (size_bytes, usable) = (*size_bytes, size_bytes / grain * grain);
            let uri = || target.uri.to_string();
            let mut end = 0u64;
            for volume in &target.volumes {
                let begin = end.checked_next_multiple_of(VOLUME_ALIGN.max(grain)).unwrap_or(u64::MAX);
                if places.insert(*volume, (number, begin)).is_some() {
                    return Err(LayoutError::TwoExports(*volume));
                }
                let reaches = survey.volumes.get(volume).map_or(0, |volume| volume.end_bytes);
                end = begin.saturating_add(reaches);
            }
            let needed_bytes = end.checked_next_multiple_of(grain).unwrap_or(u64::MAX);
            if usable == 0 {
                return Err(LayoutError::Tiny { uri: uri(), size_bytes, grain_bytes: grain });
            }
            if needed_bytes > usable && !wrap {
                return Err(LayoutError::TooSmall { uri: uri(), size_bytes, needed_bytes });
            }
            rooms.push(Room { grain, usable });
        }
        match survey.volumes.keys().find(|volume| !places.contains_key(volume)) {
            Some(volume) => Err(LayoutError::NoExport(*volume)),
            None => Ok(Layout { rooms, places, wrap }),
        }
    }

    /// The span to be sent for a record; `None` where there is nothing
    /// to send: it covers no bytes, or neither reads nor writes.
    ///
    /// # Errors
    /// When the survey had no such record.
    pub fn place(&self, access: &Access) -> Result<Option<Span>, LayoutError> {
        if !sends(access) {
            return Ok(None);
        }
        let changed =
            LayoutError::Changed { volume: access.tenant, offset: access.key, len_bytes: access.size };
        let Some((export, begin)) = self.places.get(&access.tenant).copied() else { return Err(changed) };
        let Room { grain, usable } = self.rooms[export];
        // Wide enough for any offset and length in a trace.
        let (grain, usable) = (u128::from(grain), u128::from(usable));
        let first = u128::from(begin) + u128::from(access.key);
        let end = first + u128::from(access.size);
        let (down, up) = (first / grain * grain, end.next_multiple_of(grain));
        let (mut offset, mut bytes, wrapped) = (down, up - down, up > usable);
        if wrapped {
            if !self.wrap {
                return Err(changed);
            }
            bytes = bytes.min(usable);
            // What would still reach beyond the end is laid against it.
            offset = (down % usable).min(usable - bytes);
        }
        Ok(Some(Span {
            export,
            volume: access.tenant,
            offset: offset as u64,
            bytes: bytes as u64,
            write: access.op.is_write(),
            widened: (down, up) != (first, end),
            wrapped,
        }))
    }
}

#[cfg(test)]
mod tests {
    use tiermem_base::Op;

    use super::*;

    fn target(volumes: &[u32]) -> Target {
        Target { uri: "nbd://h/a".parse().unwrap(), volumes: volumes.to_vec() }
    }

    fn record(tenant: u32, op: Op, key: u64, size: u32) -> Access {
        Access { tenant, ..Access::new(0, op, key, size) }
    }

    fn survey(records: &[Access]) -> Survey {
        let mut survey = Survey::default();
        records.iter().for_each(|record| survey.add(record));
        survey
    }

    fn at(layout: &Layout, access: &Access) -> (usize, u64, u64, bool, bool) {
        let span = layout.place(access).unwrap().unwrap();
        (span.export, span.offset, span.bytes, span.widened, span.wrapped)
    }

    #[test]
    fn volumes_lie_one_behind_the_other_or_apart() {
        let records = [record(7, Op::Write, 10_000, 512), record(2, Op::Read, 512, 1024)];
        let survey = survey(&records);
        let one = Layout::new(&survey, &[target(&[2, 7])], &[(1 << 20, 1)], false).unwrap();
        assert_eq!(at(&one, &records[1]), (0, 512, 1024, false, false));
        // It begins at 4096 and is widened to sectors.
        assert_eq!(at(&one, &records[0]), (0, 4096 + 9728, 1024, true, false));
        let two = [target(&[7]), target(&[2])];
        let apart = Layout::new(&survey, &two, &[(1 << 20, 4096), (1 << 20, 1)], false).unwrap();
        assert_eq!(at(&apart, &records[0]), (0, 8192, 4096, true, false));
        assert_eq!(at(&apart, &records[1]), (1, 512, 1024, false, false));
        assert_eq!(apart.place(&record(7, Op::Read, 0, 0)), Ok(None));
        assert_eq!(apart.place(&record(7, Op::Del, 0, 5)), Ok(None));
        assert!(matches!(apart.place(&record(1, Op::Read, 0, 5)), Err(LayoutError::Changed { .. })));
        assert!(matches!(apart.place(&record(2, Op::Read, 1 << 30, 5)), Err(LayoutError::Changed { .. })));
    }

    #[test]
    fn what_does_not_fit_is_told_with_the_size_that_would_do() {
        let records = [record(0, Op::Write, 4000, 100), record(1, Op::Write, 0, 700)];
        let survey = survey(&records);
        let new = |targets: &[Target], exports: &[(u64, u32)]| Layout::new(&survey, targets, exports, false);
        // Volume 0 ends at 4100, volume 1 begins at 8192 and ends at 8892.
        let Err(LayoutError::TooSmall { needed_bytes, .. }) = new(&[target(&[0, 1])], &[(8192, 1)]) else {
            panic!("it does not fit")
        };
        assert_eq!(needed_bytes, 9216);
        assert!(new(&[target(&[0, 1])], &[(needed_bytes, 1)]).is_ok());
        assert_eq!(new(&[target(&[0])], &[(1 << 20, 1)]).unwrap_err(), LayoutError::NoExport(1));
        let twice = [target(&[0, 1]), target(&[1])];
        assert_eq!(new(&twice, &[(1 << 20, 1); 2]).unwrap_err(), LayoutError::TwoExports(1));
        assert!(matches!(new(&[target(&[0, 1])], &[(4095, 4096)]), Err(LayoutError::Tiny { .. })));
    }

    #[test]
    fn what_is_wrapped_lies_within_and_keeps_its_grain() {
        let wild = [u64::MAX, 1 << 62, 12_345_678, 0, 8191, 8192];
        let sizes = [1, 512, 5000, 100_000, u32::MAX];
        let records: Vec<_> =
            wild.iter().flat_map(|key| sizes.map(|size| record(0, Op::Read, *key, size))).collect();
        for (size, minimum) in [(8192 + 100, 1), (1 << 20, 4096)] {
            let layout = Layout::new(&survey(&records), &[target(&[0])], &[(size, minimum)], true).unwrap();
            for access in &records {
                let span = layout.place(access).unwrap().unwrap();
                let grain = u64::from(minimum).max(512);
                assert!(span.offset.is_multiple_of(grain) && span.bytes.is_multiple_of(grain), "{span:?}");
                assert!(span.bytes > 0 && span.offset + span.bytes <= size, "{span:?} of {access:?}");
            }
        }
        let layout = Layout::new(&survey(&records), &[target(&[0])], &[(8192, 1)], true).unwrap();
        assert_eq!(at(&layout, &record(0, Op::Read, 9216, 512)), (0, 1024, 512, false, true));
        assert_eq!(at(&layout, &record(0, Op::Read, 7680, 1024)), (0, 7168, 1024, false, true));
    }
}
