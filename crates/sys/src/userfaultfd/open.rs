//! Opens a userfaultfd: three ways, which differ in whose faults are reported and in the rights that they need.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::abi::{self, Api, FromTo};
use super::features::Features;
use crate::mapping::SharedMapping;
use crate::mapping::pages::{PAGE_BYTES, Space};

const DEVICE: &str = "/dev/userfaultfd";

/// How a descriptor was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the system call, for all faults: with CAP_SYS_PTRACE, or where `vm.unprivileged_userfaultfd` is 1.
    Call,
    /// From `/dev/userfaultfd`, for all faults: for processes that may open it (Linux 6.1).
    Device,
    /// By the system call, for faults of the program alone, which needs no right: a system call that touches a missing page
    /// fails with EFAULT.
    UserModeOnly,
}

/// Options of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The features that it must have.
    pub features: Features,
    /// Whether faults of the program alone are enough.
    pub user_mode_is_enough: bool,
}

/// Why there is no descriptor.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The kernel has no such call.
    #[error(
        "cannot open a userfaultfd: this kernel has none; it needs CONFIG_USERFAULTFD (in a container: a profile that allows the call)"
    )]
    Unsupported,
    /// This process may not.
    #[error(
        "cannot open a userfaultfd for all faults: the call says {call}, {DEVICE} says {device}; give CAP_SYS_PTRACE, or the right \
         to open {DEVICE}, or set vm.unprivileged_userfaultfd=1 (sysctl)"
    )]
    Forbidden {
        /// The error of the system call.
        call: io::Error,
        /// The error of opening the device.
        device: io::Error,
    },
    /// The kernel lacks what was asked for.
    #[error("cannot have {missing} from userfaultfd: this kernel offers {offered}; Linux {} is needed", missing.kernel())]
    Lacks {
        /// The missing features.
        missing: Features,
        /// The features that there are.
        offered: Features,
    },
    /// Fork events were asked for, which this process may not have.
    #[error("cannot have fork events from userfaultfd: {0}; they need CAP_SYS_PTRACE")]
    NoForkEvents(io::Error),
    /// The system says something else.
    #[error("cannot open a userfaultfd: {0}")]
    Io(io::Error),
}

impl OpenError {
    /// The system's error, for callers that can pass on a number alone.
    pub fn into_io(self) -> io::Error {
        match self {
            OpenError::Unsupported => io::Error::from_raw_os_error(libc::ENOSYS),
            OpenError::Lacks { .. } => io::Error::from_raw_os_error(libc::EINVAL),
            OpenError::Forbidden { call: error, .. }
            | OpenError::NoForkEvents(error)
            | OpenError::Io(error) => error,
        }
    }
}

/// A `userfaultfd`, and the process whose memory it is about. A read of it never waits; poll it.
#[derive(Debug)]
pub struct Userfault {
    descriptor: OwnedFd,
    features: Features,
    way: Way,
    space: Space,
}

/// The features that the kernel offers, found out with a descriptor that is closed again; and how that was opened.
///
/// # Errors
/// If this process may have none.
pub fn offered() -> Result<(Features, Way), OpenError> {
    let (descriptor, way) = descriptor(true)?;
    Ok((handshake(descriptor.as_fd(), Features::NONE)?, way))
}

