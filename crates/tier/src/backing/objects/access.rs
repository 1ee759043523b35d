//! Access to single objects: get, and conditional put. No call here waits longer than its timeout.

use std::error::Error;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore, PutMode, PutOptions, UpdateVersion};

use crate::backing::BackingError;

/// What a put finds in its place, or it must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// No object.
    Absent,
    /// This one.
    Object(UpdateVersion),
}

/// An object, or what of it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Got {
    pub bytes: Bytes,
    pub version: UpdateVersion,
}

/// Result of reading the manifest again.
pub(super) enum Seen {
    AsBefore,
    Gone,
    Changed(Got),
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Something else was in the object's place.
    Condition,
    /// The store said no, or nothing in time; a put may yet happen.
    Failed(BackingError),
}

impl Trouble {
    /// As an answer to a caller that set no condition.
    pub fn told(self) -> BackingError {
        match self {
            Trouble::Condition => BackingError::Failed("somebody else writes the same object".to_owned()),
            Trouble::Failed(error) => error,
        }
    }
}

/// The objects below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    pub store: Arc<dyn ObjectStore>,
    pub prefix: Path,
    /// Whether the store itself supports conditions. Otherwise no other process may write, which a lock must ensure.
    pub conditional: bool,
    /// Time limit of a request with its repetitions, beside the time of its bytes at [`SLOW_BYTES_PER_S`].
    pub patience: Duration,
}

/// A connection so slow is still waited for.
const SLOW_BYTES_PER_S: u64 = 1 << 20;

/// Most repetitions of a get of an object that turns out to be longer than the get had it.
const LONGER_MAX: usize = 3;

impl Objects {
    pub fn path(&self, name: &str) -> Path {
        let name = Path::from(name);
        let parts = self.prefix.parts().chain(name.parts());
        Path::from_iter(parts)
    }

    async fn within<T>(
        &self,
        bytes: u64,
        what: &str,
        path: &Path,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<object_store::Result<T>, Trouble> {
        let slow = Duration::from_millis(bytes * 1000 / SLOW_BYTES_PER_S);
        tokio::time::timeout(self.patience + slow, work).await.map_err(|_| {
            let seconds = self.patience.as_secs_f64();
            Trouble::Failed(BackingError::Failed(format!(
                "cannot {what} {path}: no answer within {seconds} s"
            )))
        })
    }

    /// All of an object, or those bytes of the range that it has; `None` where there is no object.
    pub async fn get(
        &self,
        path: &Path,
        range: Option<Range<u64>>,
        bytes_max: u64,
    ) -> Result<Option<Got>, Trouble> {
        let got = self.within(bytes_max, "get", path, async {
            let Some(result) = self.get_range(path, range).await? else { return Ok(None) };
            if result.range.is_empty() {
                return Ok(Some(Got { bytes: Bytes::new(), version: version(&result) }));
            }
            // A huge object put here by another program must not fill our memory.
            if result.range.end - result.range.start > bytes_max {
                let source = format!("it has more than {bytes_max} bytes").into();
                return Err(object_store::Error::Generic { store: "volume", source });
            }
            let version = version(&result);
            Ok(Some(Got { bytes: result.bytes().await?, version }))
        });
        got.await?.map_err(|error| failed("get", path, &error))
    }

    /// An object as the store gives it; of one that ends before the range begins, an empty range.
    async fn get_range(
        &self,
        path: &Path,
        range: Option<Range<u64>>,
    ) -> object_store::Result<Option<GetResult>> {
        let mut attempts = 0;
        loop {
            let options = GetOptions { range: range.clone().map(Into::into), ..GetOptions::default() };
            // That it ends before is an error with no name of its own, so other errors come here too.
            let (error, begin) = match (self.store.get_opts(path, options).await, &range) {
                (Ok(result), _) => return Ok(Some(result)),
                (Err(object_store::Error::NotFound { .. }), _) => return Ok(None),
                (Err(error @ object_store::Error::Generic { .. }), Some(range)) => (error, range.start),
                (Err(error), _) => return Err(error),
            };
            let options = GetOptions { head: true, ..GetOptions::default() };
            match self.store.get_opts(path, options).await {
                Ok(found) if found.meta.size <= begin => return Ok(Some(GetResult { range: 0..0, ..found })),
                // A put may just have made it longer.
                Ok(_) if attempts < LONGER_MAX => attempts += 1,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                _ => return Err(error),
            }
        }
    }

    /// Whether an object is still the one it was.
    pub async fn look_again(
        &self,
        path: &Path,
        known: &UpdateVersion,
        bytes_max: u64,
    ) -> Result<Seen, Trouble> {
        let options = GetOptions { if_none_match: known.e_tag.clone(), ..GetOptions::default() };
        let seen = self.within(bytes_max, "get", path, async {
            match self.store.get_opts(path, options).await {
                Ok(result) if result.meta.size > bytes_max => {
                    let source = format!("it has {} bytes", result.meta.size).into();
                    Err(object_store::Error::Generic { store: "volume", source })
                }
                Ok(result) => {
                    let version = version(&result);
                    Ok(Seen::Changed(Got { bytes: result.bytes().await?, version }))
                }
                Err(object_store::Error::NotModified { .. }) => Ok(Seen::AsBefore),
                Err(object_store::Error::NotFound { .. }) => Ok(Seen::Gone),
                Err(error) => Err(error),
            }
        });
        seen.await?.map_err(|error| failed("get", path, &error))
    }

    /// Puts an object in the place of what is expected there.
    pub async fn put(
        &self,
        path: &Path,
        object: Bytes,
        expected: &Expected,
    ) -> Result<UpdateVersion, Trouble> {
        let mode = match expected {
            Expected::Absent => PutMode::Create,
            Expected::Object(version) if self.conditional => PutMode::Update(version.clone()),
            Expected::Object(_) => PutMode::Overwrite,
        };
        let (bytes, options) = (object.len() as u64, PutOptions { mode, ..PutOptions::default() });
        let put = self.within(bytes, "put", path, self.store.put_opts(path, object.into(), options));
        put.await?.map(UpdateVersion::from).map_err(|error| match error {
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
                Trouble::Condition
            }
            error => failed("put", path, &error),
        })
    }

    /// The name of an object below the prefix, if there is any.
    pub async fn any(&self) -> Result<Option<String>, Trouble> {
        let listed = self.store.list_with_delimiter(Some(&self.prefix));
        let listed = self.within(0, "list", &self.prefix, listed).await?;
        let listed = listed.map_err(|error| failed("list", &self.prefix, &error))?;
        let object = listed.objects.first().map(|object| &object.location);
        Ok(object.or(listed.common_prefixes.first()).map(Path::to_string))
    }
}

fn version(result: &GetResult) -> UpdateVersion {
    UpdateVersion { e_tag: result.meta.e_tag.clone(), version: result.meta.version.clone() }
}

fn failed(what: &str, path: &Path, error: &object_store::Error) -> Trouble {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = source {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return Trouble::Failed(BackingError::Full);
        }
        source = cause.source();
    }
    Trouble::Failed(BackingError::Failed(format!("cannot {what} {path}: {error}")))
}
