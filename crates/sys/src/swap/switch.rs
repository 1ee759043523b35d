//! Turning swap on and off: `swapon` and `swapoff`.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::SwapError;
use super::file::check_file;

const FLAG_PREFER: libc::c_int = 0x8000;
const FLAG_DISCARD: libc::c_int = 0x1_0000;
const FLAG_DISCARD_ONCE: libc::c_int = 0x2_0000;
const FLAG_DISCARD_PAGES: libc::c_int = 0x4_0000;
const PRIORITY_MAX: u16 = 0x7fff;

/// When the device is told that places are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discard {
    /// Never.
    #[default]
    Never,
    /// Of all places, once, when it is turned on.
    Once,
    /// Of places that become free, before they are used again.
    Pages,
    /// Both.
    OnceAndPages,
}

/// How an area is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapOptions {
    /// 0 to 32767; the area of the highest priority is filled first, areas of equal priority in turn. None: after all that have
    /// one.
    pub priority: Option<u16>,
    /// What the device is told. One that cannot be told is not.
    pub discard: Discard,
}

impl SwapOptions {
    fn flags(self) -> Option<libc::c_int> {
        let priority = match self.priority {
            Some(priority) if priority > PRIORITY_MAX => return None,
            Some(priority) => FLAG_PREFER | libc::c_int::from(priority),
            None => 0,
        };
        let discard = match self.discard {
            Discard::Never => 0,
            Discard::Once => FLAG_DISCARD | FLAG_DISCARD_ONCE,
            Discard::Pages => FLAG_DISCARD | FLAG_DISCARD_PAGES,
            Discard::OnceAndPages => FLAG_DISCARD,
        };
        Some(priority | discard)
    }
}

/// Has the machine swap to a file or device that has a header.
///
/// # Errors
/// What [`check_file`] finds; `EPERM` without CAP_SYS_ADMIN; `EBUSY` if it is on already; `EINVAL` for a file system that has
/// no swap.
pub fn turn_on(path: &Path, options: SwapOptions) -> Result<(), SwapError> {
    const ATTEMPTED: &str = "turn on swap to";
    let flags = options.flags().ok_or_else(|| SwapError::Value {
        path: path.to_owned(),
        problem: format!("a priority is 0 to {PRIORITY_MAX}"),
    })?;
    check_file(path)?;
    let name = terminated(ATTEMPTED, path)?;
    // SAFETY: the name ends with a zero and outlives the call. No memory of ours changes what it holds.
    match unsafe { libc::swapon(name.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(refused(ATTEMPTED, path)),
    }
}

/// Has the machine swap no more to it: what is there is read back first, which may take long; a signal that ends the process
/// stops it, and then the area stays on.
///
/// # Errors
/// `EPERM` without CAP_SYS_ADMIN; `EINVAL` if it is not on; `ENOMEM` if what is there finds no room in memory.
pub fn turn_off(path: &Path) -> Result<(), SwapError> {
    const ATTEMPTED: &str = "turn off swap to";
    let name = terminated(ATTEMPTED, path)?;
    // SAFETY: the name ends with a zero and outlives the call. No memory of ours changes what it holds.
    match unsafe { libc::swapoff(name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(refused(ATTEMPTED, path)),
    }
}

fn terminated(attempted: &'static str, path: &Path) -> Result<CString, SwapError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| SwapError::io(attempted, path, error.into(), ""))
}

fn refused(attempted: &'static str, path: &Path) -> SwapError {
    let error = io::Error::last_os_error();
    let advice = match error.raw_os_error() {
        Some(libc::EPERM) => "; it needs CAP_SYS_ADMIN (root)",
        Some(libc::EBUSY) => "; it is on already",
        Some(libc::EINVAL) => "; it is not on, or its file system has no swap: choose a path on ext4 or xfs",
        Some(libc::ENOMEM) => "; memory has no room for what is there: end what uses it first",
        Some(libc::ENOSYS) => "; the kernel has no swap (CONFIG_SWAP)",
        _ => "",
    };
    SwapError::io(attempted, path, error, advice)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::swap::{areas, make_file};
    use std::path::PathBuf;
    use std::sync::{Mutex, MutexGuard};

    /// Allows one swap file at a time: pages of other programs that are paged out meanwhile have to be read back.
    static ONE: Mutex<()> = Mutex::new(());

    /// A swap file that is on until this is dropped, also by a test that fails.
    pub(crate) struct TestSwap {
        pub path: PathBuf,
        _one: MutexGuard<'static, ()>,
    }

    impl TestSwap {
        /// None where this may not be done, which is said.
        pub fn on(name: &str, bytes: u64, options: SwapOptions) -> Option<TestSwap> {
            let one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let path = std::env::temp_dir().join(format!("tiermem-swap-{name}-{}", std::process::id()));
            if let Err(error) = make_file(&path, bytes, [7; 16], "tiermem-test") {
                eprintln!("not run: {error}");
                return None;
            }
            match turn_on(&path, options) {
                Ok(()) => Some(TestSwap { path, _one: one }),
                Err(error) => {
                    std::fs::remove_file(&path).unwrap();
                    let known = [libc::EPERM, libc::EINVAL, libc::ENOSYS];
                    assert!(error.raw_os_error().is_some_and(|number| known.contains(&number)), "{error}");
                    eprintln!("not run: {error}");
                    None
                }
            }
        }

        pub fn off(&self) -> Result<(), SwapError> {
            turn_off(&self.path)
        }
    }

    impl Drop for TestSwap {
        fn drop(&mut self) {
            // The file is removed only once no pages are in it.
            let _ = self.off();
            if areas().is_ok_and(|areas| areas.iter().all(|area| area.path != self.path)) {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }

    #[test]
    fn flags_are_the_kernels() {
        let flags = |priority, discard| SwapOptions { priority, discard }.flags();
        assert_eq!(flags(None, Discard::Never), Some(0));
        assert_eq!(flags(Some(0), Discard::Once), Some(0x8000 | 0x30000));
        assert_eq!(flags(Some(32767), Discard::Pages), Some(0xffff | 0x50000));
        assert_eq!(
            (flags(None, Discard::OnceAndPages), flags(Some(32768), Discard::Never)),
            (Some(0x10000), None)
        );
    }

    #[test]
    fn an_area_is_on_with_its_priority_until_it_is_turned_off() {
        let options = SwapOptions { priority: Some(1234), discard: Discard::Pages };
        let Some(swap) = TestSwap::on("switch", 4 << 20, options) else { return };
        let found = areas().unwrap().into_iter().find(|area| area.path == swap.path).unwrap();
        // One page is the header.
        assert_eq!((found.bytes, found.priority, found.is_device), ((4 << 20) - 4096, 1234, false));
        let twice = turn_on(&swap.path, options).unwrap_err();
        assert_eq!(twice.raw_os_error(), Some(libc::EBUSY));
        assert!(twice.to_string().contains("on already"), "{twice}");
        swap.off().unwrap();
        assert!(areas().unwrap().iter().all(|area| area.path != swap.path));
        let off = swap.off().unwrap_err();
        assert!(off.to_string().contains("it is not on"), "{off}");
    }
}
