//! Data source of a sampled access: `perf_mem_data_src`, as a number and in the words of `perf script`.
//!
//! The bits are those of `union perf_mem_data_src` in the kernel's `linux/perf_event.h` (6.17): operation 0-4, level
//! 5-18, number of the level 33-36, remote 37, hops 43-45. Processors older than Skylake, and kernels before 4.14,
//! fill in the level alone; the number is the newer form and says more where it is present (CXL, persistent memory).

use tiermem_base::Op;
use tiermem_trace::recording::Level;

/// What answered an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Answer {
    /// Not said, or several at once.
    #[default]
    Unknown,
    L1,
    L2,
    L3,
    /// A cache of which no more is said, L4, or that of another core of the node.
    OtherCache,
    /// A buffer for a line that was on its way already (Intel: LFB, AMD: MAB, newer Intel cores: L1 and L2 MHB).
    FillBuffer,
    LocalRam,
    /// A cache in front of the memory, on its side of the interconnect.
    MemorySideCache,
    RemoteRam,
    RemoteCache,
    Cxl,
    PersistentMemory,
    /// Memory that is not cached, or a device.
    Uncached,
    /// Not the level that is named; what else is not said.
    Miss,
}

impl Answer {
    /// All of them, at the index of their code.
    pub const ALL: [Answer; 14] = [
        Answer::Unknown,
        Answer::L1,
        Answer::L2,
        Answer::L3,
        Answer::OtherCache,
        Answer::FillBuffer,
        Answer::LocalRam,
        Answer::MemorySideCache,
        Answer::RemoteRam,
        Answer::RemoteCache,
        Answer::Cxl,
        Answer::PersistentMemory,
        Answer::Uncached,
        Answer::Miss,
    ];

    /// As perf names it.
    pub fn name(self) -> &'static str {
        match self {
            Answer::Unknown => "unknown",
            Answer::L1 => "L1",
            Answer::L2 => "L2",
            Answer::L3 => "L3",
            Answer::OtherCache => "other cache",
            Answer::FillBuffer => "LFB/MAB",
            Answer::LocalRam => "local RAM",
            Answer::MemorySideCache => "memory-side cache",
            Answer::RemoteRam => "remote RAM",
            Answer::RemoteCache => "remote cache",
            Answer::Cxl => "CXL",
            Answer::PersistentMemory => "PMEM",
            Answer::Uncached => "uncached or I/O",
            Answer::Miss => "miss",
        }
    }

    /// The level as counted in recordings.
    ///
    /// A fill buffer counts as cache: an earlier access or a prefetch had already requested the line,
    /// so this access moved no line of its own, and the line's origin is not reported. Persistent
    /// memory is a node without processors, as CXL memory is, so both are remote. A memory-side cache
    /// counts as the memory. A miss is known to have gone further, and not how far: it is unknown.
    pub fn level(self) -> Level {
        match self {
            Answer::Unknown | Answer::Uncached | Answer::Miss => Level::Unknown,
            Answer::L1 | Answer::L2 | Answer::L3 | Answer::OtherCache | Answer::FillBuffer => Level::Cache,
            Answer::LocalRam | Answer::MemorySideCache => Level::Local,
            Answer::RemoteRam | Answer::RemoteCache | Answer::Cxl | Answer::PersistentMemory => Level::Remote,
        }
    }
}

// Bits of the operation.
const OP_LOAD: u64 = 0x02;
const OP_STORE: u64 = 0x04;
/// A prefetch, and an instruction's fetch: both read.
const OP_OTHER_READS: u64 = 0x08 | 0x10;

// Bits of the level.
const LVL_SHIFT: u32 = 5;
const LVL_MISS: u64 = 0x04;
const LVL_L1: u64 = 0x08;
const LVL_LFB: u64 = 0x10;
const LVL_L2: u64 = 0x20;
const LVL_L3: u64 = 0x40;
const LVL_LOCAL_RAM: u64 = 0x80;
const LVL_REMOTE_RAM: u64 = 0x100 | 0x200;
const LVL_REMOTE_CACHE: u64 = 0x400 | 0x800;
const LVL_UNCACHED: u64 = 0x1000 | 0x2000;
/// All that name a level.
const LVL_NAMED: u64 = 0x3ff8;

/// Hops that lead to another core of the same node, so that the node's memory and caches are local.
const HOPS_SAME_NODE: u64 = 1;

