//! Where an access was answered, as perf says it: the bits of the kernel's `perf_mem_data_src`, and the text that perf makes of
//! them.
//!
//! Both are read the same way. A memory that is named counts as the answer: another node's memory or cache, CXL memory and
//! persistent memory as remote, and the node's own as local. A cache that is named counts unless it is said to have been
//! missed, since then nothing says who answered. A cache of another core of the same node is a cache.

use tiermem_base::Op;
use tiermem_trace::recording::Level;

/// The bits that perf uses; those above are always zero.
pub(super) const BITS: u32 = 46;

const OP_LOAD: u64 = 0x02;
const OP_STORE: u64 = 0x04;
const OP_PREFETCH: u64 = 0x08;
const OP_EXEC: u64 = 0x10;

/// Places of the older field, one bit each.
const LEVEL_SHIFT: u32 = 5;
const LEVEL_MISS: u64 = 0x04;
/// L1, line fill buffer, L2, L3.
const LEVEL_CACHES: u64 = 0x78;
const LEVEL_LOCAL: u64 = 0x80;
/// Memory and caches one and two hops away.
const LEVEL_REMOTE: u64 = 0xf00;

/// The newer field, a number.
const NUMBER_SHIFT: u32 = 33;
const REMOTE_SHIFT: u32 = 37;
const HOPS_SHIFT: u32 = 43;
/// Another core of the same node.
const HOPS_SAME_NODE: u64 = 1;

/// What a data source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// `None` if it is not said. A prefetch and a fetch of instructions are loads.
    pub op: Option<Op>,
    /// Where it was answered.
    pub level: Level,
}

/// Reads the bits.
pub(super) fn of_bits(bits: u64) -> Source {
    let op = match bits & 0x1f {
        op if op & OP_STORE != 0 => Some(Op::Store),
        op if op & (OP_LOAD | OP_PREFETCH | OP_EXEC) != 0 => Some(Op::Load),
        _ => None,
    };
    let places = bits >> LEVEL_SHIFT & 0x3fff;
    let is_miss = places & LEVEL_MISS != 0;
    let hops = bits >> HOPS_SHIFT & 7;
    let is_remote = (bits >> REMOTE_SHIFT & 1 != 0 || hops > HOPS_SAME_NODE) && hops != HOPS_SAME_NODE;
    let (mut remote, mut local) = (places & LEVEL_REMOTE != 0, places & LEVEL_LOCAL != 0);
    let mut cache = places & LEVEL_CACHES != 0;
    match bits >> NUMBER_SHIFT & 0xf {
        // L1 to L4, the buffer of L2, a cache before memory, any cache, line fill buffer.
        1..=6 | 0xb | 0xc if is_remote => remote |= !is_miss,
        1..=6 | 0xb | 0xc => cache = true,
        // CXL, persistent memory.
        0x9 | 0xe => remote = true,
        // RAM.
        0xd if is_remote => remote = true,
        0xd => local = true,
        _ => {}
    }
    Source { op, level: level(remote, local, cache && !is_miss) }
}

fn level(remote: bool, local: bool, cache: bool) -> Level {
    match () {
        () if remote => Level::Remote,
        () if local => Level::Local,
        () if cache => Level::Cache,
        () => Level::Unknown,
    }
}

/// Reads what stands between `|OP ` and the end of the decoded text: `LOAD|LVL L1 hit|SNP None`.
pub(super) fn of_text(text: &[u8]) -> Source {
    let mut fields = text.split(|byte| *byte == b'|');
    let op = match fields.next().unwrap_or_default() {
        op if has(op, b"STORE") => Some(Op::Store),
        op if [&b"LOAD"[..], b"PFETCH", b"EXEC"].iter().any(|name| has(op, name)) => Some(Op::Load),
        _ => None,
    };
    let level_text = fields.find_map(|field| field.strip_prefix(b"LVL ")).unwrap_or_default();
    Source { op, level: of_level_text(level_text) }
}

