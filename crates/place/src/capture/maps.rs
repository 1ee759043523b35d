//! `/proc/PID/maps`: what a process has mapped where.
//!
//! ```text
//! 7ff2ce081000-7ff2ce0b6000 r-xp 00002000 fe:00 325835                     /usr/lib/libc.so.6
//! ```
//!
//! The form is described in proc_pid_maps(5). A path is whatever stands behind the inode: it may hold blanks, and a line
//! break in it stands there as `\012`.

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapLine {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// `rw-p`: readable, writable, executable, private or shared.
    pub permissions: String,
    /// Where in the file it starts, in bytes.
    pub offset: u64,
    /// The device of the file, `fe:00`.
    pub device: String,
    /// The inode of the file; 0 if there is none.
    pub inode: u64,
    /// What is mapped, as it stands there: a file (` (deleted)` behind it if it has gone since), `[heap]`, `[stack]`,
    /// `[anon:name]`; `None` for memory without a name.
    pub path: Option<String>,
}

/// What the kernel writes behind the name of a file that is no longer there.
const DELETED: &str = " (deleted)";

impl MapLine {
    /// The mapped file, whether it is still there or not.
    pub fn file(&self) -> Option<&str> {
        let path = self.path.as_deref().filter(|path| path.starts_with('/') && *path != "//anon")?;
        Some(path.strip_suffix(DELETED).unwrap_or(path))
    }

    /// What the kernel calls memory that is no file's, without its brackets: `heap`, `stack`, `vdso`, `anon:name`.
    pub fn kernel_name(&self) -> Option<&str> {
        self.path.as_deref()?.strip_prefix('[')?.strip_suffix(']')
    }

    /// Whether a program's code lies in it.
    pub fn is_code(&self) -> bool {
        self.permissions.as_bytes().get(2) == Some(&b'x')
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.permissions.as_bytes().get(1) == Some(&b'w')
    }
}

/// Why a text is not what `/proc/PID/maps` has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is none of /proc/PID/maps: {reason}")]
pub struct MapsError {
    /// The line, counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads all mappings in the order of the text. Empty lines are passed over.
///
/// # Errors
/// At the first line that is no mapping.
pub fn parse(text: &str) -> Result<Vec<MapLine>, MapsError> {
    let mut lines = Vec::new();
    // Not `lines()`: the kernel ends lines with `\n` alone, and a path may end with `\r`.
    for (number, line) in (1..).zip(text.split('\n')) {
        if !line.is_empty() {
            lines.push(parse_line(line).map_err(|reason| MapsError { line: number, reason })?);
        }
    }
    Ok(lines)
}

fn parse_line(line: &str) -> Result<MapLine, &'static str> {
    let (range, rest) = word(line).ok_or("it has no permissions")?;
    let (start, end) = range.split_once('-').ok_or("it does not begin with two addresses")?;
    let (start, end) = (hexadecimal(start), hexadecimal(end));
    let (start, end) = start.zip(end).ok_or("an address is no hexadecimal number")?;
    if end <= start {
        return Err("it ends before it starts");
    }
    let (permissions, rest) = word(rest).ok_or("it has no offset")?;
    if !is_permissions(permissions) {
        return Err("its permissions are not like rw-p");
    }
    let (offset, rest) = word(rest).ok_or("it has no device")?;
    let offset = hexadecimal(offset).ok_or("its offset is no hexadecimal number")?;
    let (device, rest) = word(rest).ok_or("it has no inode")?;
    if !device.split_once(':').is_some_and(|(a, b)| hexadecimal(a).is_some() && hexadecimal(b).is_some()) {
        return Err("its device is not like fe:00");
    }
    // The path begins in a fixed column behind blanks, and may itself begin with one only if it is longer than that.
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let inode = decimal(inode).ok_or("its inode is no number")?;
    let path = path.trim_start_matches(' ');
    Ok(MapLine {
        start,
        end,
        permissions: permissions.to_owned(),
        offset,
        device: device.to_owned(),
        inode,
        path: (!path.is_empty()).then(|| path.to_owned()),
    })
}

/// What stands before the first blank, and what behind it.
fn word(text: &str) -> Option<(&str, &str)> {
    text.split_once(' ')
}

fn is_permissions(text: &str) -> bool {
    let letters = [*b"r-", *b"w-", *b"x-", *b"ps"];
    text.len() == 4 && text.bytes().zip(letters).all(|(byte, either)| either.contains(&byte))
}

