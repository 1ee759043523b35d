//! One line of perf's text: a sample as `perf script` or `perf mem report -D` prints it, a mapping, or neither.

use memchr::memmem::Finder;
use memchr::{memchr, memrchr};
use tiermem_base::Op;
use tiermem_trace::recording::{Level, Mode};

use super::source::{self, Source};

/// What the decoded data source begins with.
const DECODED: &[u8] = b"|OP ";
/// What follows in it, as far as a version of perf prints it.
const TAGS: [&[u8]; 5] = [b"|LVL ", b"|SNP ", b"|TLB ", b"|LCK ", b"|BLK "];
/// Words between an event and its data source: the address, and what perf knows of it.
const WORDS_MAX: usize = 64;
/// Letters that may stand behind an event's name.
const MODIFIERS: &[u8] = b"ukhIGHpPSDWebR";
/// An address of code is not below this, so a number alone that is smaller is a weight.
const CODE_LOWEST: u64 = 400_000;

/// A sample of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The process, if it is known.
    pub pid: Option<u32>,
    /// When, in nanoseconds of the clock that perf used.
    pub time_ns: Option<u64>,
    /// The address that was accessed.
    pub address: u64,
    /// `None` if it was neither a load nor a store, or nobody knows.
    pub op: Option<Op>,
    /// Where it was answered.
    pub level: Level,
    /// Who accessed.
    pub mode: Mode,
    /// Latency in cycles, 0 if it is not known.
    pub weight: u64,
    /// Whether it comes from text that never tells mappings.
    pub is_dump: bool,
}

/// Memory that a process mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping<'a> {
    /// The process; `None` for the kernel.
    pub pid: Option<u32>,
    /// When, as in [`Sample`].
    pub time_ns: Option<u64>,
    /// The first address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// Where in the file it starts.
    pub offset: u64,
    /// The file's number, 0 if there is none or it is not told.
    pub inode: u64,
    /// As in `/proc/PID/maps`.
    pub permissions: &'a [u8],
    /// The file, or what the kernel calls it.
    pub path: &'a [u8],
    /// The file's build-id, if it is told.
    pub build_id: Option<&'a [u8]>,
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Nothing of interest.
    Note,
    /// An access.
    Sample(Sample),
    /// A mapping.
    Mapping(Mapping<'a>),
}

/// Reads lines.
pub(super) struct Parser {
    decoded: Finder<'static>,
    record: Finder<'static>,
}

impl Parser {
    pub fn new() -> Self {
        Parser { decoded: Finder::new(DECODED), record: Finder::new(b"PERF_RECORD_") }
    }

    /// Reads a line without its end. An error says what is wrong with it.
    #[inline]
    pub fn line<'a>(&self, line: &'a [u8]) -> Result<Line<'a>, &'static str> {
        if let Some(at) = self.decoded.find(line) {
            return script(&line[..at], &line[at..]).map(Line::Sample);
        }
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            return Ok(Line::Note);
        }
        if let Some(at) = self.record.find(line) {
            return record(&line[..at], &line[at..]);
        }
        if let Some(sample) = dump(text) {
            return sample.map(Line::Sample);
        }
        // A caller in a call chain: its address and its name.
        let first = words(text).next().unwrap_or_default();
        match line.starts_with(b"\t") && hexadecimal(first).is_some() {
            true => Ok(Line::Note),
            false => Err("this is no sample of a memory access"),
        }
    }
}

/// A line of `perf script`, cut before the decoded data source.
fn script(left: &[u8], right: &[u8]) -> Result<Sample, &'static str> {
    const NO_ADDRESS: &str = "the sample has no address";
    let mut before = Backwards(left);
    let (mut first, mut last, mut count) = (&b""[..], &b""[..], 0);
    let event = loop {
        let word = before.next().ok_or("there is no event before the data source")?;
        if let [name @ .., b':'] = word {
            break name;
        }
        if count == 0 {
            last = word;
        }
        first = word;
        count += 1;
        if count > WORDS_MAX {
            return Err("there is no event before the data source");
        }
    };
    let (text, behind) = decoded_and_rest(right);
    let address = hexadecimal(first).ok_or(NO_ADDRESS)?;
    let source = match count {
        // Either the address, or the data source of samples that have none.
        1 => {
            let said = source::of_text(text);
            if address >> source::BITS == 0 && source::of_bits(address) == said && said.op.is_some() {
                return Err(NO_ADDRESS);
            }
            said
        }
        _ => source::of_bits(hexadecimal(last).ok_or("the data source is no number")?),
    };
    let (time_ns, event, pid) = head(event, &mut before);
    let (weight, ip) = weight_and_ip(behind);
    Ok(sample(source, event, pid, time_ns, address, weight, ip))
}

fn sample(
    source: Source,
    event: &[u8],
    pid: Option<u32>,
    time_ns: Option<u64>,
    address: u64,
    weight: u64,
    ip: Option<u64>,
) -> Sample {
    let Source { op, level } = source;
    let op = op.or_else(|| op_of_event(event));
    let mode = mode_of_event(event).or_else(|| ip.map(mode_of_ip)).unwrap_or_default();
    Sample { pid, time_ns, address, op, level, mode, weight, is_dump: false }
}

