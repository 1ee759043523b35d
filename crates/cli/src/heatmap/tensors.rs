//! Tensors of mapped model files, in place of the files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use tiermem_trace::recording::{Recording, RegionKind};
use tiermem_trace::tensor_file;

use crate::failure::Failure;

/// The recording, in which a region is a tensor where a model file is mapped. The files are read as they are now.
pub fn divided(recording: &Recording) -> Result<Recording, Failure> {
    let files = recording.head.regions.iter().filter(|region| region.kind == RegionKind::File);
    let mut found = BTreeMap::new();
    let mut unread = Vec::new();
    for path in files.filter_map(|region| region.path.as_deref()) {
        if found.contains_key(path) {
            continue;
        }
        let tensors = tensor_file::read(Path::new(path)).unwrap_or_else(|error| {
            unread.push(format!("{path}: {error}"));
            None
        });
        found.insert(path.to_owned(), tensors.unwrap_or_default());
    }
    if found.values().all(Vec::is_empty) {
        let why = if unread.is_empty() { String::new() } else { format!(" ({})", unread.join("; ")) };
        return Err(Failure::failed(anyhow!(
            "the program had mapped no GGUF or safetensors file that can be read now{why}; --tensors needs the file at its recorded path, \
             and a program that maps it instead of reading it"
        )));
    }
    Ok(recording.by_tensor(|path| found.get(path).cloned().unwrap_or_default()))
}
