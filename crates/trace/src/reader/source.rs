//! The bytes of a trace file, decompressed on the way if need be.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Place, TraceError};

/// What a Zstandard frame starts with (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 256 << 10;
/// Bytes read at once on opening: enough to tell a format from.
const HEAD_BYTES: u64 = 64 << 10;

/// A file opened for reading, whether compressed or not.
pub struct Source {
    input: Box<dyn BufRead + Send>,
    file_bytes: u64,
    read: Arc<AtomicU64>,
    compressed: bool,
}

/// Counts the bytes of the file itself, before decompression: what a progress bar can compare with its length.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

impl Source {
    /// Opens `path` and looks at its first bytes.
    pub fn open(path: &Path) -> Result<Source, TraceError> {
        let failed = |source| TraceError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let read = Arc::new(AtomicU64::new(0));
        let mut file = Counted { file, read: read.clone() };
        // A pipe may hand out fewer bytes than asked for, so this reads until it has them or the end.
        let mut head = Vec::new();
        (&mut file).take(HEAD_BYTES).read_to_end(&mut head).map_err(failed)?;
        let compressed = head.starts_with(&ZSTD_MAGIC);
        let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head).chain(file));
        let input: Box<dyn BufRead + Send> = if compressed {
            let decoder = zstd::stream::read::Decoder::with_buffer(whole).map_err(failed)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(whole)
        };
        Ok(Source { input, file_bytes: meta.len(), read, compressed })
    }

    /// The file's length on disk in bytes; 0 for a pipe.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether the file is Zstandard-compressed.
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// The counter of bytes taken from the file so far.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.read.clone()
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer)
    }
}

impl BufRead for Source {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
    }
}

/// The error for a failed read after the record at `place`.
pub(crate) fn read_error(path: &Path, place: Place, source: io::Error) -> TraceError {
    TraceError::Read { path: path.to_owned(), place, source }
}
