//! Writer of a journal.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::frame::{frame, header, put_sample};
use super::read::Standing;
use super::{
    END, EndFacts, Facts, Follower, HEAD, JournalSample, Limits, NumberedProcess, NumberedRegion,
    SAMPLE_BYTES, SLICE, SliceFacts,
};
use crate::TraceError;
use crate::recording::{Head, Process, Recording, Slice};
use crate::writer::output::{named_beside, write_error};

/// A recording under way, on disk. What is kept in memory are the facts that the last frame had: regions and head, no slices and no
/// samples.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Until there is a slice, the journal has a name of its own: a recording that is there already outlives one that fails at once.
    /// `None` from then on.
    temporary: Option<NamedTempFile>,
    /// Pipes and devices get the recording in its final form alone.
    is_special: bool,
    whole_bytes: u64,
    slices: usize,
    head: Head,
    regions: BTreeMap<u32, NumberedRegion>,
    processes: BTreeMap<u32, Process>,
    rss_of: fn(u32) -> Option<u64>,
}

impl Journal {
    /// Begins the journal of a recording that will be at `path`.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let begin = || {
            let special = path.metadata().ok().filter(|meta| !meta.is_file());
            if special.as_ref().is_some_and(std::fs::Metadata::is_dir) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let is_special = special.is_some();
            let (mut file, temporary) = if is_special {
                (tempfile::tempfile()?, None)
            } else {
                let temporary = named_beside(path)?;
                (temporary.reopen()?, Some(temporary))
            };
            file.write_all(&header())?;
            let whole_bytes = header().len() as u64;
            let (path, regions, processes) = (path.to_owned(), BTreeMap::new(), BTreeMap::new());
            let head = Head::default();
            Ok(Journal {
                path,
                file,
                temporary,
                is_special,
                whole_bytes,
                slices: 0,
                head,
                regions,
                processes,
                rss_of: |_| None,
            })
        };
        begin().map_err(write_error(path))
    }

    /// Has each slice say how much of each process is in memory, which `rss_of` knows by the process's number in the system.
    #[must_use]
    pub fn with_rss(self, rss_of: fn(u32) -> Option<u64>) -> Self {
        Journal { rss_of, ..self }
    }

    /// Slices so far.
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// Bytes that are written.
    pub fn bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// The file, of which one can ask with a lock whether its recorder lives.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Follows what is appended from here on, and what is there.
    ///
    /// # Errors
    /// If the system has no further descriptor.
    pub fn follow(&self, limits: Limits) -> io::Result<Follower> {
        Ok(Follower::of(self.file.try_clone()?, limits))
    }

    /// Whether somebody who opens the recording's path finds this journal.
    pub fn is_in_place(&self) -> bool {
        self.temporary.is_none() && !self.is_special
    }

    /// Appends a slice. `head` has all that is known but slices, regions and processes; `facts` those that may have changed.
    ///
    /// # Errors
    /// If it cannot be written: the disk is full, say. The slices before it are kept; nothing is to be appended any more.
    pub fn slice(
        &mut self,
        head: &Head,
        slice: Slice,
        facts: Facts,
        samples: &[JournalSample],
    ) -> Result<(), TraceError> {
        let changed = self.changed(facts);
        let rss = self.rss(&changed);
        let mut append = || {
            if self.head != *head {
                self.append(&json_body(HEAD, head)?)?;
                self.head = head.clone();
            }
            let facts = serde_json::to_vec(&SliceFacts { slice, rss: rss.clone(), facts: changed.clone() })?;
            let mut body = Vec::with_capacity(5 + facts.len() + samples.len() * SAMPLE_BYTES);
            body.push(SLICE);
            let length = u32::try_from(facts.len()).map_err(|_| too_long())?;
            body.extend(length.to_le_bytes());
            body.extend(facts);
            samples.iter().for_each(|sample| put_sample(sample, &mut body));
            self.append(&body)?;
            if let Some(temporary) = self.temporary.take() {
                temporary.persist(&self.path).map_err(|error| error.error)?;
            }
            io::Result::Ok(())
        };
        append().map_err(write_error(&self.path))?;
        self.regions.extend(changed.regions.into_iter().map(|it| (it.number, it)));
        self.processes.extend(changed.processes.into_iter().map(|it| (it.number, it.process)));
        self.slices += 1;
        Ok(())
    }

    /// The recording, now that it has ended, with the final facts of `head`.
    ///
    /// # Errors
    /// If what was written cannot be read again.
    pub fn end(&mut self, head: Head, facts: Facts) -> Result<Recording, TraceError> {
        let end = EndFacts { head: head.clone(), facts: self.changed(facts) };
        // On a full disk the journal stays without an end. What is returned has it all the same.
        let ended = json_body(END, &end).and_then(|body| self.append(&body));
        self.file.seek(SeekFrom::Start(0)).map_err(write_error(&self.path))?;
        let reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut recording = super::read::frames(reader)
            .and_then(|mut frames| {
                if ended.is_err() {
                    frames.complete(end.head, end.facts);
                }
                frames.recording(Standing::Ended)
            })
            .map_err(|reason| TraceError::Form { path: self.path.clone(), reason })?;
        recording.head.version = head.version;
        Ok(recording)
    }

    /// How much of each process that is looked at is in memory now.
    fn rss(&self, changed: &Facts) -> Vec<(u32, u64)> {
        let mut pids: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        let new = changed.processes.iter().map(|it| (&it.number, &it.process));
        for (number, process) in self.processes.iter().chain(new) {
            let is_there = process.is_observed && process.ended_ns.is_none();
            pids.insert(*number, is_there.then_some(process.pid));
        }
        pids.into_iter().filter_map(|(number, pid)| Some((number, (self.rss_of)(pid?)?))).collect()
    }

    /// What is not as it was written last.
    fn changed(&self, mut facts: Facts) -> Facts {
        facts.regions.retain(|it: &NumberedRegion| {
            self.regions.get(&it.number).is_none_or(|before| {
                // While a region is there its last slice goes without saying.
                let last_slice = if it.is_mapped { before.region.last_slice } else { it.region.last_slice };
                let now = NumberedRegion { region: super::Region { last_slice, ..it.region.clone() }, ..*it };
                *before != now
            })
        });
        facts.processes.retain(|it: &NumberedProcess| self.processes.get(&it.number) != Some(&it.process));
        facts
    }

    fn append(&mut self, body: &[u8]) -> io::Result<()> {
        let frame = frame(body).ok_or_else(too_long)?;
        if let Err(error) = self.file.write_all(&frame) {
            // A part of a frame is of no use, and its room may be what the final form needs.
            let _ = self.file.set_len(self.whole_bytes);
            return Err(error);
        }
        self.whole_bytes += frame.len() as u64;
        Ok(())
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a slice has more than 4 GiB of samples")
}

fn json_body(kind: u8, content: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut body = vec![kind];
    serde_json::to_writer(&mut body, content)?;
    Ok(body)
}