impl Userfault {
    /// Opens one for the memory of this process.
    ///
    /// # Errors
    /// If the kernel lacks a feature or this process a right; the message says which, and how to get it.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let (descriptor, way) = descriptor(options.user_mode_is_enough)?;
        let wanted = options.features;
        match handshake(descriptor.as_fd(), wanted) {
            Ok(_) => Ok(Userfault { descriptor, features: wanted, way, space: Space::Own }),
            // The kernel does not say what it misses, and a descriptor can be asked once.
            Err(OpenError::Io(error)) if error.raw_os_error() == Some(libc::EINVAL) => {
                let (offered, _) = offered()?;
                let missing = wanted - offered;
                if missing.is_empty() {
                    Err(OpenError::Io(error))
                } else {
                    Err(OpenError::Lacks { missing, offered })
                }
            }
            Err(OpenError::Io(error))
                if error.raw_os_error() == Some(libc::EPERM) && wanted.contains(Features::EVENT_FORK) =>
            {
                Err(OpenError::NoForkEvents(error))
            }
            Err(error) => Err(error),
        }
    }

    /// By one way alone, to compare them.
    #[cfg(test)]
    pub(super) fn user_mode_only(features: Features) -> Result<Self, OpenError> {
        let descriptor = by_call(abi::USER_MODE_ONLY).map_err(OpenError::Io)?;
        handshake(descriptor.as_fd(), features)?;
        Ok(Userfault { descriptor, features, way: Way::UserModeOnly, space: Space::Own })
    }

    /// The `userfaultfd` of a child's memory, as a fork message brings it.
    pub(super) fn of_child(descriptor: OwnedFd, parent: &Userfault) -> Self {
        Userfault { descriptor, features: parent.features, way: parent.way, space: Space::Other }
    }

    /// The `userfaultfd` of another process's memory, which has opened it with these options and sent it to this one.
    ///
    /// # Errors
    /// Invalid input if it is no `userfaultfd`, or one of this process's own memory.
    pub fn of_other_process(descriptor: OwnedFd, options: Options) -> io::Result<Self> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
        if !link.to_string_lossy().contains("[userfaultfd]") {
            return Err(invalid(format!("the descriptor is no userfaultfd but {}", link.display())));
        }
        if is_of_this_process(descriptor.as_fd())? {
            return Err(invalid("the userfaultfd is of this process's own memory".to_owned()));
        }
        let way = if options.user_mode_is_enough { Way::UserModeOnly } else { Way::Call };
        Ok(Userfault { descriptor, features: options.features, way, space: Space::Other })
    }

    /// The `userfaultfd` of another process's memory, made by that process and not asked for features yet.
    ///
    /// # Errors
    /// If the kernel lacks a feature.
    pub(crate) fn begin_for_other_process(descriptor: OwnedFd, options: Options) -> Result<Self, OpenError> {
        handshake(descriptor.as_fd(), options.features)?;
        let way = if options.user_mode_is_enough { Way::UserModeOnly } else { Way::Call };
        Ok(Userfault { descriptor, features: options.features, way, space: Space::Other })
    }

    /// The features that it was opened with.
    pub fn features(&self) -> Features {
        self.features
    }

    /// How it was had.
    pub fn way(&self) -> Way {
        self.way
    }

    pub(super) fn space(&self) -> Space {
        self.space
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// A descriptor that has not yet been asked for features.
fn descriptor(user_mode_is_enough: bool) -> Result<(OwnedFd, Way), OpenError> {
    let call = match by_call(0) {
        Ok(descriptor) => return Ok((descriptor, Way::Call)),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return Err(OpenError::Unsupported),
        Err(error) => error,
    };
    let device = match by_device() {
        Ok(descriptor) => return Ok((descriptor, Way::Device)),
        Err(error) => error,
    };
    if user_mode_is_enough {
        match by_call(abi::USER_MODE_ONLY) {
            Ok(descriptor) => return Ok((descriptor, Way::UserModeOnly)),
            // Before Linux 5.11 there is no such flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(OpenError::Io(error)),
        }
    }
    match call.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Err(OpenError::Forbidden { call, device }),
        _ => Err(OpenError::Io(call)),
    }
}

fn by_call(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call takes flags alone.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK | flags) };
    of_number(number)
}

fn by_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    // SAFETY: the request takes flags alone.
    let number =
        unsafe { libc::ioctl(device.as_raw_fd(), abi::DEVICE_NEW, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    of_number(number.into())
}

fn of_number(number: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(number) {
        // SAFETY: the kernel has just returned this descriptor, and no other code knows of it.
        Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Agrees on the interface and its features. Returns all that the kernel has.
fn handshake(descriptor: BorrowedFd<'_>, wanted: Features) -> Result<Features, OpenError> {
    let mut api = Api { api: abi::API, features: wanted.bits(), ioctls: 0 };
    // SAFETY: the request names no memory.
    unsafe { abi::call(descriptor, abi::REQUEST_API, &mut api) }.map_err(OpenError::Io)?;
    Ok(Features::from_bits(api.features))
}

/// Whether it is about the caller's memory. Kernels without moves (before 6.8) do not tell: then the sender's word counts.
///
/// A move is refused at once for another process's memory (EINVAL), before its addresses are looked at; within the own memory
/// an address that is not mapped is told first (ENOENT), and nothing happens either way.
fn is_of_this_process(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    const PAGE: usize = PAGE_BYTES as usize;
    // A hole of one page that nothing is mapped in, unless a thread maps there at this very moment: so it is tried again.
    for _ in 0..3 {
        let around = SharedMapping::anonymous(3 * PAGE).map_err(io::Error::other)?;
        let hole = around.address() + PAGE_BYTES;
        drop(around);
        let mut argument = FromTo { to: hole, from: hole, bytes: PAGE_BYTES, mode: 0, done: 0 };
        // SAFETY: source and target are one and the same range, so that no page can change its place.
        let result = unsafe { abi::call(descriptor, abi::REQUEST_MOVE, &mut argument) };
        if result.is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT)) {
            return Ok(true);
        }
    }
    Ok(false)
}
