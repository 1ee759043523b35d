//! From what an operator writes to an open store.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tiermem_base::{Bytes, Nanos};

use super::{Backend, Backing, FileBacking, FileOptions, NbdBacking, NbdOptions, OpenError, Throttled};
use crate::nbd::{NbdUri, UriError};

/// Where a volume lives, as text: a place, and options behind commas.
///
/// The place is a path, or `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`. The options are `read-only`; `threads`, for a file
/// on a kernel whose io_uring is not to be used; and `delay=TIME`, `bandwidth=SIZE` (a second), which make it slower than it is.
#[derive(Clone, Debug, PartialEq)]
pub struct BackingSpec {
    place: Place,
    read_only: bool,
    backend: Backend,
    delay: Duration,
    bytes_per_s: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Path(PathBuf),
    Nbd(NbdUri),
}

/// Why a text names no store.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Nothing stands in front of the options.
    #[error(
        "name a file, a block device or an NBD export (nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH)"
    )]
    NoPlace,
    /// An option that is not known.
    #[error("`{0}` is no option of a store; there are read-only, threads, delay=TIME and bandwidth=SIZE")]
    Option(String),
    /// An option with a value that it cannot have.
    #[error("`{0}` is no value of this option: {1}")]
    Value(String, String),
    /// The URI is none.
    #[error(transparent)]
    Uri(#[from] UriError),
}

impl FromStr for BackingSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(',');
        let place = parts.next().filter(|place| !place.is_empty()).ok_or(SpecError::NoPlace)?;
        let place =
            if place.contains("://") { Place::Nbd(place.parse()?) } else { Place::Path(place.into()) };
        let backend = Backend::default();
        let (delay, bytes_per_s) = (Duration::ZERO, f64::INFINITY);
        let mut spec = BackingSpec { place, read_only: false, backend, delay, bytes_per_s };
        for option in parts {
            let value = |why: String| SpecError::Value(option.to_owned(), why);
            match option.split_once('=') {
                None if option == "read-only" => spec.read_only = true,
                None if option == "threads" => spec.backend = Backend::Threads,
                Some(("delay", time)) => {
                    let time: Nanos = time.parse().map_err(|error| value(format!("{error}")))?;
                    spec.delay = Duration::from_nanos(time.0);
                }
                Some(("bandwidth", size)) => {
                    let size: Bytes = size.parse().map_err(|error| value(format!("{error}")))?;
                    if size.0 == 0 {
                        return Err(value("nothing would ever be done".to_owned()));
                    }
                    spec.bytes_per_s = size.0 as f64;
                }
                _ => return Err(SpecError::Option(option.to_owned())),
            }
        }
        Ok(spec)
    }
}

impl BackingSpec {
    /// Opens it; to read only where that is asked here or by the text.
    ///
    /// # Errors
    /// When it is not there, may not be opened, or is in use.
    pub fn open(&self, read_only: bool) -> Result<Box<dyn Backing>, OpenError> {
        let read_only = read_only || self.read_only;
        let store: Box<dyn Backing> = match &self.place {
            Place::Path(path) => {
                Box::new(FileBacking::open(path, FileOptions { read_only, backend: self.backend })?)
            }
            Place::Nbd(uri) => {
                Box::new(NbdBacking::connect(uri, NbdOptions { read_only, ..NbdOptions::default() })?)
            }
        };
        if self.delay.is_zero() && self.bytes_per_s.is_infinite() {
            return Ok(store);
        }
        Ok(Box::new(Throttled::new(store, self.delay, self.bytes_per_s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_options_are_told_apart() {
        let spec: BackingSpec = "disk.img,read-only,delay=1ms,bandwidth=1MiB".parse().unwrap();
        assert_eq!(spec.place, Place::Path("disk.img".into()));
        assert!(spec.read_only);
        assert_eq!((spec.delay, spec.bytes_per_s), (Duration::from_millis(1), 1048576.0));
        let spec: BackingSpec = "nbd+unix:///a?socket=/run/s,read-only".parse().unwrap();
        assert!(matches!(spec.place, Place::Nbd(_)) && spec.read_only);
        for wrong in ["", ",read-only", "a,fast", "a,delay=soon", "a,bandwidth=0", "http://a"] {
            assert!(wrong.parse::<BackingSpec>().is_err(), "{wrong}");
        }
    }
}
