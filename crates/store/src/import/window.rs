//! Window of commands in flight: the caller's thread sends them, another reads their replies.

use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::reply::Reply;
use super::resp_client::{Link, Replies, Socket};
use super::{LoadError, Report, Target};

/// Bytes gathered before the socket gets them.
const OUT_BYTES: usize = 256 << 10;

/// What is known of a command when its reply comes.
#[derive(Debug)]
pub(super) struct Note {
    /// Its position in the input.
    pub(super) place: InputPosition,
    /// What it stores.
    pub(super) stores: Stores,
}

/// Position of a command in the input.
#[derive(Clone, Copy, Debug)]
pub(super) enum InputPosition {
    /// A request of a stream.
    Request { number: u64, line: u64, offset: u64 },
    /// A row of a file.
    Row(u64),
}

impl std::fmt::Display for InputPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            InputPosition::Request { number, line, offset } => {
                write!(f, "command {number} (line {line}, byte {offset})")
            }
            InputPosition::Row(number) => write!(f, "row {number}"),
        }
    }
}

/// What a command stores when it is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    /// Not known, as in a stream: the command is only counted.
    Unknown,
    /// A string; a null says that the key was there.
    String,
    /// A field of a hash.
    Field,
    /// A field of a hash; a 0 says that it was there.
    NewField,
    /// Nothing new: it belongs to the command before, and is not counted.
    Nothing,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct PipelinedSender {
    out: BufWriter<Socket>,
    notes: Option<SyncSender<Note>>,
    reader: Option<JoinHandle<Result<(), LoadError>>>,
    report: Arc<Mutex<Report>>,
    answered: Arc<AtomicU64>,
    target: Target,
    bytes: u64,
}

impl PipelinedSender {
    /// Connects.
    pub(super) fn open(target: &Target) -> Result<Self, LoadError> {
        let link = Link::open(&target.to, &target.login)?;
        let (notes, noted) = sync_channel(target.pipeline.max(1));
        let report = Arc::new(Mutex::new(Report::default()));
        let answered = Arc::new(AtomicU64::new(0));
        let (replies, shared, count) = (link.replies, report.clone(), answered.clone());
        let reader = std::thread::spawn(move || read(replies, &noted, &shared, &count));
        Ok(PipelinedSender {
            out: BufWriter::with_capacity(OUT_BYTES, link.socket),
            notes: Some(notes),
            reader: Some(reader),
            report,
            answered,
            target: target.clone(),
            bytes: 0,
        })
    }

    /// Commands answered so far.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Counts something that is wrong with the input.
    pub(super) fn complain(&mut self, place: InputPosition, text: &str) {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.complain(|| place.to_string(), text);
    }

    /// Sends a command; waits while too many are under way.
    pub(super) fn send(&mut self, command: &[u8], note: Note) -> Result<(), LoadError> {
        let Some(notes) = &self.notes else { return Err(self.closed()) };
        match notes.try_send(note) {
            Ok(()) => {}
            Err(TrySendError::Full(note)) => {
                // What is waited for must have been sent.
                self.flush()?;
                if self.notes.as_ref().is_none_or(|notes| notes.send(note).is_err()) {
                    return Err(self.reason());
                }
            }
            Err(TrySendError::Disconnected(_)) => return Err(self.reason()),
        }
        self.bytes += command.len() as u64;
        self.out.write_all(command).map_err(|source| self.io(source))
    }

    /// Hands what is gathered to the socket.
    pub(super) fn flush(&mut self) -> Result<(), LoadError> {
        self.out.flush().map_err(|source| self.io(source))
    }

    /// Waits for all replies.
    pub(super) fn finish(mut self) -> Result<Report, LoadError> {
        self.flush()?;
        self.notes = None;
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => return Err(error),
            _ => return Err(self.closed()),
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report.bytes = self.bytes;
        Ok(report)
    }

    fn closed(&self) -> LoadError {
        LoadError::Closed { to: self.target.to.clone() }
    }

    /// The reason why the reader has ended: it knows more than a broken pipe shows.
    fn reason(&mut self) -> LoadError {
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            _ => self.closed(),
        }
    }

    fn io(&mut self, source: std::io::Error) -> LoadError {
        self.out.get_ref().shut();
        self.notes = None;
        match self.reader.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            _ => LoadError::Io { to: self.target.to.clone(), source },
        }
    }
}

/// Reads a reply for each note, until there are no more.
fn read(
    mut replies: Replies,
    notes: &Receiver<Note>,
    report: &Mutex<Report>,
    answered: &AtomicU64,
) -> Result<(), LoadError> {
    while let Ok(note) = notes.recv() {
        let reply = replies.next()?;
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        if note.stores != Stores::Nothing {
            report.items += 1;
            answered.fetch_add(1, Relaxed);
        }
        match (reply, note.stores) {
            (Reply::Error(text), _) => report.complain(|| note.place.to_string(), &text),
            (Reply::Null, Stores::String) => report.kept += 1,
            (_, Stores::String) => report.strings += 1,
            (Reply::Integer(0), Stores::NewField) => report.kept += 1,
            (_, Stores::Field | Stores::NewField) => report.fields += 1,
            _ => {}
        }
    }
    Ok(())
}
