//! The label of a volume: an object of its own below the prefix.

use bytes::Bytes;

use super::access::{Expected, Objects, Trouble};
use super::layout::LABEL;
use crate::backing::{BackingError, LABEL_BYTES_MAX, StoreLabel};

/// The label.
pub(super) async fn get(objects: &Objects) -> Result<StoreLabel, BackingError> {
    let got = objects.get(&objects.path(LABEL), None, LABEL_BYTES_MAX).await.map_err(Trouble::told)?;
    Ok(got
        .map_or(StoreLabel::Absent, |got| StoreLabel::Text(String::from_utf8_lossy(&got.bytes).into_owned())))
}

/// Puts another one in its place.
pub(super) async fn put(objects: &Objects, text: String) -> Result<(), BackingError> {
    let (path, text) = (objects.path(LABEL), Bytes::from(text));
    let got = objects.get(&path, None, LABEL_BYTES_MAX).await.map_err(Trouble::told)?;
    let expected = match got {
        // Sent twice, as its answer was lost, it would not find what it expects.
        Some(got) if got.bytes == text => return Ok(()),
        Some(got) => Expected::Object(got.version),
        None => Expected::Absent,
    };
    match objects.put(&path, text.clone(), &expected).await {
        Err(Trouble::Condition)
            if get(objects).await? == StoreLabel::Text(String::from_utf8_lossy(&text).into_owned()) =>
        {
            Ok(())
        }
        put => put.map(drop).map_err(Trouble::told),
    }
}
