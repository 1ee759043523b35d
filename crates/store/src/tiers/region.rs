//! Region of a tier in a file or device that outlives the process: its bounds, and its pages as memory.
//!
//! [`Kept`] defines its contents, and what of them counts after the death of the process.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use tiermem_base::Bytes;
use tiermem_policy::ladder::PAGE_BYTES;
use tiermem_sys::boot;
use tiermem_sys::populate::Populate;
use tiermem_tier::device::{Mapped, MappedError, Memory};

use super::persistent_region::Kept;
use super::region_format::{Division, HEADER_BYTES, Header, RegionState, State, VERSION};

/// The file of a region, and its permitted use.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionSpec {
    /// The file or device. A file is made if it is not there.
    pub path: PathBuf,
    /// Everything beside the capacity that decides where items lie: [`Header::layout`].
    pub layout: u64,
    /// Whether a region of another configuration, and what is no region at all, may be overwritten.
    pub reset: bool,
}

/// The pages of a tier in a mapped file or device.
#[derive(Debug)]
pub struct Region {
    mapped: Mapped,
    division: Division,
    kept: Kept,
    header: Header,
    /// What was lost and is not put back: it could not be, or was not tried yet.
    lost: Vec<Range<usize>>,
}

/// A part of a region that was lost and cannot be had again.
#[derive(Debug)]
pub struct Unmended {
    /// Pages before it. Those behind them may be memory of this process.
    pub pages_before: u64,
    /// Why.
    pub source: io::Error,
}

impl Region {
    /// Takes `capacity` bytes of the file for this process alone, header and table of pages among them.
    pub fn open(spec: &RegionSpec, capacity: u64) -> Result<Self, MappedError> {
        let judge = |start: &[u8], has| may_keep(spec, capacity, has, Header::find(start));
        let (mut mapped, keeps) = Mapped::open(&spec.path, capacity, HEADER_BYTES, judge)?;
        let division = Division::of(capacity);
        let mut header = Header { capacity, layout: spec.layout, uuid: draw_uuid(), version: VERSION };
        if !keeps {
            let bytes = mapped.bytes_mut();
            // The table of pages is empty, and that before the header says that it is a table.
            let before_pages = bytes.len().min(division.pages_offset as usize);
            bytes[..before_pages].fill(0);
            bytes[..64].copy_from_slice(&header.to_bytes());
        } else if let RegionState::Region(found) = Header::find(&mapped.bytes()[..HEADER_BYTES as usize]) {
            // What is written from now on an older program cannot read.
            header = Header { version: VERSION, ..found };
            if found != header {
                mapped.bytes_mut()[..64].copy_from_slice(&header.to_bytes());
            }
        }
        let has_disk = mapped.has_disk();
        // A process that died before it has seen that its file was shortened and made longer again has left zeros for items. What was
        // closed in order is whole, and may be a copy with holes where zeros are.
        let lost = mapped.lacked_space() && !State::read(mapped.bytes()).clean;
        let mut kept = Kept::open(mapped.bytes_mut(), division, boot::id(), has_disk);
        if lost {
            let path = spec.path.display();
            tracing::error!(%path, "the file was shortened while a store ran on it that was killed: none of its items can be trusted");
            kept.begin_empty(mapped.bytes_mut());
        }
        // That it is open must be on the disk before anything else is.
        let failed = |source| MappedError::Io { path: spec.path.clone(), source };
        mapped.sync(0, Kept::OPENED_BYTES).map_err(failed)?;
        Ok(Region { mapped, division, kept, header, lost: Vec::new() })
    }

