//! Mapped device, memory that survives the process: a device-DAX character
//! device, a file on a DAX file system, or any file that can be mapped.
//!
//! Its user defines the contents: the user that opens it checks the first bytes, and decides whether they stay.
//!
//! A part may be lost while it is mapped: somebody shortens the file, or a page of the medium turns bad. It reads as zeros then, and the
//! user must ask ([`Mapped::has_lost`]) after it has read and before it believes what it has read.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Memory;
use tiermem_base::Bytes;
use tiermem_sys::disk;
use tiermem_sys::mapping::{MapError, Mapping};
use tiermem_sys::populate::Populate;

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
    /// Whether there is something to write back to.
    has_disk: bool,
    /// A file that stays lacked a part of its space when it was opened.
    lacked_space: bool,
}

impl Mapped {
    /// Takes `capacity` bytes of a file or device for this process alone. A file is made if it is not there. A regular file gets its
    /// space now, so that a disk that fills up later cannot end the process.
    ///
    /// `judge` is shown the first bytes, `judged_bytes` or all that there are, and told how many bytes there are in all. It says whether
    /// they stay (`true`) or whether a file is emptied first (`false`; a device keeps its bytes for its user to overwrite), or what the
    /// problem is: then nothing changes. Returns its answer too.
    ///
    /// # Errors
    /// When it cannot be taken, is another process's, is too small, or `judge` has a problem with it.
    pub fn open(
        path: &Path,
        capacity: u64,
        judged_bytes: u64,
        judge: impl FnOnce(&[u8], u64) -> Result<bool, String>,
    ) -> Result<(Self, bool), MappedError> {
        let failed = |source| MappedError::Io { path: path.to_owned(), source };
        let judge = |start: &[u8], has| {
            judge(start, has).map_err(|problem| MappedError::NotOurs { path: path.to_owned(), problem })
        };
        let file = disk::open(path).map_err(failed)?;
        if !disk::lock(&file).map_err(failed)? {
            return Err(MappedError::InUse(path.to_owned()));
        }
        let about = file.metadata().map_err(failed)?;
        let kind = about.file_type();
        let len = usize::try_from(capacity).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let map = |file| {
            Mapping::file(file, len).map_err(|source| MappedError::Map { path: path.to_owned(), source })
        };
        let (mapping, stays, lacked_space) = if kind.is_file() {
            // Looked at before it is sized: a stranger's file keeps its length.
            let mut start = vec![0; judged_bytes.min(about.len()) as usize];
            file.read_exact_at(&mut start, 0).map_err(failed)?;
            let stays = judge(&start, about.len())?;
            if !stays {
                file.set_len(0).map_err(failed)?;
            }
            file.set_len(capacity).map_err(failed)?;
            disk::reserve(&file, capacity).map_err(failed)?;
            // Where a file never has all of its space, as compressed, that says nothing.
            let has_all = |about: &fs::Metadata| disk::held_bytes(about) >= capacity;
            let lacked_space = stays && !has_all(&about) && has_all(&file.metadata().map_err(failed)?);
            (map(file)?, stays, lacked_space)
        } else if kind.is_char_device() || kind.is_block_device() {
            let has = device_bytes(&file, kind.is_char_device(), about.rdev()).map_err(failed)?;
            if has < capacity {
                let (has, wanted) = (Bytes(has), Bytes(capacity));
                return Err(MappedError::TooSmall { path: path.to_owned(), has, wanted });
            }
            let mapping = map(file)?;
            let stays = judge(&mapping.bytes()[..len.min(judged_bytes as usize)], has)?;
            (mapping, stays, false)
        } else {
            return Err(failed(io::Error::other("it is neither a file nor a device")));
        };
        // Memory that is a device by itself has no disk to be written back to.
        Ok((Mapped { mapping, has_disk: !kind.is_char_device(), lacked_space }, stays))
    }

    /// Whether a file that stays lacked a part of its space when it was opened. Since [`Self::open`] gives it all, it was shortened while it
    /// was mapped, or it is a copy with holes.
    pub fn lacked_space(&self) -> bool {
        self.lacked_space
    }

