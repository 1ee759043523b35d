//! Script lines of `perf script`, parsed from the data source to the left and to the right.
//!
//! ```text
//!   sh 31536/31536  4268.625640: cpu/mem-loads,ldlat=30/P:  7f3a00001100  1a68101042 |OP LOAD|LVL Local RAM or RAM hit|SNP \
//! None|TLB L1 or L2 hit|LCK No|BLK  N/A   250   7fa74c16c5c0 _IO_old_init (/usr/lib/libc.so.6)
//! ```
//!
//! perf prints fields in an order of its own, independent of the order behind `-F`: command, process/thread,
//! processor, time, period, event, address, data source, weight, further latencies, instruction, symbol, file. A
//! command may contain blanks, digits and colons, so the fields before the data source are read backwards. The data
//! source is a number with its meaning in words; where the number is missing (perf before 4.10) the words are read.

use tiermem_base::Op;
use tiermem_trace::recording::Mode;

use super::data_src::{decode, decode_words};
use super::line::{
    Mapped, Parsed, Reason, Seen, decimal, first_word, hexadecimal, last_word, mode_of, process, time_ns,
};
use crate::capture::mappings::maps::MapLine;

/// No program has code below: what is less is no instruction's address.
const IP_MIN: u64 = 1 << 16;
/// Further latencies that may stand between the weight and the instruction (`ins_lat`, `retire_lat`), of 16 bits each.
const LATENCIES_MAX: usize = 2;
const LATENCY_MAX: u64 = u16::MAX as u64;

/// Reads one line.
pub(super) fn parse(line: &[u8]) -> Result<Parsed, Reason> {
    // Call chains (`perf record -g`) follow their sample, each line behind a tab.
    if matches!(line, [] | [b'#' | b'\t', ..]) {
        return Ok(Parsed::Nothing);
    }
    match data_source(line) {
        Some(at) => sample(&line[..at], &line[at..]).map(Parsed::Sample),
        None => event(line),
    }
}

/// Where the words of the data source begin.
fn data_source(line: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'|', line).find(|at| line[*at..].starts_with(b"|OP "))
}

fn sample(before: &[u8], behind: &[u8]) -> Result<Seen, Reason> {
    const NO_ADDRESS: Reason = "there are no event and addr before data_src";
    let (rest, last) = last_word(before);
    if last.last() == Some(&b':') {
        return Err(NO_ADDRESS);
    }
    let (rest_before, middle) = last_word(rest);
    let (rest, event, address, bits) = if middle.last() == Some(&b':') {
        (rest_before, middle, last, None)
    } else {
        let (rest, event) = last_word(rest_before);
        (rest, event, middle, Some(hexadecimal(last).ok_or(NO_ADDRESS)?))
    };
    let event = event.strip_suffix(b":").filter(|event| !event.is_empty()).ok_or(NO_ADDRESS)?;
    let address = hexadecimal(address).ok_or("its addr is no hexadecimal number")?;
    let (pid, time_ns) = who_and_when(rest)?;

    let fields = fields(behind).ok_or("its data_src is cut short or of no known form")?;
    let (op, answer) = match bits {
        Some(bits) => decode(bits),
        None => decode_words(behind).ok_or("its data_src is of no known form")?,
    };
    let (cycles, ip) = latency_and_instruction(fields);
    let mode = mode_of_event(event).or(ip.map(mode_of)).unwrap_or_default();
    let op = op.unwrap_or(if is_store(event) { Op::Store } else { Op::Load });
    Ok(Seen { pid, time_ns, address, op, answer, mode, cycles })
}

/// The fields before the event: `sh 31536/31536 [001] 4268.625640: 250000`.
fn who_and_when(text: &[u8]) -> Result<(Option<u32>, Option<u64>), Reason> {
    const NO_PROCESS: Reason = "there are no process and thread before its event";
    let (mut rest, mut word) = last_word(text);
    let mut period = false;
    if decimal(word).is_some() {
        // The event's period, or the process where there is no time.
        let (further, before) = last_word(rest);
        if before.last() == Some(&b':') || before.first() == Some(&b'[') || is_pair(before) {
            (rest, word) = (further, before);
            period = true;
        } else if decimal(before).is_some() {
            return Err("it has no time, and two numbers that may be the process");
        }
    }
    let mut time = None;
    if let Some(digits) = word.strip_suffix(b":") {
        time = Some(time_ns(digits).ok_or("its time is not like 4268.624641")?);
        (rest, word) = last_word(rest);
    } else if !period && word.is_empty() {
        return Err(NO_PROCESS);
    }
    if word.first() == Some(&b'[') && word.last() == Some(&b']') {
        (_, word) = last_word(rest);
    }
    match memchr::memchr(b'/', word) {
        Some(at) => {
            let both = process(&word[..at]).zip(process(&word[at + 1..]));
            Ok((Some(both.ok_or(NO_PROCESS)?.0), time))
        }
        None => process(word).map(|_| (None, time)).ok_or(NO_PROCESS),
    }
}

fn is_pair(word: &[u8]) -> bool {
    memchr::memchr(b'/', word)
        .is_some_and(|at| decimal(&word[..at]).is_some() && decimal(&word[at + 1..]).is_some())
}

