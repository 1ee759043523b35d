//! Build-id of a program or a library: the identifier that its linker wrote, which distinguishes builds.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

/// Program headers of a file; more than real ones have.
const HEADERS_MAX: u16 = 256;
/// Bytes of notes that are looked at.
const NOTES_BYTES_MAX: u64 = 1 << 16;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const SEGMENT_NOTE: u32 = 4;
const NOTE_BUILD_ID: u32 = 3;

/// The build-id of the file at `path`, in hexadecimal; `None` if the file does not exist, or has none.
pub(super) fn of_path(path: Option<&str>) -> Option<String> {
    let path = path.filter(|path| path.starts_with('/'))?;
    // A mapped file may be a device or a pipe by now, which must not be waited for.
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    of_file(&File::open(path).ok()?)
}

/// The build-id of a 64-bit ELF file of this machine's byte order.
fn of_file(mut file: &File) -> Option<String> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    if !header.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let table = u64_at(&header, 32)?;
    let count = u16::from_ne_bytes(header.get(56..58)?.try_into().ok()?).min(HEADERS_MAX);
    (0..u64::from(count)).find_map(|number| {
        let mut segment = [0; PROGRAM_HEADER_BYTES];
        let at = table.checked_add(number * PROGRAM_HEADER_BYTES as u64)?;
        file.read_exact_at(&mut segment, at).ok()?;
        if u32_at(&segment, 0)? != SEGMENT_NOTE {
            return None;
        }
        let (offset, bytes) = (u64_at(&segment, 8)?, u64_at(&segment, 32)?.min(NOTES_BYTES_MAX));
        let mut notes = vec![0; usize::try_from(bytes).ok()?];
        file.read_exact_at(&mut notes, offset).ok()?;
        in_notes(&notes)
    })
}

fn in_notes(mut notes: &[u8]) -> Option<String> {
    loop {
        let (name, description) = (u32_at(notes, 0)? as usize, u32_at(notes, 4)? as usize);
        let kind = u32_at(notes, 8)?;
        let name_end = 12_usize.checked_add(name)?;
        let from = name_end.checked_next_multiple_of(4)?;
        let to = from.checked_add(description)?;
        if kind == NOTE_BUILD_ID && notes.get(12..name_end)? == b"GNU\0" {
            return Some(notes.get(from..to)?.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(to.checked_next_multiple_of(4)?..)?;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_one_and_other_files_do_not() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps
            .lines()
            .find_map(|line| line.split_whitespace().nth(5).filter(|path| path.contains("libc.so")));
        if let Some(id) = of_path(libc) {
            assert!(id.len() >= 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        }
        for other in
            [None, Some("/proc/self/maps"), Some("/dev/zero"), Some("relative"), Some("/no/such/file")]
        {
            assert_eq!(of_path(other), None, "{other:?}");
        }
    }

    #[test]
    fn notes_that_lie_about_their_length_are_none() {
        for notes in [&[0xff; 40][..], &[4, 0, 0, 0, 200, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0], &[]] {
            assert_eq!(in_notes(notes), None);
        }
        let note = [4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 0xAB, 0xCD];
        assert_eq!(in_notes(&note).as_deref(), Some("abcd"));
    }
}
