//! Mappings of a process, from `/proc/PID/maps`.

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapLine {
    /// The first address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// Read, write, execute, private or shared: `rw-p`.
    pub permissions: String,
    /// Where in the file it starts.
    pub offset: u64,
    /// The file's device: `08:01`.
    pub device: String,
    /// The file's number there, 0 for memory that belongs to no file.
    pub inode: u64,
    /// The file, or what the kernel calls it, such as `[heap]`.
    pub path: Option<String>,
}

/// The kernel's mark behind the name of a deleted file.
const DELETED: &str = " (deleted)";

impl MapLine {
    /// The mapped file, whether it is still there or not.
    pub fn file(&self) -> Option<&str> {
        let path = self.path.as_deref().filter(|path| path.starts_with('/') && *path != "//anon")?;
        self.shared_name().is_none().then(|| path.strip_suffix(DELETED).unwrap_or(path))
    }

    /// What the kernel calls shared memory that is no file's: `/dev/zero` without a name of its own, `/SYSV` and the key for a
    /// segment of System V.
    pub fn shared_name(&self) -> Option<&str> {
        let name = self.path.as_deref()?.strip_suffix(DELETED)?;
        (name == "/dev/zero" || name.starts_with("/SYSV")).then_some(name)
    }

    /// The kernel's name for anonymous memory, without its brackets: `heap`, `stack`, `vdso`, `anon:name`.
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

    /// Whether it is memory of no file that this process alone has, until it forks; what the kernel maps into every process is not meant.
    pub fn is_private_memory(&self) -> bool {
        let is_the_kernels = matches!(self.kernel_name(), Some("vdso" | "vsyscall"))
            || self.kernel_name().is_some_and(|name| name.starts_with("vvar"));
        let is_of_a_file = self.inode != 0 || self.file().is_some() || self.shared_name().is_some();
        self.permissions.ends_with('p') && !is_of_a_file && !is_the_kernels
    }

    /// Whether both are of one file, or of the same memory that is no file's.
    pub fn is_same_thing(&self, other: &MapLine) -> bool {
        self.path == other.path && self.inode == other.inode && self.device == other.device
    }

    /// Whether a mapping that begins where this one ends is a continuation of it.
    pub fn goes_on_with(&self, next: &MapLine) -> bool {
        let in_order =
            next.file().is_none() || self.offset.wrapping_add(self.end - self.start) == next.offset;
        self.end == next.start && self.is_same_thing(next) && self.permissions == next.permissions && in_order
    }
}

/// Reads the text of `/proc/PID/maps`.
///
/// # Errors
/// The line that is none, and its number from 1 on.
pub fn parse(text: &str) -> Result<Vec<MapLine>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| {
            parse_line(line).ok_or_else(|| format!("line {} is none of /proc/PID/maps: {line}", number + 1))
        })
        .collect()
}

fn parse_line(line: &str) -> Option<MapLine> {
    // The path is the rest behind five words, and may have spaces in it.
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let permissions = words.next().filter(|word| word.len() == 4 && word.is_ascii())?.to_owned();
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let device = words.next().filter(|word| word.contains(':'))?.to_owned();
    let inode = words.next()?.parse().ok()?;
    let path = words.next().map(|rest| rest.trim_start_matches(' ')).filter(|path| !path.is_empty());
    (start < end).then(|| MapLine {
        start,
        end,
        permissions,
        offset,
        device,
        inode,
        path: path.map(unescaped),
    })
}

/// The kernel writes a line's end in a path as `\012`, and nothing else that way.
fn unescaped(path: &str) -> String {
    path.replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read_with_all_that_a_path_may_have() {
        let text = "55d0c0000000-55d0c0001000 r-xp 00002000 fe:01 1234                       /tmp/a  b (deleted)\n\
                    7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 \n";
        let lines = parse(text).unwrap();
        assert_eq!(lines[0].path.as_deref(), Some("/tmp/a  b (deleted)"));
        assert_eq!((lines[0].start, lines[0].offset, lines[0].inode), (0x55d0_c000_0000, 0x2000, 1234));
        assert_eq!((lines[1].path.as_deref(), lines[2].path.as_deref()), (Some("[stack]"), None));
        assert!(lines[1].is_private_memory() && !lines[0].is_private_memory());
        let is_private = |line: &str| parse(line).unwrap()[0].is_private_memory();
        assert!(
            is_private("1000-2000 rw-p 00000000 00:00 0")
                && !is_private("1000-2000 rw-s 00000000 00:01 7 /dev/zero (deleted)")
        );
        assert!(
            !is_private("1000-2000 r-xp 00000000 00:00 0 [vdso]")
                && !is_private("1000-2000 r--p 00000000 00:00 0 [vvar_vclock]")
        );
        let own = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(parse(&own).unwrap().len() > 5);
    }

    #[test]
    fn what_is_no_line_is_named() {
        for wrong in ["hello", "10-5 rw-p 0 0:0 0", "1-2 rw 0 0:0 0", "1-2 rw-p x 0:0 0", "1-2 rw-p 0 0:0"] {
            let error = parse(&format!("1000-2000 rw-p 0 00:00 0\n{wrong}\n")).unwrap_err();
            assert!(error.starts_with("line 2") && error.contains(wrong), "{error}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_an_error_and_no_panic(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
