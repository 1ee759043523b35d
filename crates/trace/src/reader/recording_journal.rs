//! Journals of recordings whose recorder has ended before they were complete, as traces.

use std::path::Path;

use tiermem_base::Access;

use super::ReadOptions;
use super::core::info::{FormatInfo, Open, Opened};
use super::wanted::Addresses;
use crate::TraceError;
use crate::recording::{Recording, journal};
use crate::trace::{Extent, Records};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "recording-journal",
    about: "what `tiermem record` leaves if it is killed; addresses, accesses in slices of time",
    file_names: &[],
    open: Open::Columnar { looks: |start| start.starts_with(&journal::MAGIC), open, open_bytes },
};

fn open(path: &Path, options: &ReadOptions) -> Result<Opened, TraceError> {
    opened(path, crate::recording::read(path)?, options)
}

fn open_bytes(name: &Path, bytes: Vec<u8>, options: &ReadOptions) -> Result<Opened, TraceError> {
    let recovered = journal::recover(bytes.as_slice());
    let form = |reason| TraceError::Form { path: name.to_owned(), reason };
    opened(name, recovered.map_err(form)?, options)
}

fn opened(path: &Path, recording: Recording, options: &ReadOptions) -> Result<Opened, TraceError> {
    if options.addresses == Addresses::Physical {
        return Err(TraceError::Form { path: path.to_owned(), reason: Addresses::NO_FRAMES.to_owned() });
    }
    let extent = Extent::Records(recording.samples.len() as u64);
    Ok(Opened { records: Box::new(JournalRecords { recording, next: 0 }), extent })
}

struct JournalRecords {
    recording: Recording,
    next: usize,
}

impl Records for JournalRecords {
    fn read(&mut self, out: &mut Vec<Access>, max: usize) -> Result<(), TraceError> {
        let Recording { head, samples } = &self.recording;
        let end = samples.len().min(self.next.saturating_add(max));
        out.extend(samples[self.next..end].iter().map(|sample| head.access(sample)));
        self.next = end;
        Ok(())
    }
}
