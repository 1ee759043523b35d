//! Identity of a file or block device, as text: what of it stays over a restart of the machine, and what tells one from another.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::backing::Identity;

/// Where the kernel tells of its devices.
const DEVICES: &str = "/sys/dev/block";

/// The identity of an open file or device.
///
/// A change in the same tick of the file system's clock as the last one is not told apart from it. A device cannot say what others
/// have done to it.
pub(super) fn identity(file: &File) -> Identity {
    let Ok(metadata) = file.metadata() else { return Identity::default() };
    if metadata.file_type().is_block_device() {
        let number = metadata.rdev();
        let mut which = format!("device {number}");
        if let Some(serial) = serial(Path::new(DEVICES), number) {
            which += &format!(", serial {serial}");
        }
        return Identity { which: Some(which), version: None };
    }
    let (modified, changed) =
        ((metadata.mtime(), metadata.mtime_nsec()), (metadata.ctime(), metadata.ctime_nsec()));
    let version = format!(
        "{} bytes, modified {}.{:09}, changed {}.{:09}",
        metadata.size(),
        modified.0,
        modified.1,
        changed.0,
        changed.1
    );
    Identity { which: Some(which_file(&metadata)), version: Some(version) }
}

/// The number of a file's device may be another one after a restart of the machine; the moment of the file's birth is not.
fn which_file(metadata: &Metadata) -> String {
    let which = format!("file {}:{}", metadata.dev(), metadata.ino());
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    born.map_or(which.clone(), |born| format!("{which}, born {}.{:09}", born.as_secs(), born.subsec_nanos()))
}

/// What the kernel knows of a device that stays over a restart, below the folder where it tells so. A partition has its disk's, and
/// its number.
fn serial(devices: &Path, number: u64) -> Option<String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = devices.join(format!("{major}:{minor}"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let known = |folder: &Path| {
        let names =
            ["wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid", "loop/backing_file"];
        names.iter().find_map(|name| read(folder.join(name)))
    };
    match read(device.join("partition")) {
        // The folder of a partition lies in that of its disk; what is there is a link to it.
        Some(part) => Some(format!("{} part {part}", known(std::fs::canonicalize(&device).ok()?.parent()?)?)),
        None => known(&device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_known_by_what_stays_and_a_partition_by_its_disk() {
        let root = std::env::temp_dir().join(format!("tiermem-devices-{}", std::process::id()));
        let devices = root.join("dev");
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::fs::create_dir_all(&devices).unwrap();
        put("sda/device/wwid", "naa.5000 \n");
        put("sda/sda2/partition", "2\n");
        put("vdb/serial", "\n");
        for (number, to) in [("8:0", "sda"), ("8:2", "sda/sda2"), ("253:16", "vdb")] {
            std::os::unix::fs::symlink(root.join(to), devices.join(number)).unwrap();
        }
        let known = |major, minor| serial(&devices, rustix::fs::makedev(major, minor));
        assert_eq!(known(8, 0).as_deref(), Some("naa.5000"));
        assert_eq!(known(8, 2).as_deref(), Some("naa.5000 part 2"));
        assert_eq!((known(253, 16), known(9, 9)), (None, None));
        std::fs::remove_dir_all(root).unwrap();
    }
}
