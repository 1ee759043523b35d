//! Reader of a journal: all whole slices, whatever became of the recorder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::frame::{check_header, checksum, sample};
use super::kept::{Kept, Limits};
use super::{
    END, EndFacts, FRAME_HEADER_BYTES, Facts, HEAD, HEADER_BYTES, INCOMPLETE, JournalSample, MAGIC,
    NumberedRegion, SAMPLE_BYTES, SLICE, SliceFacts,
};
use crate::TraceError;
use crate::recording::{Head, Process, Recording, Region, Sample, Slice};

/// The largest range of one sample of a recording: its bytes are a number of 32 bits.
const SAMPLE_RANGE_MAX: u64 = 1 << 30;

/// Whether a file begins like a journal.
pub(in crate::recording) fn is_one(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == MAGIC
}

/// How a journal stands, which what is read of it says in a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is written on.
    Growing,
    /// Its recorder has ended.
    Ended,
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
    frames(journal)?.recording(Standing::Ended)
}

/// The content of the frames so far.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: Option<Head>,
    regions: BTreeMap<u32, NumberedRegion>,
    processes: BTreeMap<u32, Process>,
    kept: Kept,
    /// Where the last slice of the journal starts.
    last_start_ns: Option<u64>,
    /// The samples of the last slice as they were, if they are wanted.
    newest: Option<(Slice, Vec<JournalSample>)>,
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
        body.clear();
        // Room is made as bytes come: a damaged length asks for none that the file does not fill.
        let wanted = u64::from(length(header));
        let read = journal.by_ref().take(wanted).read_to_end(&mut body).map_err(cannot)?;
        if (read as u64) < wanted || frames.take(header, &body).is_none() {
            break;
        }
    }
    Ok(frames)
}

/// The length of the body that a frame's header tells.
pub(super) fn length(header: [u8; FRAME_HEADER_BYTES]) -> u32 {
    u32::from_le_bytes([header[0], header[1], header[2], header[3]])
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
    /// Keeps no more than `limits` allow, and the last slice as it was.
    pub(super) fn within(limits: Limits) -> Self {
        let newest = Some((Slice::default(), Vec::new()));
        Frames { kept: Kept::within(limits), newest, ..Frames::default() }
    }

    /// Whether the last frame has come.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether a frame was not as it was written.
    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// What there is of slices.
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Takes in one frame, all of it or nothing; `None` if it is damaged or makes no sense.
    pub(super) fn take(&mut self, header: [u8; FRAME_HEADER_BYTES], body: &[u8]) -> Option<()> {
        let [length, sum] = [0, 4].map(|at| [header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let taken = (checksum(length, body) == u32::from_le_bytes(sum)).then(|| self.content(body));
        self.is_damaged |= taken.flatten().is_none();
        taken.flatten()
    }

    fn content(&mut self, body: &[u8]) -> Option<()> {
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
        let is_next = self.last_start_ns.is_none_or(|last| last < slice.start_ns);
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
        self.kept.push(slice, &rss, samples.iter().copied())?;
        self.last_start_ns = Some(slice.start_ns);
        self.know(Facts { regions, processes });
        if let Some(newest) = &mut self.newest {
            *newest = (slice, samples);
        }
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
    pub(super) fn recording(&self, standing: Standing) -> Result<Recording, String> {
        let mut recording =
            self.made_of(self.kept.slices(), |slice| self.kept.place(slice), self.kept.samples())?;
        if !self.is_complete && standing == Standing::Ended {
            let slices = self.kept.count();
            let why = if self.is_damaged {
                "the journal is damaged behind them"
            } else {
                "it was killed, or its disk was full"
            };
            recording
                .head
                .notes
                .push(format!("{INCOMPLETE}: these are the {slices} slices that it had written ({why})"));
        }
        for (number, process) in self.processes.keys().zip(&mut recording.head.processes) {
            process.rss = self.kept.rss(*number);
        }
        Ok(recording)
    }

    /// The last slice alone, as it was, if it is kept.
    pub(super) fn newest(&self) -> Result<Recording, String> {
        let (slice, samples) = self.newest.as_ref().ok_or("the last slice is not kept")?;
        let samples: Vec<(u32, JournalSample)> = samples.iter().map(|sample| (0, *sample)).collect();
        self.made_of(&[*slice], |_| 0, &samples)
    }

    /// A recording of some slices. `place` has the number here of a slice of the journal.
    fn made_of(
        &self,
        slices: &[Slice],
        place: impl Fn(u32) -> u32,
        samples: &[(u32, JournalSample)],
    ) -> Result<Recording, String> {
        let mut head = self.head.clone().ok_or("this journal ends before its first slice")?;
        let last_slice = (slices.len() as u32).saturating_sub(1);
        let regions = &self.regions;
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
        head.processes = named(&self.processes);
        let now = |it: &&NumberedRegion| {
            let last = if it.is_mapped { last_slice } else { place(it.region.last_slice).min(last_slice) };
            let first = place(it.region.first_slice).min(last_slice);
            let name = match head.processes.get(it.region.process as usize) {
                Some(process) if it.region.process > 0 => format!("{}: {}", process.name, it.region.name),
                _ => it.region.name.clone(),
            };
            Region { name, last_slice: last, first_slice: first, ..it.region.clone() }
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
                    cut(*slice, region, head.regions[region as usize].start, sample, |it| all.push(it));
                }
                None => outside += 1,
            }
        }
        head.slices = slices.to_vec();
        if outside > 0 {
            head.notes.push(format!(
                "{outside} samples of the journal lay outside of their regions, and are left out"
            ));
        }
        Ok(Recording { head, samples: all })
    }
}

fn head(head: Head) -> Option<Head> {
    (head.version == Head::VERSION && head.sources.len() <= usize::from(u8::MAX)).then_some(head)
}

/// The processes in the order of their numbers, those of the same name numbered.
fn named(processes: &BTreeMap<u32, Process>) -> Vec<Process> {
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
    processes.values().map(|it| Process { name: unique(it.name.clone()), ..it.clone() }).collect()
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
