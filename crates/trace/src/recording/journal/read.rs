//! Reader of a journal: all whole slices, whatever became of the recorder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::frame::{check_header, checksum, sample};
use super::{
    END, EndFacts, FRAME_HEADER_BYTES, Facts, HEAD, HEADER_BYTES, INCOMPLETE, JournalSample, MAGIC,
    NumberedRegion, SAMPLE_BYTES, SLICE, SliceFacts,
};
use crate::TraceError;
use crate::recording::{Head, Process, Recording, Region, Rss, Sample, Slice};

/// The largest range of one sample of a recording: its bytes are a number of 32 bits.
const SAMPLE_RANGE_MAX: u64 = 1 << 30;

/// Whether a file begins like a journal.
pub(in crate::recording) fn is_one(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == MAGIC
}

/// Reads the journal at `path`.
pub(in crate::recording) fn read(path: &Path) -> Result<Recording, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    recover(BufReader::with_capacity(1 << 20, file))
        .map_err(|reason| TraceError::Form { path: path.to_owned(), reason })
}

/// The recording that a journal holds: all slices before the end of the file or the first damaged frame. If the recording was not
/// complete, a note in it says so.
///
/// # Errors
/// If it is no journal, one of another version, or one in which not even the head is whole.
pub fn recover(journal: impl Read) -> Result<Recording, String> {
    frames(journal)?.finish()
}

/// The content of the frames so far.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: Option<Head>,
    slices: Vec<Slice>,
    regions: BTreeMap<u32, NumberedRegion>,
    processes: BTreeMap<u32, Process>,
    /// By the number of the process.
    rss: BTreeMap<u32, Rss>,
    /// The slice of each, and the sample.
    samples: Vec<(u32, JournalSample)>,
    is_complete: bool,
    is_damaged: bool,
}

/// Reads all whole frames.
pub(super) fn frames(mut journal: impl Read) -> Result<Frames, String> {
    let mut header = [0; HEADER_BYTES];
    let cannot = |error: io::Error| format!("this journal cannot be read: {error}");
    if read_up_to(&mut journal, &mut header).map_err(cannot)? < HEADER_BYTES {
        return Err("this journal ends before its first slice".to_owned());
    }
    check_header(&header)?;
    let mut frames = Frames::default();
    let mut body = Vec::new();
    while !frames.is_complete {
        let mut header = [0; FRAME_HEADER_BYTES];
        if read_up_to(&mut journal, &mut header).map_err(cannot)? < FRAME_HEADER_BYTES {
            break;
        }
        let [length, sum] = [0, 4].map(|at| [header[at], header[at + 1], header[at + 2], header[at + 3]]);
        body.clear();
        // Room is made as bytes come: a damaged length asks for none that the file does not fill.
        let wanted = u64::from(u32::from_le_bytes(length));
        let read = journal.by_ref().take(wanted).read_to_end(&mut body).map_err(cannot)?;
        if (read as u64) < wanted {
            break;
        }
        if checksum(length, &body) != u32::from_le_bytes(sum) || frames.take(&body).is_none() {
            frames.is_damaged = true;
            break;
        }
    }
    Ok(frames)
}

