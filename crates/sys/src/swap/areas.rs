//! Swap areas of the machine, from `/proc/swaps`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::proc_text::unescaped;

/// A file or device that the machine swaps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapArea {
    /// The file, as it was named when it was turned on. A file that has been deleted since has ` (deleted)` behind its name.
    pub path: PathBuf,
    /// Whether it is a block device.
    pub is_device: bool,
    /// Bytes that it holds.
    pub bytes: u64,
    /// Bytes of them that are taken.
    pub used_bytes: u64,
    /// Areas of higher priority are filled first. Below zero: none was set.
    pub priority: i32,
}

/// All areas that are on.
///
/// # Errors
/// If `/proc` does not tell, or a line is not what the kernel writes.
pub fn areas() -> io::Result<Vec<SwapArea>> {
    parse(&fs::read("/proc/swaps")?)
}

fn parse(text: &[u8]) -> io::Result<Vec<SwapArea>> {
    let lines = text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    let broken = |line: &[u8]| {
        let text =
            format!("/proc/swaps has a line that is none of an area: {:?}", String::from_utf8_lossy(line));
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    lines.map(|line| area(line).ok_or_else(|| broken(line))).collect()
}

/// `/swap\040file   file   1048572   0   -2`: sizes in KiB.
fn area(line: &[u8]) -> Option<SwapArea> {
    let mut fields = line.split(|byte| *byte == b' ' || *byte == b'\t').filter(|field| !field.is_empty());
    let path = PathBuf::from(OsString::from_vec(unescaped(fields.next()?)));
    let kind = fields.next()?;
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<i64>().ok();
    let kib = |number: i64| u64::try_from(number).ok()?.checked_mul(1024);
    let (bytes, used_bytes) = (kib(number()?)?, kib(number()?)?);
    let priority = i32::try_from(number()?).ok()?;
    Some(SwapArea { path, is_device: kind == b"partition", bytes, used_bytes, priority })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_read() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /my\\040swap\\134x                       file\t\t1024\t\t4\t\t32767\n\
                    /dev/zram0                              partition\t8\t\t0\t\t-2\n";
        let found = parse(text.as_bytes()).unwrap();
        let file = SwapArea {
            path: "/my swap\\x".into(),
            is_device: false,
            bytes: 1 << 20,
            used_bytes: 4096,
            priority: 32767,
        };
        assert_eq!(found[0], file);
        assert!(found[1].is_device && found[1].priority == -2 && found.len() == 2);
        assert!(parse(b"Filename\n").unwrap().is_empty() && parse(b"").unwrap().is_empty());
        assert!(parse(b"Filename\nx file many 0 1\n").unwrap_err().to_string().contains("many"));
        areas().unwrap();
    }
}