/// The time, the event's name and the process, from the last word that ends in a colon and what stands before it. Names of
/// commands may hold blanks and digits, so this looks backwards.
fn head<'a>(event: &'a [u8], before: &mut Backwards<'a>) -> (Option<u64>, &'a [u8], Option<u32>) {
    let (mut event, mut time_ns) = (event, time(event));
    let mut next = before.next();
    if time_ns.is_some() {
        event = b"";
    } else {
        let mut ahead = before.clone();
        let after_period = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
        let found = match next {
            Some([word @ .., b':']) => time(word),
            Some(word) if after_period(word) => match ahead.next() {
                Some([word @ .., b':']) => time(word).inspect(|_| *before = ahead),
                _ => None,
            },
            _ => None,
        };
        if found.is_some() {
            time_ns = found;
            next = before.next();
        }
    }
    // The processor stands between the process and the time, and flags may.
    let mut steps = 0;
    while let Some(word) = next {
        let number = word.split(|byte| *byte == b'/').next().unwrap_or_default();
        let is_process = word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'/');
        if is_process && let Some(pid) = decimal(number) {
            return (time_ns, event, u32::try_from(pid).ok());
        }
        steps += 1;
        next = if steps < 4 { before.next() } else { None };
    }
    (time_ns, event, None)
}

/// Splits behind the decoded data source's last tag. A symbol's name may hold a bar as well.
fn decoded_and_rest(right: &[u8]) -> (&[u8], &[u8]) {
    let is_tag = |at: usize| TAGS.iter().any(|tag| right[at..].starts_with(tag));
    let mut end = match memrchr(b'|', right) {
        Some(at) if is_tag(at) => at,
        _ => 0,
    };
    if end == 0 {
        while let Some(step) = memchr(b'|', &right[end + 1..]) {
            if !is_tag(end + 1 + step) {
                break;
            }
            end += 1 + step;
        }
    }
    let behind = &right[(end + DECODED.len()).min(right.len())..];
    (&right[DECODED.len()..], behind)
}

/// The weight and the instruction's address: the first words that are numbers, as far as they are printed.
fn weight_and_ip(behind: &[u8]) -> (u64, Option<u64>) {
    let mut numbers = words(behind).skip_while(|word| hexadecimal(word).is_none());
    let Some(first) = numbers.next() else { return (0, None) };
    let Some(weight) = decimal(first) else { return (0, hexadecimal(first)) };
    match numbers.next() {
        None if weight < CODE_LOWEST => (weight, None),
        None => (0, hexadecimal(first)),
        Some(second) => match hexadecimal(second) {
            // A symbol follows, so the number before was the instruction's address.
            None => (0, hexadecimal(first)),
            // Small numbers between are other latencies.
            Some(ip) if second.len() >= 6 => (weight, Some(ip)),
            Some(ip) => {
                let next = numbers.take(2).filter(|word| word.len() >= 6).find_map(hexadecimal);
                (weight, next.or(Some(ip)))
            }
        },
    }
}

/// A line of `perf mem report -D`: process, thread, instruction, address, perhaps the physical address and the page's
/// size, weight, data source, symbol. `None` if it does not look like one.
///
/// The first line that perf prints has an address that begins with `0x016` and is not filled up with zeros, by a slip in
/// its format.
fn dump(text: &[u8]) -> Option<Result<Sample, &'static str>> {
    const CUT: &str = "the sample is cut short";
    let digits = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'-')?;
    let (pid, separator) = (&text[..digits], text[digits]);
    let mut fields: Fields = if separator.is_ascii_whitespace() {
        Fields { text: &text[digits..], separator: None }
    } else {
        Fields { text: &text[digits + 1..], separator: Some(separator) }
    };
    fields.next().filter(|tid| tid.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))?;
    let ip = prefixed(fields.next()?)?;
    Some((|| {
        let address = fields.next().and_then(|word| match word.strip_prefix(b"0x016") {
            Some(unfilled) => hexadecimal(unfilled),
            None => prefixed(word),
        });
        let address = address.ok_or("the sample has no address")?;
        let mut next = fields.next().ok_or(CUT)?;
        if prefixed(next).is_some() {
            next = fields.next().ok_or(CUT)?;
        }
        if decimal(next).is_none() {
            next = fields.next().ok_or(CUT)?;
        }
        let weight = decimal(next).ok_or("there is no weight")?;
        let bits = fields.next().and_then(prefixed).ok_or("there is no data source")?;
        let pid = decimal(pid).and_then(|pid| u32::try_from(pid).ok());
        let source = source::of_bits(bits);
        Ok(Sample { is_dump: true, ..sample(source, b"", pid, None, address, weight, Some(ip)) })
    })())
}

