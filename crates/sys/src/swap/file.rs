//! Swap files: their header, as `mkswap` writes it (version 1), and whether the kernel could swap to them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::fstatfs;

use super::error::SwapError;
use crate::disk;

const PAGE_BYTES: u64 = 4096;
/// The least that `mkswap` makes: ten pages.
pub const SWAP_FILE_BYTES_MIN: u64 = 10 * PAGE_BYTES;
/// The header takes so many bytes of a file.
pub const SWAP_HEADER_BYTES: u64 = PAGE_BYTES;
/// The longest label.
pub const LABEL_BYTES_MAX: usize = 16;

/// The last ten bytes of the header's page.
const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";
const VERSION: u32 = 1;
/// Behind what a boot loader may keep there.
const AT_VERSION: usize = 1024;
const AT_LAST_PAGE: usize = AT_VERSION + 4;
const AT_BAD_PAGES: usize = AT_LAST_PAGE + 4;
const AT_UUID: usize = AT_BAD_PAGES + 4;
const AT_LABEL: usize = AT_UUID + 16;
const AT_SIGNATURE: usize = PAGE_BYTES as usize - SIGNATURE.len();

/// File systems from which the kernel cannot swap, or whose files move under it.
const UNFIT: [(u64, &str); 8] = [
    (0x0102_1994, "tmpfs (memory itself)"),
    (0x8584_58f6, "ramfs (memory itself)"),
    (0x794c_7630, "overlay"),
    (0x6969, "NFS"),
    (0x2fc1_2fc1, "ZFS"),
    (0x9123_683e, "btrfs (copy on write)"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
];

/// The header's page.
fn header(pages: u64, uuid: [u8; 16], label: &str) -> Option<[u8; PAGE_BYTES as usize]> {
    let last_page = u32::try_from(pages.checked_sub(1)?).ok()?;
    let mut page = [0; PAGE_BYTES as usize];
    page[AT_VERSION..AT_LAST_PAGE].copy_from_slice(&VERSION.to_ne_bytes());
    page[AT_LAST_PAGE..AT_BAD_PAGES].copy_from_slice(&last_page.to_ne_bytes());
    page[AT_UUID..AT_LABEL].copy_from_slice(&uuid);
    page.get_mut(AT_LABEL..AT_LABEL + LABEL_BYTES_MAX)?
        .get_mut(..label.len())?
        .copy_from_slice(label.as_bytes());
    page[AT_SIGNATURE..].copy_from_slice(SIGNATURE);
    Some(page)
}

/// Makes a file for swap that no other user can read, with all its space on the disk. `bytes` is rounded down to whole pages.
/// `uuid` tells areas apart; the caller draws it.
///
/// # Errors
/// If there is anything of this name, or no room; or its file system cannot hold swap. An unfinished file is removed.
pub fn make_file(path: &Path, bytes: u64, uuid: [u8; 16], label: &str) -> Result<(), SwapError> {
    let value = |problem: String| SwapError::Value { path: path.to_owned(), problem };
    if bytes < SWAP_FILE_BYTES_MIN {
        return Err(value(format!("{bytes} bytes are too few; the least is {SWAP_FILE_BYTES_MIN}")));
    }
    if label.len() > LABEL_BYTES_MAX {
        return Err(value(format!("the label {label:?} has more than {LABEL_BYTES_MAX} bytes")));
    }
    let pages = bytes / PAGE_BYTES;
    let header = header(pages, uuid, label)
        .ok_or_else(|| value(format!("{bytes} bytes are more than an area can have (2^32 pages)")))?;
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    let advice = "; choose another name: files that are there are left alone";
    let file = made.map_err(|error| SwapError::io("make the swap file", path, error, advice))?;
    let filled = fill(path, &file, pages * PAGE_BYTES, &header);
    if filled.is_err() {
        // It is ours: `create_new` has just made it.
        let _ = std::fs::remove_file(path);
    }
    filled
}

fn fill(path: &Path, file: &File, bytes: u64, header: &[u8]) -> Result<(), SwapError> {
    let io = |error| {
        SwapError::io("give its space to the swap file", path, error, "; make it smaller, or make room")
    };
    check_file_system(path, file)?;
    match disk::reserve(file, bytes) {
        // Older file systems, as ext2 and ext3, have swap and no such call.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => write_zeros(file, bytes),
        other => other,
    }
    .map_err(io)?;
    file.write_all_at(header, 0).map_err(io)?;
    file.sync_all().map_err(io)?;
    check_space(path, file)
}

fn write_zeros(file: &File, bytes: u64) -> io::Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let zeros = vec![0; PIECE_BYTES as usize];
    (0..bytes.div_ceil(PIECE_BYTES)).try_for_each(|piece| {
        let left = (bytes - piece * PIECE_BYTES).min(PIECE_BYTES) as usize;
        file.write_all_at(zeros.get(..left).unwrap_or_default(), piece * PIECE_BYTES)
    })
}