    /// Writes everything back. Waits for the device.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_back(&mut self) -> io::Result<()> {
        // Without a disk this does nothing.
        let len = self.mapped.bytes().len();
        self.mapped.sync(0, len)
    }

    /// The same, and notes that it was written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close(&mut self) -> io::Result<()> {
        if !self.mapped.has_disk() {
            return Ok(());
        }
        self.write_back()?;
        self.kept.close(self.mapped.bytes_mut());
        self.mapped.sync(0, Kept::OPENED_BYTES)
    }

    /// Whether something was lost since [`Self::take_lost`]: what was read before this call may be zeros that were never written.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.mapped.has_lost()
    }

    /// Reads a byte of each page of memory that a range of the pages lies on, so that [`Self::has_lost`] knows of it.
    pub fn touch(&self, offset: usize, len: usize) {
        self.mapped.touch(self.pages().start + offset, len);
    }

    /// Looks for what no access shows.
    pub fn look(&mut self) {
        self.mapped.look();
    }

    /// The pages of which something was lost since the last call, or was and could not be put back, in order. Header, state and table
    /// are no pages: they are written again. `None`: nothing was lost.
    pub fn take_lost(&mut self) -> Option<Vec<Range<u32>>> {
        let start = self.pages().start;
        self.lost.extend(self.mapped.take_lost());
        self.lost.sort_unstable_by_key(|lost| lost.start);
        let page_of = |offset: usize| (offset.saturating_sub(start) as u64 / PAGE_BYTES) as u32;
        let end_of = |offset: usize| (offset.saturating_sub(start) as u64).div_ceil(PAGE_BYTES) as u32;
        let pages = self.lost.iter().map(|lost| page_of(lost.start)..end_of(lost.end).min(self.kept.pages()));
        (!self.lost.is_empty()).then(|| pages.filter(|pages| !pages.is_empty()).collect())
    }

    /// Has the file hold again what was lost, once nothing lies there any more. `None`: nothing was.
    ///
    /// # Errors
    /// When it cannot hold all of it: the first part that it does not.
    pub fn mend(&mut self) -> Option<Result<(), Unmended>> {
        let start = self.pages().start;
        let lost = std::mem::take(&mut self.lost);
        let first = lost.first()?.start;
        if lost.iter().any(|lost| *lost == (0..self.mapped.bytes().len())) {
            // What the file has there is not known. Nothing of it counts, whenever the process dies.
            self.kept.begin_empty(self.mapped.bytes_mut());
        }
        let mut unmended: Option<Unmended> = None;
        for lost in &lost {
            if let Err(source) = self.mapped.put_back(lost) {
                let pages_before = lost.start.saturating_sub(start) as u64 / PAGE_BYTES;
                self.lost.push(lost.clone());
                unmended = unmended.or(Some(Unmended { pages_before, source }));
            }
        }
        if first < start {
            let bytes = self.mapped.bytes_mut();
            bytes[..64].copy_from_slice(&self.header.to_bytes());
            self.kept.write_again(bytes);
        }
        Some(unmended.map_or(Ok(()), Err))
    }

    /// The persistent state, and the bytes that hold it, from the region's start.
    #[inline]
    pub fn kept(&mut self) -> (&mut Kept, &mut [u8]) {
        (&mut self.kept, self.mapped.bytes_mut())
    }

    fn pages(&self) -> std::ops::Range<usize> {
        let start = self.division.pages_offset as usize;
        start..start + self.division.pages_bytes as usize
    }
}

impl Memory for Region {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.mapped.bytes()[self.pages()]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let pages = self.pages();
        &mut self.mapped.bytes_mut()[pages]
    }

    fn discard(&mut self, offset: usize, len: usize) {
        self.mapped.discard(self.pages().start + offset, len);
    }

    fn populate(&self) -> Option<Populate> {
        self.mapped.populate()
    }

    #[inline]
    fn touch_read(&self, len: u64) -> f64 {
        self.mapped.touch_read(len)
    }

    #[inline]
    fn touch_write(&self, len: u64) -> f64 {
        self.mapped.touch_write(len)
    }
}

/// Whether what was found is this tier's region (true), or may give way to an empty one (false); `has` is the bytes there.
fn may_keep(spec: &RegionSpec, capacity: u64, has: u64, found: RegionState) -> Result<bool, String> {
    Err(match found {
        _ if spec.reset => return Ok(false),
        RegionState::Nothing => return Ok(false),
        RegionState::Region(header) if header.capacity != capacity => {
            format!("holds a tier of {}, and this one is to have {}", Bytes(header.capacity), Bytes(capacity))
        }
        RegionState::Region(header) if header.layout != spec.layout => {
            "holds a tier with other size classes (class_factor)".to_owned()
        }
        RegionState::Region(_) if has < capacity => {
            format!("holds a part of a tier: {} of {}", Bytes(has), Bytes(capacity))
        }
        RegionState::Region(_) => return Ok(true),
        RegionState::Version(version) => {
            format!("holds a tier of version {version}, and this program knows {VERSION}")
        }
        RegionState::Damaged => "holds a tier whose header is damaged".to_owned(),
        RegionState::Strange => "holds something else".to_owned(),
    })
}

