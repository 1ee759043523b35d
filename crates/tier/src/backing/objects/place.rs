//! Location of a volume's objects: the object store, and the path in it.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use tiermem_sys::disk;

use super::layout::CHUNKS;
use super::{ObjectsBacking, ObjectsOptions, OpenError};

/// A request's single attempt; what it may take in all is bounded besides.
const ATTEMPT: &str = "100 seconds";
const CONNECT: &str = "5 seconds";
/// For how long refused or broken requests are sent again.
const RETRIES: Duration = Duration::from_secs(20);
const RETRIES_MAX: usize = 8;
const BACKOFF_MAX: Duration = Duration::from_secs(4);

/// Where a volume's objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectsPlace {
    /// A bucket of S3, or of what speaks as S3 does.
    S3 {
        /// The bucket.
        bucket: String,
        /// In front of all names.
        prefix: String,
    },
    /// A directory on this machine.
    Directory(PathBuf),
}

impl fmt::Display for ObjectsPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectsPlace::S3 { bucket, prefix } => write!(out, "s3://{bucket}/{prefix}"),
            ObjectsPlace::Directory(path) => write!(out, "objects:{}", path.display()),
        }
    }
}

impl ObjectsPlace {
    /// Understands `s3://BUCKET/PREFIX` and `objects:DIRECTORY`; `None`: it is something else.
    ///
    /// # Errors
    /// In words, when it begins as one of these and is none.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        if let Some(path) = text.strip_prefix("objects:") {
            let place = ObjectsPlace::Directory(path.into());
            return Some(if path.is_empty() {
                Err("name a directory: objects:PATH".to_owned())
            } else {
                Ok(place)
            });
        }
        let rest = text.strip_prefix("s3://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if bucket.is_empty() || prefix.is_empty() {
            return Some(Err("name a bucket and a prefix: s3://BUCKET/PREFIX".to_owned()));
        }
        Some(match Path::parse(prefix) {
            Ok(_) => Ok(ObjectsPlace::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() }),
            Err(error) => Err(format!("`{prefix}` cannot stand in front of names: {error}")),
        })
    }

    /// Opens the volume there, or makes it.
    pub fn open(&self, options: ObjectsOptions) -> Result<ObjectsBacking, OpenError> {
        match self {
            ObjectsPlace::S3 { bucket, prefix } => {
                let store = s3(bucket).map_err(|why| OpenError::Unusable { place: self.to_string(), why })?;
                ObjectsBacking::open(store, prefix, &self.to_string(), options)
            }
            ObjectsPlace::Directory(path) => {
                let lock = self.lock(path, &options)?;
                if !options.read_only {
                    sweep(path);
                    sweep(&path.join(CHUNKS));
                }
                let store = LocalFileSystem::new_with_prefix(path).map_err(|error| OpenError::Unusable {
                    place: self.to_string(),
                    why: error.to_string(),
                })?;
                let store = Arc::new(store.with_fsync(true));
                ObjectsBacking::open_locked(store, &self.to_string(), options, lock)
            }
        }
    }

    /// Locks a directory: a writer excludes all others, a reader excludes writers.
    fn lock(&self, path: &FilePath, options: &ObjectsOptions) -> Result<File, OpenError> {
        let failed = |error: std::io::Error| {
            let why = if error.kind() == std::io::ErrorKind::NotFound {
                super::missing()
            } else {
                error.to_string()
            };
            OpenError::Unusable { place: self.to_string(), why }
        };
        if options.create_bytes.is_some() && !options.read_only {
            fs::create_dir_all(path).map_err(failed)?;
        }
        let directory = File::open(path).map_err(failed)?;
        let (locked, wanted) = match options.read_only {
            true => (disk::lock_shared(&directory), "read"),
            false => (disk::lock(&directory), "write"),
        };
        match locked {
            Ok(true) => Ok(directory),
            Ok(false) => Err(OpenError::InUse { path: path.to_owned(), wanted }),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Removes what puts left that a death cut short: the client writes `NAME#NUMBER` first. What cannot be removed only takes room.
fn sweep(directory: &FilePath) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.rsplit_once('#')).map(|(_, number)| number);
        if number.is_some_and(|it| !it.is_empty() && it.bytes().all(|digit| digit.is_ascii_digit())) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A bucket, by what the environment says of it.
fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    // Once in a process; an error means that another thread has installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig {
        backoff: BackoffConfig { max_backoff: BACKOFF_MAX, ..BackoffConfig::default() },
        max_retries: RETRIES_MAX,
        retry_timeout: RETRIES,
    };
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let in_clear = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    // A user that names such an endpoint wants it.
    let defaults = [
        (ClientConfigKey::Timeout, ATTEMPT),
        (ClientConfigKey::ConnectTimeout, CONNECT),
        (ClientConfigKey::AllowHttp, if in_clear { "true" } else { "false" }),
    ];
    let asked = |key: &str| std::env::var_os(key).is_some();
    for ((key, value), variable) in
        defaults.into_iter().zip(["AWS_TIMEOUT", "AWS_CONNECT_TIMEOUT", "AWS_ALLOW_HTTP"])
    {
        if !asked(variable) {
            builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
        }
    }
    Ok(Arc::new(builder.build().map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_understood() {
        let place = |text| ObjectsPlace::parse(text);
        let s3 = |bucket: &str, prefix: &str| {
            Some(Ok(ObjectsPlace::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() }))
        };
        assert_eq!(place("s3://bucket/a/b"), s3("bucket", "a/b"));
        assert_eq!(place("s3://bucket/a/"), s3("bucket", "a"));
        assert_eq!(place("objects:/srv/volume"), Some(Ok(ObjectsPlace::Directory("/srv/volume".into()))));
        for text in ["nbd://host/disk", "disk.img", "S3://bucket/a"] {
            assert_eq!(place(text), None, "{text}");
        }
        for text in ["s3://", "s3://bucket", "s3:///a", "s3://bucket//", "s3://bucket/a//b", "objects:"] {
            assert!(matches!(place(text), Some(Err(_))), "{text}");
        }
    }
}