fn of_level_text(text: &[u8]) -> Level {
    let is_miss = has(text, b"miss");
    let mut places = [false; 3];
    for place in split_or(text) {
        let place = place.trim_ascii();
        let is_remote = place.starts_with(b"Remote") && !has(place, b"core, same node");
        let is_ram = has(place, b"RAM");
        let is_cache = !has(place, b"Uncached")
            && [&b"L1"[..], b"L2", b"L3", b"L4", b"LFB", b"MAB", b"Cache", b"cache"]
                .iter()
                .any(|name| has(place, name));
        if has(place, b"CXL") || has(place, b"PMEM") || (is_remote && is_ram) {
            places[0] = true;
        } else if is_ram {
            places[1] = true;
        } else if is_remote && is_cache {
            // `Remote Cache (1 hop)` is a place of its own; in `Remote L3` the word only says where that L3 is.
            places[0] |= !is_miss || has(place, b"hop");
        } else {
            places[2] |= is_cache;
        }
    }
    level(places[0], places[1], places[2] && !is_miss)
}

fn split_or(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = memchr::memmem::find(text, b" or ");
        rest = at.map(|at| &text[at + 4..]);
        Some(&text[..at.unwrap_or(text.len())])
    })
}

fn has(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What perf 6.1 makes of these bits, and what it means.
    const KNOWN: [(u64, &str, Option<Op>, Level); 14] = [
        (0x6810_0142, "LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No", Some(Op::Load), Level::Cache),
        (0x2_6810_0144, "STORE|LVL L1 hit|SNP None", Some(Op::Store), Level::Cache),
        (0x2_6810_0184, "STORE|LVL L1 miss|SNP None", Some(Op::Store), Level::Unknown),
        (0x1a_6810_1042, "LOAD|LVL Local RAM or RAM hit|SNP None", Some(Op::Load), Level::Local),
        (0x3a_6810_2042, "LOAD|LVL Remote RAM (1 hop) or Remote RAM hit|SNP", Some(Op::Load), Level::Remote),
        (0x10_8042, "LOAD|LVL Remote Cache (1 hop) hit|SNP None", Some(Op::Load), Level::Remote),
        (0x18_6810_0242, "LOAD|LVL LFB or LFB/MAB hit|SNP None", Some(Op::Load), Level::Cache),
        (0x1e_0508_0021, "N/A|LVL N/A or N/A|SNP N/A|TLB N/A", None, Level::Unknown),
        (0x12_0000_0042, "LOAD|LVL CXL hit|SNP None", Some(Op::Load), Level::Remote),
        (0x1c_0000_0042, "LOAD|LVL PMEM hit|SNP None", Some(Op::Load), Level::Remote),
        (0x836_0000_0042, "LOAD|LVL Remote core, same node Any cache hit|SNP", Some(Op::Load), Level::Cache),
        (
            0x1036_0000_0042,
            "LOAD|LVL Remote node, same socket Any cache hit|SNP",
            Some(Op::Load),
            Level::Remote,
        ),
        (0x2_0042, "LOAD|LVL I/O hit|SNP None", Some(Op::Load), Level::Unknown),
        (0x6_0000_0882, "LOAD|LVL L3 or L3 miss|SNP None", Some(Op::Load), Level::Unknown),
    ];

    #[test]
    fn bits_and_text_say_the_same() {
        for (bits, text, op, level) in KNOWN {
            let wanted = Source { op, level };
            assert_eq!(of_bits(bits), wanted, "{bits:x}");
            assert_eq!(of_text(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn text_that_was_cut_or_makes_no_sense_says_nothing() {
        for text in ["", "LOAD", "LOA", "LOAD|LV", "|LVL hit", "|LVL Uncached hit"] {
            assert_eq!(of_text(text.as_bytes()).level, Level::Unknown, "{text}");
        }
        for bits in 0..1 << 20 {
            of_bits(bits << 26 | bits);
        }
    }
}
