//! Memory that survives the process: a device-DAX character device, a file on a DAX file system, or any file that can be
//! mapped.
//!
//! What lies in it, and what of that counts after the death of the process, is the business of [`super::Kept`].

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Kept, Memory};
use crate::region::{Division, HEADER_BYTES, Header, RegionState, VERSION};
use tiermem_base::Bytes;
use tiermem_sys::mapping::{MapError, Mapping};
use tiermem_sys::populate::Populate;
use tiermem_sys::{boot, disk};

/// Which file, and what may be done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct MappedSpec {
    /// The file or device. A file is made if it is not there.
    pub path: PathBuf,
    /// What else than the capacity decides where items lie: [`Header::layout`].
    pub layout: u64,
    /// Whether a region of another configuration, and what is no region at all, may be overwritten.
    pub reset: bool,
}

/// Why a file or device cannot hold a tier.
#[derive(Debug, thiserror::Error)]
pub enum MappedError {
    /// It cannot be opened, sized or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{} is in use by another process: stop that, or choose another file", .0.display())]
    InUse(PathBuf),
    /// It has fewer bytes than the tier.
    #[error("{} has {has}, and the tier is to have {}: make it smaller", path.display(), wanted)]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// What it has.
        has: Bytes,
        /// What the tier needs.
        wanted: Bytes,
    },
    /// There is something in it that is not to be overwritten.
    #[error("{} {problem}: choose another file, or say --reset to have what is in it overwritten", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
    /// It cannot be mapped.
    #[error("{}: {source}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// Why.
        source: MapError,
    },
}

/// A mapped file or device; costs what it costs.
#[derive(Debug)]
pub struct Mapped {
    mapping: Mapping,
    division: Division,
    kept: Kept,
    /// Whether there is something to write back to.
    has_disk: bool,
}

impl Mapped {
    /// Takes `capacity` bytes of the file for this process alone, header and table of pages among them. A regular file
    /// gets its space now, so that a disk that fills up later cannot end the process.
    pub fn open(spec: &MappedSpec, capacity: u64) -> Result<Self, MappedError> {
        let path = &spec.path;
        let failed = |source| MappedError::Io { path: path.clone(), source };
        let file = disk::open(path).map_err(failed)?;
        if !disk::lock(&file).map_err(failed)? {
            return Err(MappedError::InUse(path.clone()));
        }
        let about = file.metadata().map_err(failed)?;
        let kind = about.file_type();
        let len = usize::try_from(capacity).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let map =
            |file| Mapping::file(file, len).map_err(|source| MappedError::Map { path: path.clone(), source });
        let (mut mapping, keeps) = if kind.is_file() {
            // Looked at before it is sized: a stranger's file keeps its length.
            let mut start = vec![0; HEADER_BYTES.min(about.len()) as usize];
            file.read_exact_at(&mut start, 0).map_err(failed)?;
            let keeps = may_keep(spec, capacity, about.len(), Header::find(&start))?;
            if !keeps {
                file.set_len(0).map_err(failed)?;
            }
            file.set_len(capacity).map_err(failed)?;
            disk::reserve(&file, capacity).map_err(failed)?;
            (map(file)?, keeps)
        } else if kind.is_char_device() || kind.is_block_device() {
            let has = device_bytes(&file, kind.is_char_device(), about.rdev()).map_err(failed)?;
            if has < capacity {
                let (has, wanted) = (Bytes(has), Bytes(capacity));
                return Err(MappedError::TooSmall { path: path.clone(), has, wanted });
            }
            let mapping = map(file)?;
            let start = &mapping.bytes()[..len.min(HEADER_BYTES as usize)];
            let keeps = may_keep(spec, capacity, has, Header::find(start))?;
            (mapping, keeps)
        } else {
            return Err(failed(io::Error::other("it is neither a file nor a device")));
        };
        let division = Division::of(capacity);
        if !keeps {
            let bytes = mapping.bytes_mut();
            // The table of pages is empty, and that before the header says that it is a table.
            let before_pages = bytes.len().min(division.pages_offset as usize);
            bytes[..before_pages].fill(0);
            let header = Header { capacity, layout: spec.layout, uuid: draw_uuid() }.to_bytes();
            bytes[..header.len()].copy_from_slice(&header);
        }
        // Memory that is a device by itself has no disk to be written back to.
        let has_disk = !kind.is_char_device();
        let kept = Kept::open(mapping.bytes_mut(), division, boot::id(), has_disk);
        if has_disk {
            // That it is open must be on the disk before anything else is.
            mapping.sync(0, Kept::OPENED_BYTES).map_err(failed)?;
        }
        Ok(Mapped { mapping, division, kept, has_disk })
    }

    /// Writes everything back and notes that it was. Waits for the device.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close(&mut self) -> io::Result<()> {
        if !self.has_disk {
            return Ok(());
        }
        let len = self.mapping.bytes().len();
        self.mapping.sync(0, len)?;
        self.kept.close(self.mapping.bytes_mut());
        self.mapping.sync(0, Kept::OPENED_BYTES)
    }

    /// What outlives the process, and the bytes that say so.
    #[inline]
    pub fn kept(&mut self) -> (&mut Kept, &mut Mapping) {
        (&mut self.kept, &mut self.mapping)
    }

    fn pages(&self) -> std::ops::Range<usize> {
        let start = self.division.pages_offset as usize;
        start..start + self.division.pages_bytes as usize
    }
}