/// Different for each region, and no secret: the standard library's hash is seeded at random.
fn draw_uuid() -> [u8; 16] {
    let random = RandomState::new();
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random.hash_one(0).to_le_bytes());
    uuid[8..].copy_from_slice(&random.hash_one(1).to_le_bytes());
    uuid
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const CAPACITY: u64 = 1 << 20;

    fn spec(name: &str) -> RegionSpec {
        let path = std::env::temp_dir().join(format!("tiermem-region-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        RegionSpec { path, layout: 7, reset: false }
    }

    fn refusal(spec: &RegionSpec, capacity: u64) -> String {
        Region::open(spec, capacity).unwrap_err().to_string()
    }

    #[test]
    fn a_region_is_for_one_process_and_one_configuration() {
        let spec = spec("own");
        let mut device = Region::open(&spec, CAPACITY).unwrap();
        assert_eq!(device.bytes().len() as u64, Division::of(CAPACITY).pages_bytes);
        device.bytes_mut().fill(3);
        assert!(refusal(&spec, CAPACITY).contains("in use by another process"));
        drop(device);
        let file = fs::read(&spec.path).unwrap();
        assert_eq!(file.len() as u64, CAPACITY);
        let RegionState::Region(first) = Header::find(&file[..HEADER_BYTES as usize]) else {
            panic!("a header")
        };
        assert_eq!((first.capacity, first.layout), (CAPACITY, 7));
        assert!(refusal(&spec, 2 * CAPACITY).contains("a tier of 1MiB, and this one is to have 2MiB"));
        let other = RegionSpec { layout: 8, ..spec.clone() };
        assert!(refusal(&other, CAPACITY).contains("other size classes"));
        assert_eq!(fs::read(&spec.path).unwrap(), file, "a refusal leaves the file as it was");

        let again = Region::open(&spec, CAPACITY).unwrap();
        assert!(again.bytes().iter().all(|byte| *byte == 3), "what is there stays there");
        drop(again);
        drop(Region::open(&RegionSpec { reset: true, ..spec.clone() }, CAPACITY).unwrap());
        let file = fs::read(&spec.path).unwrap();
        let RegionState::Region(second) = Header::find(&file[..4096]) else { panic!("a header") };
        assert_ne!(first.uuid, second.uuid);
        assert!(file[HEADER_BYTES as usize..].iter().all(|byte| *byte == 0));
        fs::write(&spec.path, &file[..CAPACITY as usize / 2]).unwrap();
        assert!(refusal(&spec, CAPACITY).contains("a part of a tier: 512KiB of 1MiB"));
        drop(Region::open(&RegionSpec { reset: true, ..other }, 2 * CAPACITY).unwrap());
        fs::remove_file(spec.path).unwrap();
    }

    #[test]
    fn what_is_somebody_elses_is_left_alone() {
        let spec = spec("strange");
        let version = [&b"TMREGION"[..], &[1, 0, 0, 0], &[0; 52]].concat();
        let damaged = {
            let mut bytes =
                Header { capacity: CAPACITY, layout: 7, uuid: [0; 16], version: VERSION }.to_bytes();
            bytes[33] = 1;
            bytes.to_vec()
        };
        for (contents, says) in [
            (b"my thesis".to_vec(), "something else"),
            (version, "of version 1"),
            (damaged, "header is damaged"),
        ] {
            fs::write(&spec.path, &contents).unwrap();
            let error = refusal(&spec, CAPACITY);
            assert!(error.contains(says) && error.contains("--reset"), "{error}");
            assert_eq!(fs::read(&spec.path).unwrap(), contents);
        }
        drop(Region::open(&RegionSpec { reset: true, ..spec.clone() }, CAPACITY).unwrap());
        fs::write(&spec.path, [0; 100]).unwrap();
        drop(Region::open(&spec, CAPACITY).unwrap());
        fs::remove_file(spec.path).unwrap();
    }
}
