//! Output file of a writer: under a temporary name until it is complete, compressed on the way if need be.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::TraceError;

const BUFFER_BYTES: usize = 256 << 10;
/// Fast, and within a few percent of the default for traces.
const ZSTD_LEVEL: i32 = 3;

/// A file that appears when it is complete.
pub(crate) struct Output {
    path: PathBuf,
    encoder: Encoder,
    /// The file under its temporary name; `None` for pipes and devices.
    temporary: Option<NamedTempFile>,
}

enum Encoder {
    Plain(BufWriter<File>),
    Zstd(zstd::Encoder<'static, BufWriter<File>>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
}

impl Output {
    /// Starts the file, compressed as its name says.
    pub fn create(path: &Path) -> Result<Output, TraceError> {
        let name = path.to_string_lossy().to_ascii_lowercase();
        Output::start(path, &name).map_err(write_error(path))
    }

    /// Starts the file, uncompressed whatever its name says: for formats that compress within.
    #[cfg(feature = "parquet")]
    pub fn create_plain(path: &Path) -> Result<Output, TraceError> {
        Output::start(path, "").map_err(write_error(path))
    }

    fn start(path: &Path, name: &str) -> io::Result<Output> {
        let is_special = path.metadata().is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let (file, temporary) = match is_special {
            true => (OpenOptions::new().write(true).open(path)?, None),
            false => {
                let temporary = named_beside(path)?;
                (temporary.reopen()?, Some(temporary))
            }
        };
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let encoder = if name.ends_with(".zst") {
            Encoder::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?)
        } else if name.ends_with(".gz") {
            Encoder::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default()))
        } else {
            Encoder::Plain(file)
        };
        Ok(Output { path: path.to_owned(), encoder, temporary })
    }

    /// The file's name in the end.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is left and gives the file its name.
    pub fn finish(self) -> Result<(), TraceError> {
        self.finish_as(false)
    }

    /// The same for a file that takes the place of another one, which must not be lost with the machine's power.
    #[cfg(feature = "parquet")]
    pub fn finish_durably(self) -> Result<(), TraceError> {
        self.finish_as(true)
    }

    fn finish_as(self, is_durable: bool) -> Result<(), TraceError> {
        let finish = || {
            let mut file = match self.encoder {
                Encoder::Plain(file) => file,
                Encoder::Zstd(encoder) => encoder.finish()?,
                Encoder::Gzip(encoder) => encoder.finish()?,
            };
            file.flush()?;
            if is_durable && self.temporary.is_some() {
                file.get_ref().sync_data()?;
            }
            match self.temporary {
                Some(temporary) => temporary.persist(&self.path).map(drop).map_err(|error| error.error),
                None => Ok(()),
            }
        };
        finish().map_err(write_error(&self.path))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Plain(file) => file.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
        }
    }
}

/// A temporary file in the folder of `path`, which goes away with its value unless it gets a name.
pub(crate) fn named_beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tiermem-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Traces are no secrets; the umask takes away what its owner wants to keep.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// The error of a failed write of the trace at `path`.
pub(crate) fn write_error(path: &Path) -> impl Fn(io::Error) -> TraceError {
    let path = path.to_owned();
    move |source| TraceError::Write { path: path.clone(), source }
}
