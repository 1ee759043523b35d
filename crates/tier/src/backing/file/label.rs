//! Where the label of a file or device is kept: in an attribute of the file, where its file system has none in `NAME.tiermem` beside it,
//! and where neither can be written, or for a device, in a file that the caller names.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use rustix::io::Errno;

use crate::backing::label::{
    LABEL_BYTES_MAX, StoreLabel, read_file, read_label_file, write_file, write_label_file,
};

const ATTRIBUTE: &str = "user.tiermem";

/// The places of a file's or device's label.
#[derive(Debug)]
pub struct LabelPlaces {
    /// Beside a file; a device has none.
    beside: Option<PathBuf>,
    elsewhere: Option<PathBuf>,
}

impl LabelPlaces {
    /// Those of a file at this path, or of a device there.
    pub fn new(path: &Path, is_device: bool, elsewhere: Option<PathBuf>) -> Self {
        let beside = (!is_device).then(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".tiermem");
            PathBuf::from(name)
        });
        LabelPlaces { beside, elsewhere }
    }

    /// The label.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, file: &File) -> io::Result<StoreLabel> {
        let Some(beside) = &self.beside else { return read_label_file(self.elsewhere.as_deref()) };
        if let Some(text) = attribute(file)? {
            return Ok(StoreLabel::Text(text));
        }
        Ok(match read_file(beside)? {
            StoreLabel::Absent => match read_label_file(self.elsewhere.as_deref())? {
                StoreLabel::NotKept => StoreLabel::Absent,
                found => found,
            },
            found => found,
        })
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// When no place takes it; then the one before is still there.
    pub fn write(&self, file: &File, text: &str) -> io::Result<()> {
        let Some(beside) = &self.beside else { return write_label_file(self.elsewhere.as_deref(), text) };
        match fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()) {
            Ok(()) => file.sync_all(),
            // Any other error leaves an attribute in place that would be read first.
            Err(Errno::NOTSUP) => write_file(beside, text).or_else(|error| {
                let elsewhere = self.elsewhere.as_deref().ok_or(error)?;
                write_label_file(Some(elsewhere), text)
            }),
            Err(error) => Err(error.into()),
        }
    }
}

fn attribute(file: &File) -> io::Result<Option<String>> {
    let mut text = vec![0; LABEL_BYTES_MAX as usize];
    match fgetxattr(file, ATTRIBUTE, &mut text[..]) {
        Ok(len) => {
            text.truncate(len);
            Ok(Some(String::from_utf8_lossy(&text).into_owned()))
        }
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        // Longer than any of ours.
        Err(Errno::RANGE) => Ok(Some(String::new())),
        Err(error) => Err(error.into()),
    }
}
