//! Binary interface of `linux/userfaultfd.h`, as of Linux 6.8. The header of the distribution may lack the newer half.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub const API: u64 = 0xAA;
/// A flag of the system call: faults of the program alone, not those that the kernel has on its behalf.
pub const USER_MODE_ONLY: libc::c_int = 1;

pub const REGISTER_MISSING: u64 = 1 << 0;
pub const REGISTER_WRITE_PROTECT: u64 = 1 << 1;
pub const REGISTER_MINOR: u64 = 1 << 2;

/// For all calls that could wake: they do not.
pub const DONT_WAKE: u64 = 1 << 0;
pub const COPY_WRITE_PROTECT: u64 = 1 << 1;
pub const CONTINUE_WRITE_PROTECT: u64 = 1 << 1;
pub const MOVE_ALLOW_HOLES: u64 = 1 << 1;
pub const WRITE_PROTECT: u64 = 1 << 0;
pub const WRITE_PROTECT_DONT_WAKE: u64 = 1 << 1;

pub const EVENT_FAULT: u8 = 0x12;
pub const EVENT_FORK: u8 = 0x13;
pub const EVENT_REMAP: u8 = 0x14;
pub const EVENT_REMOVE: u8 = 0x15;
pub const EVENT_UNMAP: u8 = 0x16;

pub const FAULT_WRITE: u64 = 1 << 0;
pub const FAULT_WRITE_PROTECT: u64 = 1 << 1;
pub const FAULT_MINOR: u64 = 1 << 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Api {
    pub api: u64,
    pub features: u64,
    pub ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Range {
    pub start: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    pub range: Range,
    pub mode: u64,
    pub ioctls: u64,
}

/// The argument of copying and of moving.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FromTo {
    pub to: u64,
    pub from: u64,
    pub bytes: u64,
    pub mode: u64,
    /// Bytes that are done, or an error below zero.
    pub done: i64,
}

/// The argument of mapping zeros, of mapping a file's pages, and of poison.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Fill {
    pub range: Range,
    pub mode: u64,
    /// Bytes that are done, or an error below zero.
    pub done: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteProtect {
    pub range: Range,
    pub mode: u64,
}

/// A message: an event, and three numbers whose meaning depends on it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawMessage {
    pub event: u8,
    pub reserved_1: u8,
    pub reserved_2: u16,
    pub reserved_3: u32,
    pub numbers: [u64; 3],
}

const _: () = assert!(size_of::<Api>() == 24 && size_of::<Range>() == 16 && size_of::<Register>() == 32);
const _: () =
    assert!(size_of::<FromTo>() == 40 && size_of::<Fill>() == 32 && size_of::<WriteProtect>() == 24);
const _: () = assert!(size_of::<RawMessage>() == 32 && std::mem::offset_of!(RawMessage, numbers) == 8);

/// A request and the structure that it takes.
pub trait Request: Sized {
    /// Whether the kernel's number says that it writes to the structure alone (`_IOR`), as some do that only read it.
    const IS_READ_ONLY: bool = false;
}

impl Request for Api {}
impl Request for Register {}
impl Request for FromTo {}
impl Request for Fill {}
impl Request for WriteProtect {}
impl Request for Range {
    const IS_READ_ONLY: bool = true;
}

pub const REQUEST_API: u8 = 0x3F;
pub const REQUEST_REGISTER: u8 = 0x00;
pub const REQUEST_UNREGISTER: u8 = 0x01;
pub const REQUEST_WAKE: u8 = 0x02;
pub const REQUEST_COPY: u8 = 0x03;
pub const REQUEST_ZERO_PAGE: u8 = 0x04;
pub const REQUEST_MOVE: u8 = 0x05;
pub const REQUEST_WRITE_PROTECT: u8 = 0x06;
pub const REQUEST_CONTINUE: u8 = 0x07;
pub const REQUEST_POISON: u8 = 0x08;

/// The number of a request: direction, size of the structure, type, and the request's own number.
pub const fn code<R: Request>(request: u8) -> libc::c_ulong {
    let direction: libc::c_ulong = if R::IS_READ_ONLY { 2 } else { 3 };
    direction << 30 | (size_of::<R>() as libc::c_ulong) << 16 | 0xAA << 8 | request as libc::c_ulong
}

/// Request of `/dev/userfaultfd`: makes a descriptor.
pub const DEVICE_NEW: libc::c_ulong = 0xAA00;

/// Makes a request; `argument` then holds what the kernel wrote, whether it succeeded or not.
///
/// # Safety
/// The request must be one that takes an `R`, and what it does to the memory that it names must be allowed.
pub unsafe fn call<R: Request>(to: BorrowedFd<'_>, request: u8, argument: &mut R) -> io::Result<()> {
    // SAFETY: the argument is as long as the request's number says, and is filled in by the kernel, if at all, before the call
    // returns. The caller answers for the rest.
    match unsafe { libc::ioctl(to.as_raw_fd(), code::<R>(request), std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_kernels_numbers() {
        assert_eq!(code::<Api>(REQUEST_API), 0xC018_AA3F);
        assert_eq!(code::<Register>(REQUEST_REGISTER), 0xC020_AA00);
        assert_eq!(code::<Range>(REQUEST_UNREGISTER), 0x8010_AA01);
        assert_eq!(code::<Range>(REQUEST_WAKE), 0x8010_AA02);
        assert_eq!(code::<FromTo>(REQUEST_COPY), 0xC028_AA03);
        assert_eq!(code::<Fill>(REQUEST_ZERO_PAGE), 0xC020_AA04);
        assert_eq!(code::<FromTo>(REQUEST_MOVE), 0xC028_AA05);
        assert_eq!(code::<WriteProtect>(REQUEST_WRITE_PROTECT), 0xC018_AA06);
        assert_eq!(code::<Fill>(REQUEST_CONTINUE), 0xC020_AA07);
        assert_eq!(code::<Fill>(REQUEST_POISON), 0xC020_AA08);
    }
}
