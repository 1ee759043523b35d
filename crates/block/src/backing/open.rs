//! Opening of a backing store from its description in the configuration or on the command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use tiermem_base::{Bytes, Nanos};

use super::{NbdOptions, NbdUnits};
use crate::nbd::{NbdUri, UriError};
use tiermem_tier::backing::{Backend, Backing, FileBacking, FileOptions, OpenError, Throttled};
#[cfg(feature = "objects")]
use tiermem_tier::backing::{ObjectsOptions, ObjectsPlace};

/// A backing store as text: a location, and options behind commas.
///
/// The location is a path, or `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`,
/// `s3://BUCKET/PREFIX`, `objects:DIRECTORY`. The options are `read-only`; `threads`, for a
/// file on a kernel whose io_uring must not be used; `size=SIZE` and `chunk=SIZE`, for
/// objects to be created; and `delay=TIME`, `bandwidth=SIZE` (a second), which slow it down.
#[derive(Clone, Debug, PartialEq)]
pub struct BackingSpec {
    place: Location,
    read_only: bool,
    backend: Backend,
    delay: Duration,
    bytes_per_s: f64,
    size: Option<Bytes>,
    chunk: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq)]
enum Location {
    Path(PathBuf),
    Nbd(NbdUri),
    #[cfg(feature = "objects")]
    Objects(ObjectsPlace),
}

/// Why a text names no store.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// No location before the options.
    #[error(
        "name a file, a block device, an NBD export (nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH) or objects \
         (s3://BUCKET/PREFIX, objects:DIRECTORY)"
    )]
    NoPlace,
    /// An option that is not known.
    #[error(
        "`{0}` is no option of a store; there are read-only, threads, size=SIZE, chunk=SIZE, delay=TIME and \
         bandwidth=SIZE"
    )]
    Option(String),
    /// An option of objects for another place.
    #[error(
        "`{0}` is for objects that are to be made (s3://BUCKET/PREFIX, objects:DIRECTORY); a file is made beforehand"
    )]
    NoObjects(String),
    /// A place of objects that is none.
    #[error("{0}")]
    Objects(String),
    /// An option with a value that it cannot have.
    #[error("`{0}` is not a valid value of this option: {1}")]
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
        let place = match objects(place) {
            Some(place) => place.map_err(SpecError::Objects)?,
            None if place.contains("://") => Location::Nbd(place.parse()?),
            None => Location::Path(place.into()),
        };
        let mut spec = BackingSpec {
            place,
            read_only: false,
            backend: Backend::default(),
            delay: Duration::ZERO,
            bytes_per_s: f64::INFINITY,
            size: None,
            chunk: None,
        };
        for option in parts {
            let value = |why: String| SpecError::Value(option.to_owned(), why);
            match option.split_once('=') {
                None if option == "read-only" => spec.read_only = true,
                None if option == "threads" => spec.backend = Backend::Threads,
                Some(("delay", time)) => {
                    let time: Nanos = time.parse().map_err(|error| value(format!("{error}")))?;
                    spec.delay = Duration::from_nanos(time.0);
                }
                Some((name @ ("size" | "chunk"), size)) => {
                    let size: Bytes = size.parse().map_err(|error| value(format!("{error}")))?;
                    if matches!(spec.place, Location::Path(_) | Location::Nbd(_)) {
                        return Err(SpecError::NoObjects(option.to_owned()));
                    }
                    *(if name == "size" { &mut spec.size } else { &mut spec.chunk }) = Some(size);
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

#[cfg(feature = "objects")]
fn objects(place: &str) -> Option<Result<Location, String>> {
    Some(ObjectsPlace::parse(place)?.map(Location::Objects))
}

#[cfg(not(feature = "objects"))]
fn objects(place: &str) -> Option<Result<Location, String>> {
    let is_one = place.starts_with("s3://") || place.starts_with("objects:");
    is_one.then(|| {
        Err(format!("{place}: this program was built without the feature `objects`; build it with it"))
    })
}

impl BackingSpec {
    /// Opens it; to read only where that is asked here or by the text. What a store cannot keep of the cache in front of it is kept
    /// in files of `state_dir`.
    ///
    /// # Errors
    /// When it is not there, may not be opened, or is in use.
    pub fn open(&self, read_only: bool, state_dir: Option<&Path>) -> Result<Box<dyn Backing>, OpenError> {
        let read_only = read_only || self.read_only;
        let state_dir = state_dir.map(Path::to_owned);
        let store: Box<dyn Backing> = match &self.place {
            Location::Path(path) => Box::new(FileBacking::open(
                path,
                FileOptions { read_only, backend: self.backend, state_dir },
            )?),
            Location::Nbd(uri) => Box::new(NbdUnits::connect(
                uri,
                NbdOptions { read_only, state_dir, ..NbdOptions::default() },
            )?),
            #[cfg(feature = "objects")]
            Location::Objects(place) => {
                let (create_bytes, chunk_bytes) = (self.size.map(|it| it.0), self.chunk.map(|it| it.0));
                let options =
                    ObjectsOptions { read_only, create_bytes, chunk_bytes, ..ObjectsOptions::default() };
                Box::new(place.open(options)?)
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
        assert_eq!(spec.place, Location::Path("disk.img".into()));
        assert!(spec.read_only);
        assert_eq!((spec.delay, spec.bytes_per_s), (Duration::from_millis(1), 1048576.0));
        let spec: BackingSpec = "nbd+unix:///a?socket=/run/s,read-only".parse().unwrap();
        assert!(matches!(spec.place, Location::Nbd(_)) && spec.read_only);
        for wrong in [
            "",
            ",read-only",
            "a,fast",
            "a,delay=soon",
            "a,bandwidth=0",
            "http://a",
            "a,size=1GiB",
            "nbd://a/b,chunk=1MiB",
            "s3://,size=1GiB",
            "objects:",
        ] {
            assert!(wrong.parse::<BackingSpec>().is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "objects")]
    #[test]
    fn objects_have_a_size_and_chunks() {
        let spec: BackingSpec = "objects:volume,size=10GiB,chunk=1MiB,read-only".parse().unwrap();
        assert_eq!(spec.place, Location::Objects(ObjectsPlace::Directory("volume".into())));
        assert_eq!((spec.size, spec.chunk), (Some(Bytes(10 << 30)), Some(Bytes(1 << 20))));
        let spec: BackingSpec = "s3://bucket/a/b".parse().unwrap();
        assert!(matches!(spec.place, Location::Objects(ObjectsPlace::S3 { .. })) && spec.size.is_none());
    }

    #[cfg(not(feature = "objects"))]
    #[test]
    fn objects_need_their_feature() {
        let error = "s3://bucket/a".parse::<BackingSpec>().unwrap_err().to_string();
        assert!(error.contains("without the feature `objects`"), "{error}");
    }
}