    /// Whether something was lost since [`Self::take_lost`]: what was read before this call may be zeros that were never written.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.mapping.has_lost()
    }

    /// Reads a byte of each page of a range, so that [`Self::has_lost`] knows of those that cannot be read.
    #[inline]
    pub fn touch(&self, offset: usize, len: usize) {
        self.mapping.touch(offset, len);
    }

    /// Looks for what no access shows: a file that was shortened and made longer again. Once a second or so.
    pub fn look(&mut self) {
        self.mapping.look();
    }

    /// What was lost since the last call, in order, as ranges of bytes.
    pub fn take_lost(&mut self) -> Vec<Range<usize>> {
        self.mapping.take_lost()
    }

    /// Has a file hold a range again that was lost: its length and its space, and zeros where single pages were lost; what the rest
    /// holds is not said. Without success nothing has changed, and the range is memory of this process.
    ///
    /// # Errors
    /// When the file system has no room for it or cannot write it; always for a device, whose bad pages only its own tools mend.
    pub fn put_back(&mut self, lost: &Range<usize>) -> io::Result<()> {
        // Made longer it would not show any more that more of it was lost.
        self.mapping.look();
        if self.mapping.has_lost() {
            return Err(io::Error::other("more of it was lost"));
        }
        let len = self.mapping.bytes().len();
        let file = self.mapping.mapped_file().ok_or_else(|| io::Error::other("it is no file"))?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::other("the device cannot read it, and only its own tools mend that"));
        }
        let is_whole = make_whole(file, (about.len(), len as u64), lost);
        self.mapping.forget_changes();
        is_whole?;
        self.mapping.put_back(lost).map_err(io::Error::other)
    }

    /// Whether there is a disk to which bytes are written back.
    pub fn has_disk(&self) -> bool {
        self.has_disk
    }

    /// Writes a range back. Waits for the device; nothing where there is none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn sync(&mut self, offset: usize, len: usize) -> io::Result<()> {
        if self.has_disk { self.mapping.sync(offset, len) } else { Ok(()) }
    }
}

/// Gives a file that `has` so many bytes all of its bytes and space, with zeros in a range that does not reach its end.
fn make_whole(file: &File, (has, bytes): (u64, u64), lost: &Range<usize>) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    if let Err(error) = disk::reserve(file, bytes) {
        // A longer file without the space for it would be lost again at the first write.
        file.set_len(has)?;
        return Err(error);
    }
    if (lost.end as u64) < bytes {
        for at in lost.clone().step_by(ZEROS.len()) {
            file.write_all_at(&ZEROS[..ZEROS.len().min(lost.end - at)], at as u64)?;
        }
    }
    Ok(())
}

/// Size of a device. A character device does not report it by itself.
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

impl Memory for Mapped {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }

    fn discard(&mut self, offset: usize, len: usize) {
        self.mapping.discard(offset, len);
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

    fn refusal(path: &str) -> String {
        Mapped::open(Path::new(path), CAPACITY, 16, |_, _| Ok(true)).unwrap_err().to_string()
    }

    #[test]
    fn who_opens_a_file_decides_what_becomes_of_its_bytes() {
        let path = std::env::temp_dir().join(format!("tiermem-mapped-{}", std::process::id()));
        fs::write(&path, b"what was there").unwrap();
        let refused = Mapped::open(&path, CAPACITY, 4, |start, has| Err(format!("holds {start:?} of {has}")));
        let error = refused.unwrap_err().to_string();
        assert!(
            error.contains(&format!("holds {:?} of 14", b"what")) && error.contains("--reset"),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"what was there", "a refusal leaves the file as it was");

        let (mut device, stayed) =
            Mapped::open(&path, CAPACITY, 64, |start, _| Ok(start.len() == 14)).unwrap();
        assert!(stayed && device.has_disk() && device.bytes().len() as u64 == CAPACITY);
        assert_eq!(&device.bytes()[..15], b"what was there\0");
        let second = Mapped::open(&path, CAPACITY, 64, |_, _| Ok(true)).unwrap_err().to_string();
        assert!(second.contains("in use by another process"), "{second}");
        device.bytes_mut()[14] = b'!';
        device.sync(0, 4096).unwrap();
        drop(device);

        let (device, stayed) = Mapped::open(&path, CAPACITY, 64, |start, _| Ok(start[14] != b'!')).unwrap();
        assert!(!stayed && device.bytes().iter().all(|&byte| byte == 0), "what does not stay is gone");
        drop(device);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_shortened_file_is_whole_again_when_its_user_wants_it() {
        let path = std::env::temp_dir().join(format!("tiermem-shortened-{}", std::process::id()));
        let (mut device, _) = Mapped::open(&path, CAPACITY, 0, |_, _| Ok(false)).unwrap();
        device.bytes_mut().fill(7);
        let half = CAPACITY as usize / 2;
        File::options().write(true).open(&path).unwrap().set_len(half as u64).unwrap();
        device.touch(half, 1);
        assert!(device.has_lost());
        let lost = device.take_lost();
        assert_eq!((lost.len(), lost[0].start, lost[0].end), (1, half, 2 * half));
        device.put_back(&lost[0]).unwrap();
        let about = fs::metadata(&path).unwrap();
        assert!(about.len() == CAPACITY && about.blocks() * 512 >= CAPACITY, "it has its space too");
        device.bytes_mut()[2 * half - 1] = 9;
        device.look();
        assert!(!device.has_lost());
        drop(device);
        let file = fs::read(&path).unwrap();
        assert!(
            file[..half].iter().all(|byte| *byte == 7)
                && file[half..2 * half - 1].iter().all(|byte| *byte == 0)
        );
        assert_eq!(file[2 * half - 1], 9);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn devices_that_cannot_be_mapped_say_so() {
        assert!(refusal("/dev/null").contains("not a device-DAX device"));
        assert!(refusal("/").contains("/: "));
        assert!(refusal("/nowhere/at/all").contains("/nowhere/at/all"));
    }
}