/// Fields between blanks, or between single characters of another kind.
struct Fields<'a> {
    text: &'a [u8],
    separator: Option<u8>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.text = self.text.trim_ascii_start();
        if self.text.is_empty() {
            return None;
        }
        let end = match self.separator {
            Some(separator) => memchr(separator, self.text),
            None => self.text.iter().position(u8::is_ascii_whitespace),
        };
        let (field, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
        self.text = rest.get(usize::from(self.separator.is_some())..).unwrap_or_default();
        Some(field.trim_ascii())
    }
}

/// An event of another kind than a sample: `PERF_RECORD_MMAP2 1234/1234: [0x1000(0x2000) @ 0 08:01 7 0]: r-xp /path`.
fn record<'a>(left: &'a [u8], right: &'a [u8]) -> Result<Line<'a>, &'static str> {
    const BROKEN: &str = "this is no complete mapping";
    let Some(rest) = right.strip_prefix(b"PERF_RECORD_MMAP") else { return Ok(Line::Note) };
    let rest = rest.strip_prefix(b"2").unwrap_or(rest).trim_ascii_start();
    let mut before = Backwards(left);
    let time_ns = before.next().and_then(|word| time(word.strip_suffix(b":")?));
    let end = memchr(b'/', rest).ok_or(BROKEN)?;
    let pid = decimal(&rest[..end]).and_then(|pid| u32::try_from(pid).ok());
    let from = memchr(b'[', rest).ok_or(BROKEN)?;
    let close = memchr::memmem::find(rest, b"]: ").filter(|close| *close > from).ok_or(BROKEN)?;
    let (range, mut behind) = (&rest[from + 1..close], &rest[close + 3..]);
    let open = memchr(b'(', range).ok_or(BROKEN)?;
    let shut = memchr(b')', range).filter(|shut| *shut > open).ok_or(BROKEN)?;
    let start = unprefixed(&range[..open]).ok_or(BROKEN)?;
    let bytes = unprefixed(&range[open + 1..shut]).ok_or(BROKEN)?;
    let end = start.checked_add(bytes).filter(|end| *end > start).ok_or(BROKEN)?;
    let mut file = words(range[shut + 1..].trim_ascii_start().strip_prefix(b"@").ok_or(BROKEN)?);
    let offset = file.next().and_then(unprefixed).ok_or(BROKEN)?;
    let second = file.next().unwrap_or_default();
    let build_id = second.strip_prefix(b"<").and_then(|id| id.strip_suffix(b">"));
    let inode = file.next().and_then(decimal).unwrap_or_default();
    let word = behind.iter().position(u8::is_ascii_whitespace).ok_or(BROKEN)?;
    let permissions = match &behind[..word] {
        // Older events only tell code from data.
        b"x" => b"r-xp",
        word if word.len() == 4 => word,
        _ => b"rw-p",
    };
    behind = &behind[word + 1..];
    let path = behind.trim_ascii_end();
    Ok(Line::Mapping(Mapping { pid, time_ns, start, end, offset, inode, permissions, path, build_id }))
}

fn op_of_event(event: &[u8]) -> Option<Op> {
    let has = |part: &[u8]| memchr::memmem::find(event, part).is_some();
    match () {
        () if has(b"store") => Some(Op::Store),
        () if has(b"load") => Some(Op::Load),
        () => None,
    }
}

fn mode_of_event(event: &[u8]) -> Option<Mode> {
    let from = event.iter().rposition(|byte| matches!(byte, b'/' | b':'))?;
    let modifiers = &event[from + 1..];
    if !modifiers.iter().all(|byte| MODIFIERS.contains(byte)) {
        return None;
    }
    match (modifiers.contains(&b'u'), modifiers.contains(&b'k')) {
        (true, false) => Some(Mode::User),
        (false, true) => Some(Mode::Kernel),
        _ => None,
    }
}

fn mode_of_ip(ip: u64) -> Mode {
    if ip >> 63 == 1 { Mode::Kernel } else { Mode::User }
}

/// Seconds with a fraction, in nanoseconds.
fn time(word: &[u8]) -> Option<u64> {
    let dot = memchr(b'.', word)?;
    let (seconds, fraction) = (decimal(&word[..dot])?, &word[dot + 1..]);
    if fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let fraction = decimal(fraction)? * 10_u64.pow(9 - fraction.len() as u32);
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

fn decimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 19 {
        return None;
    }
    let mut value = 0_u64;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// A number without `0x`.
fn hexadecimal(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 16 {
        return None;
    }
    let mut value = 0_u64;
    for byte in word {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

/// A number with `0x`.
fn prefixed(word: &[u8]) -> Option<u64> {
    hexadecimal(word.strip_prefix(b"0x")?)
}

/// A number with `0x`, which a zero does not have.
fn unprefixed(word: &[u8]) -> Option<u64> {
    hexadecimal(word.strip_prefix(b"0x").unwrap_or(word))
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    Fields { text, separator: None }
}

/// Words from the last one on.
#[derive(Clone)]
struct Backwards<'a>(&'a [u8]);

impl<'a> Iterator for Backwards<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_end();
        if text.is_empty() {
            return None;
        }
        let from = text.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
        self.0 = &text[..from];
        Some(&text[from..])
    }
}
