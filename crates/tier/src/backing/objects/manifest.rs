//! Manifest of a volume: its identity, its writer, and a number that shows whether it was changed.

use bytes::Bytes;
use object_store::UpdateVersion;
use serde::{Deserialize, Serialize};

use super::access::{Expected, Objects, Trouble};
use super::layout::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Id, MANIFEST, SIZE_BYTES_MAX, Shape};

/// Marks a JSON object as a manifest.
const FORMAT: &str = "tiermem volume";

/// The only version yet.
const VERSION: u32 = 1;

/// No manifest is larger.
pub(super) const MANIFEST_BYTES_MAX: u64 = 64 << 10;

/// Attempts to become the writer, where others do too at that moment.
const ATTEMPTS_MAX: usize = 16;

/// The manifest's fields, as in its JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: String,
    version: u32,
    /// Permanent identity of the volume.
    pub volume: Id,
    pub size_bytes: u64,
    pub chunk_bytes: u64,
    /// The last process that opened it to write, and the number of such openings up to it.
    pub writer: Option<Id>,
    pub openings: u64,
    /// Grows before anything is changed, at least once between two answers to what state the volume is in.
    pub changes: u64,
}

/// Fields of every version, to distinguish other versions from other data.
#[derive(Deserialize)]
struct Preamble {
    format: String,
    version: u64,
}

/// Why an object is no manifest that can be worked with.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("{MANIFEST} there is not of a volume; name another place")]
    Stranger,
    #[error(
        "{MANIFEST} there is of format version {0}, and this program knows version {VERSION}; use a newer one"
    )]
    Version(u64),
    #[error("{MANIFEST} there is damaged ({0}); restore it")]
    Damaged(String),
}

impl Manifest {
    /// The manifest of a volume that was never opened.
    pub fn new(volume: Id, shape: Shape) -> Self {
        Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            volume,
            size_bytes: shape.size_bytes,
            chunk_bytes: shape.chunk_bytes,
            writer: None,
            openings: 0,
            changes: 0,
        }
    }

    pub fn shape(&self) -> Shape {
        Shape { size_bytes: self.size_bytes, chunk_bytes: self.chunk_bytes }
    }

    pub fn encode(&self) -> Result<Bytes, Trouble> {
        let text = serde_json::to_vec_pretty(self).map(Bytes::from);
        text.map_err(|error| Trouble::Failed(crate::backing::BackingError::Failed(error.to_string())))
    }

    pub fn decode(text: &[u8]) -> Result<Manifest, ManifestError> {
        let damaged = |error: serde_json::Error| ManifestError::Damaged(error.to_string());
        let value: serde_json::Value = serde_json::from_slice(text).map_err(damaged)?;
        let Ok(Preamble { format, version }) = Preamble::deserialize(&value) else {
            return Err(ManifestError::Stranger);
        };
        if format != FORMAT {
            return Err(ManifestError::Stranger);
        }
        if version != u64::from(VERSION) {
            return Err(ManifestError::Version(version));
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(damaged)?;
        check_shape(manifest.shape()).map_err(ManifestError::Damaged)?;
        Ok(manifest)
    }
}

/// What a volume's size and the size of its chunks may be.
pub(super) fn check_shape(Shape { size_bytes, chunk_bytes }: Shape) -> Result<(), String> {
    if !chunk_bytes.is_power_of_two() || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        return Err(format!(
            "chunks have a power of two of bytes, from 64KiB to 64MiB, and not {chunk_bytes}"
        ));
    }
    if size_bytes == 0 || size_bytes > SIZE_BYTES_MAX {
        return Err(format!("a volume has 1 byte to 8PiB, and not {size_bytes} bytes"));
    }
    Ok(())
}

/// Gets the manifest, if there is one.
///
/// # Errors
/// In words, with what to do.
pub(super) async fn find(objects: &Objects) -> Result<Option<(Manifest, UpdateVersion)>, String> {
    let path = objects.path(MANIFEST);
    let got = objects.get(&path, None, MANIFEST_BYTES_MAX).await;
    let Some(got) = got.map_err(|trouble| trouble.told().to_string())? else { return Ok(None) };
    let manifest = Manifest::decode(&got.bytes).map_err(|error| error.to_string())?;
    Ok(Some((manifest, got.version)))
}

