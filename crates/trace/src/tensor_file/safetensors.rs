//! Safetensors: <https://huggingface.co/docs/safetensors>. The length of a header, the header in JSON, the data.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::Deserialize;

use super::damaged;

/// As long as the library of that name lets a header be.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// Words about the file, and no tensor.
const METADATA: &str = "__metadata__";

#[derive(Deserialize)]
struct Entry {
    /// From where to where the tensor lies, behind the header.
    data_offsets: Option<(u64, u64)>,
}

/// Names of tensors, and where they start; `None` if the file is of another kind.
pub(super) fn begins(mut file: impl Read, length: u64) -> io::Result<Option<Vec<(String, u64)>>> {
    let mut bytes = [0; 8];
    if length < 8 {
        return Ok(None);
    }
    file.read_exact(&mut bytes)?;
    let header_bytes = u64::from_le_bytes(bytes);
    if header_bytes > HEADER_BYTES_MAX || header_bytes > length - 8 {
        return Ok(None);
    }
    let mut header = Vec::new();
    file.take(header_bytes).read_to_end(&mut header)?;
    let Ok(entries) = serde_json::from_slice::<BTreeMap<String, Entry>>(&header) else { return Ok(None) };
    let data = 8 + header_bytes;
    let mut found = Vec::new();
    for (name, entry) in entries.into_iter().filter(|(name, _)| name != METADATA) {
        let Some((from, _)) = entry.data_offsets else { return Ok(None) };
        let start = data.checked_add(from).ok_or_else(|| damaged("a tensor lies behind the file's end"))?;
        found.push((name, start));
    }
    Ok(Some(found))
}