/// The operation, if it is said, and what answered.
pub(super) fn decode(bits: u64) -> (Option<Op>, Answer) {
    let op = match bits & 0x1f {
        op if op & (OP_LOAD | OP_OTHER_READS) != 0 => Some(Op::Load),
        op if op & OP_STORE != 0 => Some(Op::Store),
        _ => None,
    };
    let level = bits >> LVL_SHIFT & 0x3fff;
    let (number, hops) = (bits >> 33 & 0xf, bits >> 43 & 0x7);
    let is_remote = if hops == HOPS_SAME_NODE {
        false
    } else {
        hops > 0 || bits >> 37 & 1 == 1 || level & (LVL_REMOTE_RAM | LVL_REMOTE_CACHE) != 0
    };
    if level & LVL_MISS != 0 {
        return (op, Answer::Miss);
    }
    let answer = match number {
        // 7 is L0, a cache before L1.
        1 | 7 => Answer::L1,
        2 => Answer::L2,
        3 => Answer::L3,
        4 | 0xb => Answer::OtherCache,
        5 | 0xc => Answer::FillBuffer,
        6 => Answer::MemorySideCache,
        8 | 0xa => Answer::Uncached,
        9 => Answer::Cxl,
        0xd => Answer::LocalRam,
        0xe => Answer::PersistentMemory,
        _ => of_level(level),
    };
    (op, if is_remote { elsewhere(answer) } else { answer })
}

/// The answer according to the level's bits alone.
fn of_level(level: u64) -> Answer {
    match level & LVL_NAMED {
        0 => Answer::Unknown,
        LVL_L1 => Answer::L1,
        LVL_L2 => Answer::L2,
        LVL_L3 => Answer::L3,
        // A line that was found on its way to L1 may have both bits.
        bits if bits & !(LVL_L1 | LVL_LFB) == 0 => Answer::FillBuffer,
        LVL_LOCAL_RAM => Answer::LocalRam,
        bits if bits & !LVL_REMOTE_RAM == 0 => Answer::RemoteRam,
        bits if bits & !LVL_REMOTE_CACHE == 0 => Answer::RemoteCache,
        bits if bits & !LVL_UNCACHED == 0 => Answer::Uncached,
        bits if bits & !(LVL_L1 | LVL_LFB | LVL_L2 | LVL_L3) == 0 => Answer::OtherCache,
        _ => Answer::Unknown,
    }
}

/// The same of another node.
fn elsewhere(answer: Answer) -> Answer {
    match answer {
        Answer::LocalRam | Answer::MemorySideCache => Answer::RemoteRam,
        Answer::L1 | Answer::L2 | Answer::L3 | Answer::OtherCache | Answer::FillBuffer => Answer::RemoteCache,
        answer => answer,
    }
}

/// The operation and answer from the words of `perf script`, from `|OP ` on: `|OP LOAD|LVL L1
/// hit|SNP None|...`. For versions of perf that print no number before them; perf truncates
/// long texts, which leaves these two fields whole. `None` if it is not such a text.
pub(super) fn decode_words(text: &[u8]) -> Option<(Option<Op>, Answer)> {
    let rest = text.strip_prefix(b"|OP ")?;
    let (op, rest) = rest.split_at(memchr::memchr(b'|', rest)?);
    let op = match op {
        b"LOAD" | b"PFETCH" | b"EXEC" => Some(Op::Load),
        b"STORE" => Some(Op::Store),
        b"N/A" | b"No" => None,
        _ => return None,
    };
    let rest = rest.strip_prefix(b"|LVL ")?;
    let level = &rest[..memchr::memchr(b'|', rest)?];
    Some((op, answer_of_words(level.trim_ascii())?))
}

/// `L1 or L1 hit`, `Remote RAM (1 hop) hit`, `Remote core, same node Any cache hit`, `L3 miss`, `N/A`.
fn answer_of_words(text: &[u8]) -> Option<Answer> {
    let mut text = text;
    let is_miss = text.ends_with(b" miss");
    text = text.strip_suffix(b" miss").or(text.strip_suffix(b" hit")).unwrap_or(text);
    let mut is_remote = false;
    if let Some(rest) = text.strip_prefix(b"Remote core, same node ") {
        text = rest;
    } else {
        const FAR: [&[u8]; 3] =
            [b"Remote node, same socket ", b"Remote socket, same board ", b"Remote board "];
        let far = FAR.iter().find_map(|far| text.strip_prefix(*far));
        let remote = far.or_else(|| text.strip_prefix(b"Remote "));
        // `Remote RAM` and `Remote Cache (1 hop)` are names of their own as well; `Remote Remote RAM (1 hop)` is both.
        is_remote = remote.is_some();
        text = remote.unwrap_or(text);
    }
    if is_miss {
        return Some(Answer::Miss);
    }
    let mut answer: Option<Answer> = None;
    let mut rest = text;
    while !rest.is_empty() {
        let at = memchr::memmem::find(rest, b" or ");
        let (word, behind) = at.map_or((rest, &b""[..]), |at| (&rest[..at], &rest[at + 4..]));
        let (found, far) = one_answer(word)?;
        is_remote |= far;
        answer = Some(match answer {
            // The number stands last and says most.
            Some(before) if found == Answer::Unknown => before,
            _ => found,
        });
        rest = behind;
    }
    let answer = answer.unwrap_or_default();
    Some(if is_remote { elsewhere(answer) } else { answer })
}