/// Whether what was found is this tier's region (true), or may give way to an empty one (false); `has` is the bytes there.
fn may_keep(spec: &MappedSpec, capacity: u64, has: u64, found: RegionState) -> Result<bool, MappedError> {
    let problem = match found {
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
    };
    Err(MappedError::NotOurs { path: spec.path.clone(), problem })
}

/// How large a device is. A character device does not tell by itself.
fn device_bytes(mut file: &File, is_char: bool, number: u64) -> io::Result<u64> {
    if !is_char {
        return file.seek(SeekFrom::End(0));
    }
    // The halves of a device's number, as the C library's `major` and `minor` take them apart.
    let major = (number >> 32) & 0xffff_f000 | (number >> 8) & 0xfff;
    let minor = (number >> 12) & 0xffff_ff00 | number & 0xff;
    let size = PathBuf::from(format!("/sys/dev/char/{major}:{minor}/size"));
    let text = fs::read_to_string(&size).map_err(|_| not_dax(&size))?;
    text.trim().parse().map_err(|_| not_dax(&size))
}

fn not_dax(size: &Path) -> io::Error {
    io::Error::other(format!(
        "it is not a device-DAX device: {} does not say how large it is",
        size.display()
    ))
}

/// Different for each region, and no secret: the standard library's hash is seeded at random.
fn draw_uuid() -> [u8; 16] {
    let random = RandomState::new();
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&random.hash_one(0).to_le_bytes());
    uuid[8..].copy_from_slice(&random.hash_one(1).to_le_bytes());
    uuid
}

impl Memory for Mapped {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[self.pages()]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let pages = self.pages();
        &mut self.mapping.bytes_mut()[pages]
    }

    fn discard(&mut self, offset: usize, len: usize) {
        self.mapping.discard(self.pages().start + offset, len);
    }

    fn populate(&self) -> Option<Populate> {
        self.mapping.populate()
    }

    #[inline]
    fn touch_read(&self, _len: u64) -> f64 {
        0.0
    }

    #[inline]
    fn touch_write(&self, _len: u64) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u64 = 1 << 20;

    fn spec(name: &str) -> MappedSpec {
        let path = std::env::temp_dir().join(format!("tiermem-mapped-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        MappedSpec { path, layout: 7, reset: false }
    }

    fn refusal(spec: &MappedSpec, capacity: u64) -> String {
        Mapped::open(spec, capacity).unwrap_err().to_string()
    }

    #[test]
    fn a_region_is_for_one_process_and_one_configuration() {
        let spec = spec("own");
        let mut device = Mapped::open(&spec, CAPACITY).unwrap();
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
        let other = MappedSpec { layout: 8, ..spec.clone() };
        assert!(refusal(&other, CAPACITY).contains("other size classes"));
        assert_eq!(fs::read(&spec.path).unwrap(), file, "a refusal leaves the file as it was");

        let again = Mapped::open(&spec, CAPACITY).unwrap();
        assert!(again.bytes().iter().all(|byte| *byte == 3), "what is there stays there");
        drop(again);
        drop(Mapped::open(&MappedSpec { reset: true, ..spec.clone() }, CAPACITY).unwrap());
        let file = fs::read(&spec.path).unwrap();
        let RegionState::Region(second) = Header::find(&file[..4096]) else { panic!("a header") };
        assert_ne!(first.uuid, second.uuid);
        assert!(file[HEADER_BYTES as usize..].iter().all(|byte| *byte == 0));
        fs::write(&spec.path, &file[..CAPACITY as usize / 2]).unwrap();
        assert!(refusal(&spec, CAPACITY).contains("a part of a tier: 512KiB of 1MiB"));
        drop(Mapped::open(&MappedSpec { reset: true, ..other }, 2 * CAPACITY).unwrap());
        fs::remove_file(spec.path).unwrap();
    }

    #[test]
    fn what_is_somebody_elses_is_left_alone() {
        let spec = spec("strange");
        let version = [&b"TMREGION"[..], &[1, 0, 0, 0], &[0; 52]].concat();
        let damaged = {
            let mut bytes = Header { capacity: CAPACITY, layout: 7, uuid: [0; 16] }.to_bytes();
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
        drop(Mapped::open(&MappedSpec { reset: true, ..spec.clone() }, CAPACITY).unwrap());
        fs::write(&spec.path, [0; 100]).unwrap();
        drop(Mapped::open(&spec, CAPACITY).unwrap());
        fs::remove_file(spec.path).unwrap();
    }

    #[test]
    fn devices_that_cannot_be_mapped_say_so() {
        let at = |path: &str| MappedSpec { path: path.into(), layout: 0, reset: false };
        assert!(refusal(&at("/dev/null"), CAPACITY).contains("not a device-DAX device"));
        assert!(refusal(&at("/"), CAPACITY).contains("/: "));
        assert!(refusal(&at("/nowhere/at/all"), CAPACITY).contains("/nowhere/at/all"));
    }
}
