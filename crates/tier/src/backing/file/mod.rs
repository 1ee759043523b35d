//! Volume in a regular file or on a block device, of any size.
//!
//! Whole units of 4 KiB bypass the page cache, through the devices of [`crate::block`]. The
//! bytes behind the last unit, flushes, trims and zeroes are the work of one thread
//! ([`worker`]). [`Aligning`] builds any other byte range from these. The page cache and direct
//! I/O never meet in one page: only the bytes behind the last unit are in the page cache.

mod identity;
mod label;
mod worker;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block::{self, BLOCK_BYTES, Backend, BlockError, BlockIo, Existing};
use slab::Slab;

use self::label::LabelPlaces;
use self::worker::FileWorker;
use super::{
    Aligning, Backing, BackingError, Completion, Identity, Op, OpenError, Request, StoreLabel, Waker,
    label_file,
};

/// Options of opening a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether writes are refused.
    pub read_only: bool,
    /// I/O backend.
    pub backend: Backend,
    /// Folder for the label of a device, or of a file beside which nothing can be written.
    pub state_dir: Option<PathBuf>,
}

/// A file or block device as a store.
pub type FileBacking = Aligning<FileUnits>;

impl FileBacking {
    /// Opens an existing file or device; it is never created, nor its length changed. It stays
    /// locked while it is open: a writer excludes all others, a reader excludes writers.
    pub fn open(path: &Path, options: FileOptions) -> Result<Self, OpenError> {
        let units = FileUnits::open(path, options)?;
        Ok(Aligning::new(units, BLOCK_BYTES as u64, true))
    }
}

/// A file that takes whole units, in buffers of exactly their length, and the bytes behind the last of them.
pub struct FileUnits {
    blocks: Option<Box<dyn BlockIo>>,
    worker: FileWorker,
    file: Arc<File>,
    size_bytes: u64,
    read_only: bool,
    label_places: LabelPlaces,
    /// Requests given to `blocks`: the token, the length, and the session when they were submitted.
    flights: Slab<(u64, u64, u64)>,
    arrived: Vec<block::Completion>,
}

impl FileUnits {
    fn open(path: &Path, options: FileOptions) -> Result<Self, OpenError> {
        let FileOptions { read_only, backend, state_dir } = options;
        let opened = block::open_existing(path, read_only, backend);
        let Existing { blocks, file, size_bytes } =
            opened.map_err(|error| explain(path, error, read_only))?;
        let worker = FileWorker::start(file.clone(), size_bytes)?;
        let (flights, arrived) = (Slab::new(), Vec::new());
        let which = identity::identity(&file).which.unwrap_or_else(|| path.display().to_string());
        let elsewhere = state_dir.map(|folder| label_file(&folder, Identity::lasting(&which)));
        let is_device = file.metadata()?.file_type().is_block_device();
        let label_places = LabelPlaces::new(path, is_device, elsewhere);
        Ok(FileUnits { blocks, worker, file, size_bytes, read_only, label_places, flights, arrived })
    }

    fn arrive(&mut self, completion: block::Completion) -> Completion {
        let (token, bytes, session) = self.flights.remove(completion.token as usize);
        let block::Completion { op, offset, buffer, result, .. } = completion;
        let op = if op == block::Op::Read { Op::Read } else { Op::Write };
        let (result, extents) = (result.map_err(|it| told(&it)), Vec::new());
        Completion { token, op, offset, bytes, buffer, result, extents, session }
    }
}

fn told(error: &BlockError) -> BackingError {
    if error.is_full() { BackingError::Full } else { BackingError::Failed(error.to_string()) }
}

/// More precise errors of opening, as nothing is to be created here.
fn explain(path: &Path, error: block::OpenError, read_only: bool) -> OpenError {
    let path = path.to_owned();
    let wanted = if read_only { "read" } else { "write" };
    if path.is_dir() {
        return OpenError::Directory { path };
    }
    match error {
        block::OpenError::InUse { path } => OpenError::InUse { path, wanted },
        block::OpenError::Io { ref source, .. } => match source.kind() {
            io::ErrorKind::NotFound => OpenError::Missing { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::Forbidden { path, wanted }
            }
            _ => OpenError::File(error),
        },
        _ => OpenError::File(error),
    }
}

impl Backing for FileUnits {
    fn submit(&mut self, request: Request) {
        let op = match request.op {
            Op::Read => block::Op::Read,
            Op::Write => block::Op::Write,
            _ => return self.worker.submit(request),
        };
        let whole = self.size_bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        match &mut self.blocks {
            Some(blocks) if request.offset < whole => {
                let Request { token, offset, bytes, buffer, .. } = request;
                // A write that a flush beside it makes forget is of the session that the flush ends.
                let flight = (token, bytes, self.worker.session());
                let token = self.flights.insert(flight) as u64;
                blocks.submit(block::Request { token, op, offset, buffer });
            }
            _ => self.worker.submit(request),
        }
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let mut arrived = std::mem::take(&mut self.arrived);
        if let Some(blocks) = &mut self.blocks {
            blocks.completed(&mut arrived);
        }
        out.extend(arrived.drain(..).map(|completion| self.arrive(completion)));
        self.arrived = arrived;
        self.worker.completed(out);
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.worker.in_flight()
    }

    fn notify(&mut self, waker: Waker) {
        if let Some(blocks) = &mut self.blocks {
            blocks.notify(waker.clone());
        }
        self.worker.notify(waker);
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn session(&self) -> u64 {
        self.worker.session()
    }

    fn identity(&mut self) -> Identity {
        identity::identity(&self.file)
    }

    fn label(&mut self) -> Result<StoreLabel, BackingError> {
        self.label_places.read(&self.file).map_err(|error| BackingError::Failed(error.to_string()))
    }

    fn set_label(&mut self, text: &str) -> Result<(), BackingError> {
        if self.read_only {
            return Err(BackingError::ReadOnly);
        }
        self.label_places.write(&self.file, text).map_err(|error| BackingError::Failed(error.to_string()))
    }

    fn describe(&self) -> String {
        let how = self.blocks.as_ref().map_or("through the page cache", |blocks| blocks.describe());
        format!("a file, by {how}")
    }
}