// `from_str_radix` and `parse` alone would take a sign.
fn hexadecimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_plain)
}

fn decimal(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55a4c8f1d000-55a4c8f3f000 rw-p 00000000 00:00 0                          [heap]
7f1d48000000-7f1d88000000 r--s 00001000 fe:01 4718594                    /srv/my models/a b.gguf
7f1d88021000-7f1d8c000000 ---p 00000000 00:00 0 
7f1d8d000000-7f1d8d002000 rw-s 00000000 00:05 1034                       /dev/shm/ring (deleted)
7f1d8d002000-7f1d8d003000 rw-p 00000000 00:00 0                          [anon:glibc: malloc]
7ffc35c2e000-7ffc35c4f000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn what_the_kernel_writes_is_read() {
        let lines = parse(TEXT).unwrap();
        assert_eq!(lines.len(), 7);
        let files: Vec<_> = lines.iter().map(|line| line.file()).collect();
        let ring = Some("/dev/shm/ring");
        assert_eq!(files, [None, Some("/srv/my models/a b.gguf"), None, ring, None, None, None]);
        let names: Vec<_> = lines.iter().filter_map(|line| line.kernel_name()).collect();
        assert_eq!(names, ["heap", "anon:glibc: malloc", "stack", "vsyscall"]);
        assert_eq!((lines[1].start, lines[1].end), (0x7f1d_4800_0000, 0x7f1d_8800_0000));
        assert_eq!((lines[1].offset, lines[1].inode, lines[1].device.as_str()), (0x1000, 4_718_594, "fe:01"));
        assert_eq!((lines[2].path.as_deref(), lines[2].permissions.as_str()), (None, "---p"));
        assert!(lines[6].is_code() && !lines[6].is_writable() && lines[0].is_writable());
    }

    #[test]
    fn this_process_is_read() {
        let lines = parse(&std::fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
        assert!(lines.iter().any(|line| line.kernel_name() == Some("stack")));
        assert!(lines.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (line, reason) in [
            ("hello", "it has no permissions"),
            ("hello world", "it does not begin with two addresses"),
            ("1000-zz00 rw-p 0 00:00 0", "an address is no hexadecimal number"),
            ("+1000-2000 rw-p 0 00:00 0", "an address is no hexadecimal number"),
            ("2000-1000 rw-p 0 00:00 0", "it ends before it starts"),
            ("1000-2000 rwxq 0 00:00 0", "its permissions are not like rw-p"),
            ("1000-2000 rw-p 0", "it has no device"),
            ("1000-2000 rw-p 0 0000 0", "its device is not like fe:00"),
            ("1000-2000 rw-p 0 00:00 x", "its inode is no number"),
            ("1000-2000 rw-p 0 00:00 ", "its inode is no number"),
        ] {
            let error = parse(&format!("{TEXT}{line}\n")).unwrap_err();
            assert_eq!(error, MapsError { line: 8, reason }, "{line}");
        }
    }

    proptest! {
        /// What is written as the kernel does is read as it was.
        #[test]
        fn any_mapping_is_read(
            start in 0u64..u64::MAX - 1, size in 1u64..1 << 40, offset: u64, inode: u64, flags in 0u8..16,
            major in 0u32..4096, minor in 0u32..1 << 20, path in "(|/[^\n]{0,60}|\\[[a-z: ]{1,20}\\])"
        ) {
            let end = start.saturating_add(size);
            let letter = |bit: u8, yes, no| if flags >> bit & 1 == 1 { yes } else { no };
            let permissions: String =
                [letter(0, 'r', '-'), letter(1, 'w', '-'), letter(2, 'x', '-'), letter(3, 's', 'p')].iter().collect();
            let device = format!("{major:02x}:{minor:02x}");
            let head = format!("{start:08x}-{end:08x} {permissions} {offset:08x} {device} {inode}");
            let text = if path.is_empty() { format!("{head} \n") } else { format!("{head:<72} {path}\n") };
            let line = MapLine {
                start, end, permissions, offset, device, inode, path: (!path.is_empty()).then_some(path),
            };
            prop_assert_eq!(parse(&text), Ok(vec![line]));
        }

        #[test]
        fn any_text_is_taken_or_refused(text in "[0-9a-fx: \n/rwps-]{0,200}") {
            let _ = parse(&text);
        }
    }
}
