//! Errors of opening a store, and what to do about them.

use std::path::PathBuf;

use crate::block;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file does not exist.
    #[error("{path} does not exist; make it first (for example: truncate -s 10G {path}), or name another")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A directory.
    #[error(
        "{path} is a directory; name a file or a block device in it, or keep the volume as objects in it: \
         objects:{path},size=10GiB"
    )]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// Not even the right to read, or none to write.
    #[error("{path} may not be opened to {wanted} by this user; change its mode or owner{}", advice(.wanted))]
    Forbidden {
        /// The file.
        path: PathBuf,
        /// What was wanted.
        wanted: &'static str,
    },
    /// Another program works with it.
    #[error("{path} is in use by another server, or is a device that is mounted; stop that first{}", advice(.wanted))]
    InUse {
        /// The file.
        path: PathBuf,
        /// What was wanted of it.
        wanted: &'static str,
    },
    /// Anything else about a file or device.
    #[error(transparent)]
    File(#[from] block::OpenError),
    /// Another server, or objects.
    #[error("cannot use {place} as a store: {why}")]
    Unusable {
        /// Where it is.
        place: String,
        /// Why, and what to do.
        why: String,
    },
    /// A thread could not be started, or something else that the system gives.
    #[error("cannot start the store's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Alternatives for a caller that wanted to write.
fn advice(wanted: &str) -> &'static str {
    if wanted == "write" { ", or open it with `,read-only`" } else { "" }
}
