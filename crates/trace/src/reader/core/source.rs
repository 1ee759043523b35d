//! Source of a trace's bytes: a file, decompressed on the way if need be.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use crate::{RecordPosition, TraceError};

const BUFFER_BYTES: usize = 256 << 10;
/// Bytes read at once on opening: enough to tell a format from.
const HEAD_BYTES: u64 = 64 << 10;
/// The largest memory of an xz block, in bytes: xz's level 9 takes 65 MiB, and a hostile header could ask for 4 GiB.
const XZ_MEMORY_BYTES_MAX: u64 = 512 << 20;

/// How a file is packed, told by what it starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Zstandard frames (RFC 8878, section 3.1.1).
    Zstd,
    /// gzip members (RFC 1952, section 2.3.1).
    Gzip,
    /// xz streams (The .xz File Format, section 2.1.1.1).
    Xz,
    /// bzip2 streams.
    Bzip2,
}

impl Packing {
    fn of(head: &[u8]) -> Option<Packing> {
        let magics: [(&[u8], Packing); 4] = [
            (&[0x28, 0xb5, 0x2f, 0xfd], Packing::Zstd),
            (&[0x1f, 0x8b, 8], Packing::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Packing::Xz),
            (b"BZh", Packing::Bzip2),
        ];
        magics.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, packing)| packing)
    }
}

/// A file opened for reading, whether compressed or not.
pub struct Source {
    input: Box<dyn BufRead + Send>,
    file_bytes: u64,
    read: Arc<AtomicU64>,
    packing: Option<Packing>,
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
        let packing = Packing::of(&head);
        let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head).chain(file));
        let input = unpacked(whole, packing).map_err(failed)?;
        Ok(Source { input, file_bytes: meta.len(), read, packing })
    }

    /// The bytes of a file that is in memory.
    pub fn of_bytes(name: &Path, bytes: Vec<u8>) -> Result<Source, TraceError> {
        let packing = Packing::of(&bytes);
        let input = unpacked(Cursor::new(bytes), packing)
            .map_err(|source| TraceError::Open { path: name.to_owned(), source })?;
        Ok(Source { input, file_bytes: 0, read: Arc::default(), packing })
    }

    /// The file's length on disk in bytes; 0 for a pipe.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether the file is compressed.
    pub fn is_compressed(&self) -> bool {
        self.packing.is_some()
    }

    /// The bytes, decompressed.
    #[cfg(feature = "pairs")]
    pub(crate) fn into_input(self) -> Box<dyn BufRead + Send> {
        self.input
    }

    /// The counter of bytes taken from the file so far.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.read.clone()
    }
}

fn unpacked(
    whole: impl BufRead + Send + 'static,
    packing: Option<Packing>,
) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(match packing {
        None => Box::new(whole),
        Some(Packing::Zstd) => buffered(zstd::stream::read::Decoder::with_buffer(whole)?),
        Some(Packing::Gzip) => buffered(flate2::bufread::MultiGzDecoder::new(whole)),
        Some(Packing::Xz) => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED)?;
            buffered(XzDecoder::new_stream(whole, stream))
        }
        Some(Packing::Bzip2) => buffered(bzip2::bufread::MultiBzDecoder::new(whole)),
    })
}

fn buffered(decoder: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
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
pub(crate) fn read_error(path: &Path, place: RecordPosition, source: io::Error) -> TraceError {
    TraceError::Read { path: path.to_owned(), place, source }
}
