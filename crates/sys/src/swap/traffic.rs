//! Traffic of swap: how many pages the machine has read from it and written to it.

use std::fs;
use std::io;

/// Pages since the machine was started, of all areas and for all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapTraffic {
    /// Read from swap.
    pub read_pages: u64,
    /// Written to it.
    pub written_pages: u64,
}

/// What the machine has read and written so far.
///
/// # Errors
/// If `/proc/vmstat` does not tell.
pub fn traffic() -> io::Result<SwapTraffic> {
    parse(&fs::read_to_string("/proc/vmstat")?).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn parse(text: &str) -> Option<SwapTraffic> {
    let get = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok())
    };
    Some(SwapTraffic { read_pages: get("pswpin")?, written_pages: get("pswpout")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_name() {
        let text = "pgpgin 5\npswpin 7\npswpout 9\n";
        assert_eq!(parse(text), Some(SwapTraffic { read_pages: 7, written_pages: 9 }));
        assert_eq!(parse("pswpin 7\n"), None);
    }
}