/// Fills as much of `buffer` as there are bytes for.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Frames {
    /// Takes in one frame, all of it or nothing; `None` if it makes no sense.
    fn take(&mut self, body: &[u8]) -> Option<()> {
        let (kind, content) = body.split_first()?;
        match *kind {
            HEAD => self.head = Some(head(serde_json::from_slice(content).ok()?)?),
            SLICE => {
                self.head.as_ref()?;
                let (length, rest) = content.split_first_chunk::<4>()?;
                let (facts, samples) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                self.slice(serde_json::from_slice(facts).ok()?, samples)?;
            }
            END => {
                let EndFacts { head, facts } = serde_json::from_slice(content).ok()?;
                let head = self::head(head)?;
                are_sane(&facts.regions).then_some(())?;
                self.complete(head, facts);
            }
            _ => return None,
        }
        Some(())
    }

    fn slice(&mut self, facts: SliceFacts, samples: &[u8]) -> Option<()> {
        let SliceFacts { slice, rss, facts: Facts { regions, processes } } = facts;
        let is_next = self.slices.last().is_none_or(|last| last.start_ns < slice.start_ns);
        let (samples, rest) = samples.as_chunks::<SAMPLE_BYTES>();
        (is_next && rest.is_empty() && are_sane(&regions)).then_some(())?;
        let is_known = |number: u32| {
            self.regions.contains_key(&number) || regions.iter().any(|region| region.number == number)
        };
        let sources = self.head.as_ref()?.sources.len();
        let samples: Vec<JournalSample> = samples.iter().map(sample).collect::<Option<_>>()?;
        let mut numbers: Vec<u32> = samples.iter().map(|sample| sample.region).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let all_known = numbers.into_iter().all(is_known)
            && samples.iter().all(|sample| usize::from(sample.source) < sources);
        all_known.then_some(())?;
        let number = u32::try_from(self.slices.len()).ok()?;
        self.slices.push(slice);
        for (process, bytes) in rss {
            self.rss.entry(process).or_default().put(number, bytes);
        }
        self.know(Facts { regions, processes });
        self.samples.extend(samples.into_iter().map(|sample| (number, sample)));
        Some(())
    }

    /// The last facts.
    pub(super) fn complete(&mut self, head: Head, facts: Facts) {
        self.head = Some(head);
        self.know(facts);
        self.is_complete = true;
    }

    fn know(&mut self, facts: Facts) {
        self.regions.extend(facts.regions.into_iter().map(|it| (it.number, it)));
        self.processes.extend(facts.processes.into_iter().map(|it| (it.number, it.process)));
    }

    /// The recording of what came.
    pub(super) fn finish(self) -> Result<Recording, String> {
        let Frames { head, slices, regions, mut processes, mut rss, samples, is_complete, is_damaged } = self;
        let mut head = head.ok_or("this journal ends before its first slice")?;
        let last_slice = (slices.len() as u32).saturating_sub(1);
        let mut order: Vec<&NumberedRegion> = regions.values().filter(|it| it.within.is_none()).collect();
        order.sort_by_key(|it| (it.region.process, it.region.start, it.number));
        let places: BTreeMap<u32, u32> = order.iter().map(|it| it.number).zip(0..).collect();
        // A region is a part of one with a smaller number, so this ends.
        let whole = |mut number: u32| {
            while let Some(within) = regions.get(&number).and_then(|it| it.within) {
                number = within;
            }
            places.get(&number).copied()
        };
        for (number, process) in &mut processes {
            process.rss = rss.remove(number).unwrap_or_default();
        }
        head.processes = named(processes);
        let now = |it: &&NumberedRegion| {
            let last_slice = if it.is_mapped { last_slice } else { it.region.last_slice.min(last_slice) };
            let first_slice = it.region.first_slice.min(last_slice);
            let name = match head.processes.get(it.region.process as usize) {
                Some(process) if it.region.process > 0 => format!("{}: {}", process.name, it.region.name),
                _ => it.region.name.clone(),
            };
            Region { name, last_slice, first_slice, ..it.region.clone() }
        };
        head.regions = order.iter().map(now).collect();
        let mut all = Vec::with_capacity(samples.len());
        let mut outside = 0_u64;
        for (slice, sample) in samples {
            let region = whole(sample.region).filter(|at| {
                let region = &head.regions[*at as usize];
                let end = region.start.saturating_add(region.bytes);
                region.start <= sample.address && sample.address + sample.bytes <= end
            });
            match region {
                Some(region) => {
                    cut(slice, region, head.regions[region as usize].start, &sample, |it| all.push(it));
                }
                None => outside += 1,
            }
        }
        head.slices = slices;
        if outside > 0 {
            head.notes.push(format!(
                "{outside} samples of the journal lay outside of their regions, and are left out"
            ));
        }
        if !is_complete {
            let slices = head.slices.len();
            let why = if is_damaged {
                "the journal is damaged behind them"
            } else {
                "it was killed, or its disk was full"
            };
            head.notes
                .push(format!("{INCOMPLETE}: these are the {slices} slices that it had written ({why})"));
        }
        Ok(Recording { head, samples: all })
    }
}

fn head(head: Head) -> Option<Head> {
    (head.version == Head::VERSION && head.sources.len() <= usize::from(u8::MAX)).then_some(head)
}

/// The processes in the order of their numbers, those of the same name numbered.
fn named(processes: BTreeMap<u32, Process>) -> Vec<Process> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut unique = |name: String| {
        let count = counts.entry(name.clone()).or_insert(0);
        loop {
            *count += 1;
            let numbered = if *count == 1 { name.clone() } else { format!("{name} #{count}") };
            if taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    };
    processes.into_values().map(|it| Process { name: unique(it.name.clone()), ..it }).collect()
}

fn are_sane(regions: &[NumberedRegion]) -> bool {
    regions.iter().all(|it| it.within.is_none_or(|within| within < it.number) && it.region.bytes > 0)
}

/// Samples of a recording for one of a journal: several if it is long.
fn cut(slice: u32, region: u32, start: u64, sample: &JournalSample, mut each: impl FnMut(Sample)) {
    let (mut from, end) = (sample.address, sample.address + sample.bytes);
    while from < end {
        let bytes = (end - from).min(SAMPLE_RANGE_MAX);
        each(Sample {
            slice,
            region,
            offset: from - start,
            bytes: bytes as u32,
            resident: (u128::from(sample.resident) * u128::from(bytes) / u128::from(sample.bytes)) as u32,
            weight: (sample.weight * bytes as f64 / sample.bytes as f64) as f32,
            source: sample.source,
            op: sample.op,
            level: sample.level,
            node: sample.node,
            ..Sample::default()
        });
        from += bytes;
    }
}
