//! Sizes of the processor's caches.

use std::fs;
use std::path::Path;

/// Bytes of the last cache before memory, as a processor sees it; none if the kernel does not tell. A virtual machine may be
/// told of a whole socket's, of which it has a part.
pub fn last_level_bytes(cpu: u32) -> Option<u64> {
    last_level_below(Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}/cache")))
}

fn last_level_below(root: &Path) -> Option<u64> {
    let mut last = None;
    for entry in fs::read_dir(root).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let level = read("level").and_then(|text| text.trim().parse::<u32>().ok());
        let bytes = read("size").and_then(|text| bytes(text.trim()));
        if let (Some(level), Some(bytes)) = (level, bytes) {
            last = last.max(Some((level, bytes)));
        }
    }
    last.map(|(_, bytes)| bytes)
}

/// `32K` or `8M`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix('M') {
        Some(number) => (number, 1 << 20),
        None => (text.strip_suffix('K')?, 1 << 10),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_level_is_the_highest() {
        let root = std::env::temp_dir().join(format!("tiermem-caches-{}", std::process::id()));
        for (index, level, size) in [(0, "1\n", "48K\n"), (1, "3\n", "32M\n"), (2, "2\n", "2048K\n")] {
            let folder = root.join(format!("index{index}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("level"), level).unwrap();
            fs::write(folder.join("size"), size).unwrap();
        }
        assert_eq!(last_level_below(&root), Some(32 << 20));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(last_level_below(&root), None);
        assert_eq!(bytes("x"), None);
    }
}