/// Makes a volume where there is nothing. Another one may do so at the same moment; then there is one volume, and it is either's.
///
/// # Errors
/// In words, with what to do.
pub(super) async fn create(objects: &Objects, shape: Shape) -> Result<(), String> {
    check_shape(shape)?;
    if let Some(name) = objects.any().await.map_err(|trouble| trouble.told().to_string())? {
        // Another one may just have made it, and written to it.
        if find(objects).await?.is_some() {
            return Ok(());
        }
        return Err(format!(
            "there is no volume, but something else ({name}): remove it, or name another place"
        ));
    }
    let volume = Id::random().ok_or("the system gives no random bytes")?;
    let text = Manifest::new(volume, shape).encode().map_err(|trouble| trouble.told().to_string())?;
    match objects.put(&objects.path(MANIFEST), text, &Expected::Absent).await {
        // In either case the present manifest is read next.
        Ok(_) | Err(Trouble::Condition) => Ok(()),
        Err(trouble) => Err(trouble.told().to_string()),
    }
}

/// Makes `me` the writer.
///
/// # Errors
/// As a message that says what to do.
pub(super) async fn take_over(
    objects: &Objects,
    mut manifest: Manifest,
    mut version: UpdateVersion,
    me: Id,
) -> Result<(Manifest, UpdateVersion), String> {
    let path = objects.path(MANIFEST);
    for _ in 0..ATTEMPTS_MAX {
        let before = version;
        let openings = manifest.openings.saturating_add(1);
        manifest = Manifest { writer: Some(me), openings, ..manifest };
        let text = manifest.encode().map_err(|trouble| trouble.told().to_string())?;
        match objects.put(&path, text, &Expected::Object(before.clone())).await {
            Ok(version) => {
                if objects.conditional {
                    probe(objects, &manifest, before).await?;
                }
                return Ok((manifest, version));
            }
            Err(Trouble::Condition) => {}
            Err(trouble) => return Err(trouble.told().to_string()),
        }
        // Another process was quicker; or it was ours, sent twice as its answer was lost.
        let found = find(objects).await?;
        (manifest, version) = found.ok_or("the manifest has just been removed")?;
        if manifest.writer == Some(me) {
            return Ok((manifest, version));
        }
    }
    Err("others open the volume to write all the time; stop them".to_owned())
}

/// Some stores take no notice of conditions. Puts that must fail tell; if they do not, they change nothing.
async fn probe(objects: &Objects, manifest: &Manifest, before: UpdateVersion) -> Result<(), String> {
    let path = objects.path(MANIFEST);
    for (header, expected) in [("If-Match", Expected::Object(before)), ("If-None-Match", Expected::Absent)] {
        let text = manifest.encode().map_err(|trouble| trouble.told().to_string())?;
        match objects.put(&path, text, &expected).await {
            Err(Trouble::Condition) => {}
            Err(trouble) => return Err(trouble.told().to_string()),
            Ok(_) => {
                return Err(format!(
                    "the store takes no notice of {header} in puts, so two servers could destroy each other's \
                     writes; use a store that does, or open the volume with `,read-only`"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { size_bytes: 10 << 20, chunk_bytes: 1 << 20 };

    #[test]
    fn a_manifest_is_its_text() {
        let manifest = Manifest { writer: Some(Id([3; 16])), ..Manifest::new(Id([7; 16]), SHAPE) };
        let text = manifest.encode().unwrap();
        assert_eq!(Manifest::decode(&text), Ok(manifest));
        let text = String::from_utf8(text.to_vec()).unwrap();
        for line in [
            r#""format": "tiermem volume""#,
            r#""version": 1"#,
            r#""volume": "07070707070707070707070707070707""#,
            r#""size_bytes": 10485760"#,
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused() {
        let good = String::from_utf8(Manifest::new(Id([7; 16]), SHAPE).encode().unwrap().to_vec()).unwrap();
        for at in 0..good.len() {
            let torn = Manifest::decode(&good.as_bytes()[..at]);
            assert!(matches!(torn, Err(ManifestError::Damaged(_))), "{at}: {torn:?}");
        }
        for (from, to) in [
            ("10485760", "0"),
            ("1048576", "1048577"),
            ("null", "\"me\""),
            ("\"changes\"", "\"more\""),
            ("\"openings\": 0", "\"openings\": -1"),
        ] {
            let wrong = Manifest::decode(good.replace(from, to).as_bytes());
            assert!(matches!(wrong, Err(ManifestError::Damaged(_))), "{to}: {wrong:?}");
        }
        let other = good.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(Manifest::decode(other.as_bytes()), Err(ManifestError::Version(2)));
        for other in ["{}", "[1]", "7", "{\"format\": \"rbd\", \"version\": 1}"] {
            assert_eq!(Manifest::decode(other.as_bytes()), Err(ManifestError::Stranger), "{other}");
        }
    }
}