/// Whom an event is restricted to: the letters behind its last slash or colon, as in `cpu/mem-loads,ldlat=30/Pu`, `mem-loads:u`.
fn mode_of_event(event: &[u8]) -> Option<Mode> {
    let at = event.iter().rposition(|byte| matches!(byte, b'/' | b':'))?;
    let has = |letter| event[at..].contains(&letter);
    match (has(b'u'), has(b'k')) {
        (true, false) => Some(Mode::User),
        (false, true) => Some(Mode::Kernel),
        _ => None,
    }
}

fn is_store(event: &[u8]) -> bool {
    memchr::memmem::find(event, b"store").is_some()
}

/// The fields behind the data source's words, from their first number on; `None` if the words
/// are cut before the snoop's, which perf itself never does (it cuts at 99 characters).
fn fields(words: &[u8]) -> Option<&[u8]> {
    let level = 1 + memchr::memchr(b'|', words.get(1..)?)?;
    let snoop = level + 1 + memchr::memchr(b'|', &words[level + 1..])?;
    if !words[level..].starts_with(b"|LVL ") || !words[snoop..].starts_with(b"|SNP ") {
        return None;
    }
    // Words are one blank apart but for `|BLK  N/A`, columns are two or more: the weight is padded to 16 characters.
    let mut rest = &words[snoop..];
    while let Some(at) = memchr::memchr(b' ', rest) {
        let blanks = rest[at..].iter().position(|byte| *byte != b' ').unwrap_or(rest.len() - at);
        rest = &rest[at + blanks..];
        if blanks > 1 && rest.first().is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Some(rest);
        }
    }
    Some(rest.get(rest.len()..).unwrap_or_default())
}

/// `250   7fa74c16c5c0 _IO_old_init (...)`: the weight and the instruction, each as far as it is there. A number with a symbol
/// behind it is the instruction; a number alone is the weight if it is decimal.
fn latency_and_instruction(text: &[u8]) -> (u64, Option<u64>) {
    let instruction = |word: &[u8]| hexadecimal(word).filter(|ip| *ip >= IP_MIN);
    let (first, mut rest) = first_word(text);
    let Some(weight) = decimal(first) else { return (0, instruction(first)) };
    for _ in 0..LATENCIES_MAX {
        let (word, behind) = first_word(rest);
        if decimal(word).is_some_and(|latency| latency <= LATENCY_MAX) {
            rest = behind;
        }
    }
    let (word, _) = first_word(rest);
    match (instruction(word), word.is_empty()) {
        (Some(ip), _) => (weight, Some(ip)),
        (None, true) => (weight, None),
        (None, false) => match instruction(first) {
            Some(ip) => (0, Some(ip)),
            None => (weight, None),
        },
    }
}

/// Lines without a data source: mappings that perf reports with `--show-mmap-events`; other events are ignored.
fn event(line: &[u8]) -> Result<Parsed, Reason> {
    const EVENT: &[u8] = b": PERF_RECORD_";
    let at = memchr::memmem::find(line, EVENT).ok_or("there is no data_src in it")?;
    let rest = &line[at + EVENT.len()..];
    let rest = match rest.strip_prefix(b"MMAP2 ").or_else(|| rest.strip_prefix(b"MMAP ")) {
        Some(rest) => rest,
        None if rest.starts_with(b"SAMPLE") => {
            return Err("it is of `perf script -D`, which has no addresses of data");
        }
        None => return Ok(Parsed::Nothing),
    };
    let (_, time) = last_word(&line[..at]);
    let mapped = mapping(rest).ok_or("the mapping in it is of no known form")?;
    Ok(Parsed::Mapping(Box::new(Mapped { time_ns: time_ns(time), ..mapped })))
}

/// `31536/31536: [0x563a6bb49000(0x13000) @ 0x4000 fe:00 247072 0]: r-xp /usr/bin/dash`. The
/// process is -1 for the kernel, and a build-id may replace device, inode and generation.
fn mapping(text: &[u8]) -> Option<Mapped> {
    let text = String::from_utf8_lossy(text);
    let (who, rest) = text.split_once(": [")?;
    let (pid, _) = who.split_once('/')?;
    let pid = if pid == "-1" { None } else { Some(process(pid.as_bytes())?) };
    let (place, what) = rest.split_once("]: ")?;
    let (start, rest) = place.split_once('(')?;
    let (bytes, rest) = rest.split_once(") @ ")?;
    let number = |text: &str| hexadecimal(text.strip_prefix("0x").unwrap_or(text).as_bytes());
    let (start, bytes) = (number(start)?, number(bytes)?);
    let end = start.checked_add(bytes).filter(|end| *end > start)?;
    let mut words = rest.split(' ');
    let offset = number(words.next()?)?;
    let file: Vec<&str> = words.collect();
    let (device, inode) = match file[..] {
        [device, inode, _] => (device.to_owned(), inode.parse().ok()?),
        _ => (String::new(), 0),
    };
    let (permissions, path) = what.split_once(' ').unwrap_or((what, ""));
    let path = Some(path).filter(|path| !path.is_empty() && *path != "//anon").map(str::to_owned);
    // Where nothing else is mapped perf gives the address as the place in the file.
    let is_file = path.as_deref().is_some_and(|path| path.starts_with('/'));
    let offset = if is_file { offset } else { 0 };
    let line = MapLine { start, end, permissions: permissions.to_owned(), offset, device, inode, path };
    Some(Mapped { pid, time_ns: None, line })
}
