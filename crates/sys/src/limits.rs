//! Process limits that a server needs raised.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewer files may be open than are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} open files are needed, but the limit is {limit} and may not be raised beyond that")]
pub struct OpenFilesError {
    /// Files needed.
    pub wanted: u64,
    /// Files that may be open now.
    pub limit: u64,
}

/// Sees to it that this process may have `wanted` files open, raising its soft limit, and the hard one where
/// that is allowed.
pub fn raise_open_files(wanted: u64) -> Result<(), OpenFilesError> {
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    let now = getrlimit(Resource::Nofile);
    if enough(now.current) {
        return Ok(());
    }
    if !enough(now.maximum) {
        let both = Rlimit { current: Some(wanted), maximum: Some(wanted) };
        if setrlimit(Resource::Nofile, both).is_ok() {
            return Ok(());
        }
        // What is allowed is better than nothing.
        let most = Rlimit { current: now.maximum, maximum: now.maximum };
        let raised = setrlimit(Resource::Nofile, most).is_ok();
        let limit = if raised { now.maximum } else { now.current };
        return Err(OpenFilesError { wanted, limit: limit.unwrap_or(u64::MAX) });
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum })
        .map_err(|_| OpenFilesError { wanted, limit: now.current.unwrap_or(u64::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modest_wish_is_granted_and_an_absurd_one_told() {
        assert_eq!(raise_open_files(64), Ok(()));
        if let Err(error) = raise_open_files(u64::MAX - 1) {
            assert!(error.limit >= 64);
        }
    }
}