fn one_answer(word: &[u8]) -> Option<(Answer, bool)> {
    let (word, far) = match word.strip_prefix(b"Remote ") {
        Some(rest) => (rest, true),
        None => (word, false),
    };
    let word = word.strip_suffix(b" (1 hop)").or(word.strip_suffix(b" (2 hops)")).unwrap_or(word);
    let answer = match word {
        b"L0" | b"L1" | b"L7" => Answer::L1,
        b"L2" => Answer::L2,
        b"L3" => Answer::L3,
        b"L4" | b"Any cache" | b"Cache" => Answer::OtherCache,
        b"LFB" | b"LFB/MAB" | b"L1 MHB" | b"L2 MHB" | b"L5" => Answer::FillBuffer,
        b"Memory-side Cache" | b"L6" => Answer::MemorySideCache,
        b"RAM" | b"Local RAM" => Answer::LocalRam,
        b"PMEM" => Answer::PersistentMemory,
        b"CXL" => Answer::Cxl,
        b"Uncached" | b"I/O" => Answer::Uncached,
        b"N/A" => Answer::Unknown,
        _ => return None,
    };
    Some((answer, far))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_indices() {
        assert!(Answer::ALL.iter().enumerate().all(|(at, answer)| *answer as usize == at));
    }

    /// Values that kernels compose for known processors.
    #[test]
    fn what_processors_say() {
        for (bits, op, answer) in [
            (0x6810_0142, Some(Op::Load), Answer::L1),
            (0x6810_0842, Some(Op::Load), Answer::L3),
            (0x2_6810_0142, Some(Op::Load), Answer::L1),
            (0x18_6810_0242, Some(Op::Load), Answer::FillBuffer),
            (0x1a_6810_1042, Some(Op::Load), Answer::LocalRam),
            (0x3a_6810_2042, Some(Op::Load), Answer::RemoteRam),
            (0x6810_0144, Some(Op::Store), Answer::L1),
            (0x6810_0184, Some(Op::Store), Answer::Miss),
            (0x1e_0508_0021, None, Answer::Unknown),
            (0x20 << 5 | 0x10 << 5 | 2, Some(Op::Load), Answer::OtherCache),
            (0x18 << 5 | 2, Some(Op::Load), Answer::FillBuffer),
            (0xc0 << 5 | 2, Some(Op::Load), Answer::Unknown),
            (6 << 33 | 2, Some(Op::Load), Answer::MemorySideCache),
            (6 << 33 | 1 << 37 | 2, Some(Op::Load), Answer::RemoteRam),
        ] {
            assert_eq!(decode(bits), (op, answer), "{bits:x}");
        }
        assert_eq!(decode(u64::MAX).1, Answer::Miss);
    }

    #[test]
    fn words_of_older_and_newer_versions() {
        for (words, answer) in [
            ("L1 hit", Answer::L1),
            ("LFB hit", Answer::FillBuffer),
            ("LFB/MAB or LFB/MAB hit", Answer::FillBuffer),
            ("L2 MHB hit", Answer::FillBuffer),
            ("L3 or L3 hit", Answer::L3),
            ("L3 miss", Answer::Miss),
            ("Local RAM hit", Answer::LocalRam),
            ("Local RAM or RAM hit", Answer::LocalRam),
            ("Remote RAM (1 hop) hit", Answer::RemoteRam),
            ("Remote RAM (2 hops) hit", Answer::RemoteRam),
            ("Remote RAM hit", Answer::RemoteRam),
            ("Remote Remote RAM (1 hop) or RAM hit", Answer::RemoteRam),
            ("Remote Cache (1 hop) hit", Answer::RemoteCache),
            ("Remote core, same node Any cache hit", Answer::OtherCache),
            ("Remote node, same socket Any cache hit", Answer::RemoteCache),
            ("Remote board RAM hit", Answer::RemoteRam),
            ("Remote L1 hit", Answer::RemoteCache),
            ("RAM ", Answer::LocalRam),
            ("PMEM hit", Answer::PersistentMemory),
            ("CXL hit", Answer::Cxl),
            ("Remote CXL hit", Answer::Cxl),
            ("Uncached hit", Answer::Uncached),
            ("I/O hit", Answer::Uncached),
            ("N/A or N/A", Answer::Unknown),
            ("N/A", Answer::Unknown),
            ("", Answer::Unknown),
        ] {
            let text = format!("|OP LOAD|LVL {words}|SNP None");
            assert_eq!(decode_words(text.as_bytes()), Some((Some(Op::Load), answer)), "{words}");
        }
        for text in [
            "|OP LOAD",
            "|OP LOAD|LVL L1",
            "|OP JUMP|LVL L1 hit|",
            "|OP LOAD|LVL Moon hit|",
            "|OP LOAD|SNP x|",
        ] {
            assert_eq!(decode_words(text.as_bytes()), None, "{text}");
        }
    }
}
