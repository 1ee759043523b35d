//! Labels: a line of text that a store keeps beside its content, of the cache that wrote it last.
//!
//! The text is the cache's; here is where it is kept: with the store, so that it goes where the store goes, or where the store can keep
//! nothing, in a file of this machine.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Most bytes of a label. What is longer was not written here.
pub const LABEL_BYTES_MAX: u64 = 1024;

/// The label of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLabel {
    /// Nothing that goes where the store goes, and nothing was noted of it elsewhere.
    NotKept,
    /// It would be kept, and there is none.
    Absent,
    /// This.
    Text(String),
}

/// The label in a file of its own.
pub(super) fn read_file(path: &Path) -> io::Result<StoreLabel> {
    let mut text = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(LABEL_BYTES_MAX).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(StoreLabel::Absent),
        Err(error) => return Err(error),
    };
    Ok(StoreLabel::Text(String::from_utf8_lossy(&text).into_owned()))
}

/// Writes it there, durably: after a crash the file has the old text or the new one.
pub(super) fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The file in a folder where the label of a store is kept that can keep none itself; its folder is made when it is written.
pub fn label_file(folder: &Path, store: &str) -> PathBuf {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() || ".-_".contains(letter) { letter } else { '_' };
    let readable: String = store.chars().map(letter).take(120).collect();
    // Whatever was replaced or cut off, two stores have two files.
    folder.join(format!("{readable}-{:016x}.label", tiermem_base::hash::trace_key(store.as_bytes())))
}

/// Writes a label where a store that can keep none itself has it.
pub fn write_label_file(path: Option<&Path>, text: &str) -> io::Result<()> {
    let Some(path) = path else {
        return Err(io::Error::new(
            ErrorKind::Unsupported,
            "the store can keep no record, and there is no state_dir for it",
        ));
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    write_file(path, text)
}

/// Reads a label where a store that can keep none itself has it.
pub fn read_label_file(path: Option<&Path>) -> io::Result<StoreLabel> {
    let Some(path) = path else { return Ok(StoreLabel::NotKept) };
    Ok(match read_file(path)? {
        StoreLabel::Absent => StoreLabel::NotKept,
        found => found,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_kept_in_a_file_of_its_own_for_each_store() {
        let folder = std::env::temp_dir().join(format!("tiermem-labels-{}", std::process::id()));
        let stores = ["nbd://a/b", "nbd://a_b", &"x".repeat(300), &"x".repeat(301)];
        let files = stores.map(|store| label_file(&folder, store));
        for (at, file) in files.iter().enumerate() {
            assert!(files[..at].iter().all(|other| other != file) && file.file_name().unwrap().len() < 200);
            assert_eq!(read_label_file(Some(file)).unwrap(), StoreLabel::NotKept);
            write_label_file(Some(file), "old").unwrap();
            write_label_file(Some(file), &format!("label {at}")).unwrap();
        }
        for (at, file) in files.iter().enumerate() {
            assert_eq!(read_label_file(Some(file)).unwrap(), StoreLabel::Text(format!("label {at}")));
        }
        std::fs::remove_dir_all(folder).unwrap();
        assert!(
            write_label_file(None, "label").is_err() && read_label_file(None).unwrap() == StoreLabel::NotKept
        );
    }
}