/// Whether this file or block device could be turned on: what it is, where it lies, what it holds.
///
/// # Errors
/// Why not.
pub fn check_file(path: &Path) -> Result<(), SwapError> {
    let io = |error| SwapError::io("open for swap", path, error, "");
    let not_swap = |problem| SwapError::NotSwap { path: path.to_owned(), problem };
    let file = disk::open_existing(path, true).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    if meta.is_file() {
        check_file_system(path, &file)?;
        check_space(path, &file)?;
        if meta.mode() & 0o077 != 0 {
            return Err(not_swap("can be opened by others, who would read what is swapped; chmod 600"));
        }
    } else if !meta.file_type().is_block_device() {
        return Err(not_swap("is neither a file nor a block device"));
    }
    let mut page = [0; PAGE_BYTES as usize];
    match file.read_exact_at(&mut page, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(not_swap("is too short")),
        Err(error) => return Err(io(error)),
    }
    if page.get(AT_SIGNATURE..) != Some(SIGNATURE.as_slice()) {
        return Err(not_swap("has no swap header; make one (mkswap), which destroys what it holds"));
    }
    Ok(())
}

/// The label of the swap in a file; `None` if there is no swap in it, or it cannot be read.
pub fn label_of(path: &Path) -> Option<String> {
    let mut page = [0; PAGE_BYTES as usize];
    disk::open_existing(path, true).ok()?.read_exact_at(&mut page, 0).ok()?;
    let is_swap = page.get(AT_SIGNATURE..) == Some(SIGNATURE.as_slice());
    let label = page.get(AT_LABEL..AT_LABEL + LABEL_BYTES_MAX).filter(|_| is_swap)?;
    let label = label.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(label).into_owned())
}

/// Whether the file system of this folder or file can hold swap.
///
/// # Errors
/// Why not.
pub fn check_place(path: &Path) -> Result<(), SwapError> {
    let opened = File::open(path).map_err(|error| SwapError::io("look at", path, error, ""))?;
    check_file_system(path, &opened)
}

fn check_file_system(path: &Path, file: &File) -> Result<(), SwapError> {
    let stat =
        fstatfs(file).map_err(|error| SwapError::io("look at the file system of", path, error.into(), ""))?;
    let kind = stat.f_type.cast_unsigned();
    match UNFIT.iter().find(|(unfit, _)| *unfit == kind) {
        Some((_, file_system)) => Err(SwapError::FileSystem { path: path.to_owned(), file_system }),
        None => Ok(()),
    }
}

/// A block of the file system that is not there would be a page that cannot be written.
fn check_space(path: &Path, file: &File) -> Result<(), SwapError> {
    let meta = file.metadata().map_err(|error| SwapError::io("look at", path, error, ""))?;
    let (bytes, on_disk_bytes) = (meta.len(), meta.blocks().saturating_mul(512));
    if on_disk_bytes < bytes {
        Err(SwapError::Holes { path: path.to_owned(), bytes, on_disk_bytes })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn fresh(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tiermem-swapfile-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_header_is_what_mkswap_writes() {
        let path = fresh("header");
        let uuid = std::array::from_fn(|at| at as u8 + 1);
        let made = make_file(&path, (1 << 20) + 5, uuid, "tiermem");
        if let Err(error @ SwapError::FileSystem { .. }) = &made {
            return eprintln!("not run: {error}");
        }
        made.unwrap();
        check_file(&path).unwrap();
        assert_eq!(label_of(&path).as_deref(), Some("tiermem"));
        check_place(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), std::fs::metadata(&path).unwrap().mode() & 0o777), (1 << 20, 0o600));
        // Read apart by offsets of `union swap_header` (linux/swap.h).
        assert_eq!(bytes[1024..1036], [1, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[1036..1052], uuid);
        assert_eq!(&bytes[1052..1068], b"tiermem\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[4086..4096], b"SWAPSPACE2");
        assert!(make_file(&path, 1 << 20, uuid, "").unwrap_err().to_string().contains("another name"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_could_not_be_swapped_to_is_refused_with_what_would_do() {
        let path = fresh("refused");
        let text = |error: SwapError| error.to_string();
        assert!(text(make_file(&path, 4096, [0; 16], "").unwrap_err()).contains("too few"));
        assert!(text(make_file(&path, 1 << 20, [0; 16], "seventeen letters").unwrap_err()).contains("label"));
        assert!(text(make_file(&path, u64::MAX, [0; 16], "").unwrap_err()).contains("2^32 pages"));
        assert!(!path.exists());
        // No disk has this size; the unfinished file is gone.
        assert!(make_file(&path, 1 << 43, [0; 16], "").is_err() && !path.exists());

        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        file.sync_all().unwrap();
        if let Err(error @ SwapError::FileSystem { .. }) = check_file(&path) {
            std::fs::remove_file(&path).unwrap();
            return eprintln!("not run: {error}");
        }
        assert!(text(check_file(&path).unwrap_err()).contains("no swap header"));
        assert_eq!(label_of(&path), None);
        file.set_len(1 << 30).unwrap();
        assert!(matches!(check_file(&path), Err(SwapError::Holes { bytes: 0x4000_0000, .. })));
        file.set_len(0).unwrap();
        assert!(text(check_file(&path).unwrap_err()).contains("too short"));
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(text(check_file(&path).unwrap_err()).contains("chmod 600"));
        std::fs::remove_file(&path).unwrap();
        assert!(text(check_file(Path::new("/dev/null")).unwrap_err()).contains("neither"));
        let memory = Path::new("/dev/shm/tiermem-swapfile");
        if let Err(error) = make_file(memory, 1 << 20, [0; 16], "") {
            assert!(!memory.exists(), "{error}");
        } else {
            std::fs::remove_file(memory).unwrap();
        }
    }
}
