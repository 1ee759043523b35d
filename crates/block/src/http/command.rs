//! Commands of the control API: their parsing and answers, and what each does with the engine.

use serde::{Deserialize, Serialize};
use tiermem_base::Bytes;
use tiermem_policy::extents::Mode;

use super::outcome::{ApiError, Step};
use crate::config::ExportMode;
use crate::disks::Disks;
use crate::engine::{Drops, Engine, ExportStatus, WriteBack};
use crate::server::Progress;

/// `/api/set`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetCommand {
    /// Of which export.
    pub export: String,
    /// Where its writes are to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ExportMode>,
    /// Its quota of the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
}

/// `"none"`, or a size such as `"2GiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Quota(pub Option<Bytes>);

impl std::str::FromStr for Quota {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Quota(None));
        }
        let size =
            text.parse().map_err(|error| format!("a quota is a size such as 2GiB, or none: {error}"))?;
        Ok(Quota(Some(size)))
    }
}

impl TryFrom<String> for Quota {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Quota> for String {
    fn from(quota: Quota) -> Self {
        quota.0.map_or("none".to_owned(), |size| size.to_string())
    }
}

/// `/api/flush` and `/api/drop`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// The export; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export: Option<String>,
}

/// An export after `/api/set`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetDone {
    /// Its name.
    pub export: String,
    /// Where its writes go.
    pub mode: ExportMode,
    /// Its quota of the cache.
    pub quota_bytes: Option<u64>,
    /// Bytes that its store lacks.
    pub dirty_bytes: u64,
    /// Bytes held by all volumes of its share.
    pub share_held_bytes: u64,
}

/// An export after `/api/flush`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flushed {
    /// Its name.
    pub export: String,
    /// Dirty bytes that are in the store now.
    pub written_back_bytes: u64,
}

/// An export after `/api/drop`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// Its name.
    pub export: String,
    /// Bytes of the blocks that were forgotten.
    pub dropped_bytes: u64,
    /// Bytes that its store lacks, which stay.
    pub dirty_bytes: u64,
}

/// A line while something is done.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Working<'a> {
    /// The export.
    pub(super) working_on: &'a str,
    /// What its store lacks.
    pub(super) dirty_bytes: u64,
}

fn find(engine: &Engine, name: &str) -> Result<usize, ApiError> {
    engine.find(name).ok_or_else(|| ApiError::NoExport {
        name: name.to_owned(),
        there: engine.exports().iter().map(|export| export.name.clone()).collect(),
    })
}

fn state(engine: &Engine, at: usize) -> ExportStatus {
    engine.status().exports.swap_remove(at)
}

impl Which {
    /// The names and indices of the selected exports.
    pub(super) fn find(&self, engine: &Engine) -> Result<Vec<(String, usize)>, ApiError> {
        match &self.export {
            Some(name) => Ok(vec![(name.clone(), find(engine, name)?)]),
            None => {
                let names = engine.exports().iter().map(|export| export.name.clone());
                Ok(names.zip(0..).collect())
            }
        }
    }
}

/// Changes both or nothing.
pub(super) fn set(engine: &mut Engine, command: &SetCommand) -> Result<SetDone, ApiError> {
    let at = find(engine, &command.export)?;
    let mode = match command.mode {
        None => None,
        Some(ExportMode::WriteBack) => Some(Mode::WriteBack),
        Some(ExportMode::WriteThrough) => Some(Mode::WriteThrough),
        Some(ExportMode::WriteAround) => Some(Mode::WriteAround),
        Some(ExportMode::ReadOnly) => return Err(ApiError::ReadOnly),
    };
    // Of the two only a quota can be refused to an export that takes writes, so it comes first.
    if let Some(quota) = command.quota
        && (mode.is_none() || !engine.exports()[at].read_only)
    {
        engine.set_quota(at, quota.0.map(|size| size.0))?;
    }
    if let Some(mode) = mode {
        engine.set_mode(at, mode)?;
    }
    let ExportStatus { name, mode, quota_bytes, dirty_bytes, share_held_bytes, .. } = state(engine, at);
    Ok(SetDone { export: name, mode, quota_bytes, dirty_bytes, share_held_bytes })
}

/// Begins to write back all that is dirty of some exports.
pub(super) fn begin_flushes(engine: &mut Engine, found: Vec<(String, usize)>) -> Vec<(String, WriteBack)> {
    found.into_iter().map(|(export, at)| (export, engine.begin_write_back(at))).collect()
}

/// Waits until what was begun is done.
pub(super) fn flush(
    export: String,
    begun: WriteBack,
) -> impl FnMut(&mut Engine) -> Step<Result<Flushed, ApiError>> {
    move |engine| {
        let written = engine.written_back_by(&begun).ok_or(Progress::Waits)?;
        let flushed = |written_back_bytes| Flushed { export: export.clone(), written_back_bytes };
        Ok(written.map(flushed).map_err(ApiError::from))
    }
}

/// Forgets what is clean.
pub(super) fn drop_clean(
    export: String,
    at: usize,
) -> impl FnMut(&mut Engine) -> Step<Result<Dropped, ApiError>> {
    let mut drops = Drops::default();
    move |engine| {
        let before = drops.clone();
        if engine.drop_clean(at, &mut drops) {
            let dirty_bytes = state(engine, at).dirty_bytes;
            return Ok(Ok(Dropped { export: export.clone(), dropped_bytes: drops.bytes(), dirty_bytes }));
        }
        // Where it has not come on, the log is full, and is written first.
        Err(if drops == before { Progress::Waits } else { Progress::Again })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_read_as_they_are_written() {
        let read = |text: &str| serde_json::from_str::<SetCommand>(text);
        let command = read(r#"{"export": "a", "mode": "write-through", "quota": "2GiB"}"#).unwrap();
        assert_eq!(command.mode, Some(ExportMode::WriteThrough));
        assert_eq!(command.quota, Some(Quota(Some(Bytes(2 << 30)))));
        assert_eq!(read(r#"{"export": "a", "quota": "none"}"#).unwrap().quota, Some(Quota(None)));
        assert_eq!(read(r#"{"export": "a"}"#).unwrap().quota, None);
        for wrong in [r#"{}"#, r#"{"export": "a", "quota": "big"}"#, r#"{"export": "a", "modes": "x"}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let again = serde_json::to_string(&command).unwrap();
        assert_eq!(again, r#"{"export":"a","mode":"write-through","quota":"2GiB"}"#);
    }
}
