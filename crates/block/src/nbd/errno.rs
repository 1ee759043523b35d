//! Errors as they go over the wire (section "Error values").

use std::io;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Errno {
    /// Not permitted, as a write to a read-only export.
    #[error("operation not permitted")]
    Perm,
    /// The storage failed.
    #[error("input/output error")]
    Io,
    /// No memory.
    #[error("cannot allocate memory")]
    NoMem,
    /// The request makes no sense.
    #[error("invalid argument")]
    Inval,
    /// No space is left, or a write reaches beyond the end.
    #[error("no space left on device")]
    NoSpc,
    /// Too long to do at once.
    #[error("value too large")]
    Overflow,
    /// Zeroes could not be had faster than by writing them.
    #[error("operation not supported")]
    NotSup,
    /// The server is going down.
    #[error("server is shutting down")]
    Shutdown,
}

/// Each error and its number.
const NUMBERS: [(Errno, u32); 8] = [
    (Errno::Perm, 1),
    (Errno::Io, 5),
    (Errno::NoMem, 12),
    (Errno::Inval, 22),
    (Errno::NoSpc, 28),
    (Errno::Overflow, 75),
    (Errno::NotSup, 95),
    (Errno::Shutdown, 108),
];

impl Errno {
    /// The number on the wire. It is also Linux's for this error.
    pub fn to_wire(self) -> u32 {
        NUMBERS.iter().find(|(errno, _)| *errno == self).map_or(5, |(_, number)| *number)
    }

    /// The error of a number other than 0. A number unknown to the protocol counts as [`Errno::Inval`].
    pub fn from_wire(number: u32) -> Self {
        NUMBERS.iter().find(|(_, known)| *known == number).map_or(Errno::Inval, |(errno, _)| *errno)
    }

    /// The error to send to a client for Linux's error `errno`.
    ///
    /// A value too large and an operation not supported are promised for
    /// certain requests only, so the system's are not passed on as such.
    pub fn from_os(errno: i32) -> Self {
        match errno {
            // EPERM, EACCES, EROFS
            1 | 13 | 30 => Errno::Perm,
            12 => Errno::NoMem,
            // EINVAL, EOVERFLOW, EOPNOTSUPP
            22 | 75 | 95 => Errno::Inval,
            // ENOSPC, EFBIG, EDQUOT
            28 | 27 | 122 => Errno::NoSpc,
            108 => Errno::Shutdown,
            _ => Errno::Io,
        }
    }

    /// The error to send to a client for `error`.
    pub fn from_io(error: &io::Error) -> Self {
        error.raw_os_error().map_or(Errno::Io, Errno::from_os)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_strangers_are_invalid() {
        for (errno, number) in NUMBERS {
            assert_eq!((errno.to_wire(), Errno::from_wire(number)), (number, errno));
        }
        assert_eq!(Errno::from_wire(2), Errno::Inval);
        assert_eq!(Errno::from_wire(u32::MAX), Errno::Inval);
    }

    #[test]
    fn the_systems_errors_become_the_protocols() {
        for (os, errno) in [
            (1, Errno::Perm),
            (30, Errno::Perm),
            (5, Errno::Io),
            (27, Errno::NoSpc),
            (28, Errno::NoSpc),
            (122, Errno::NoSpc),
            (75, Errno::Inval),
            (95, Errno::Inval),
            (110, Errno::Io),
        ] {
            assert_eq!(Errno::from_os(os), errno, "{os}");
            assert_eq!(Errno::from_io(&io::Error::from_raw_os_error(os)), errno);
        }
        assert_eq!(Errno::from_io(&io::ErrorKind::UnexpectedEof.into()), Errno::Io);
    }
}
