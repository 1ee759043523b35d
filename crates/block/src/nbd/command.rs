//! Command of one request, in the form that client and server share.

use super::fields::{Fields, Head};
use super::wire::{CommandFlags, REQUEST_BYTES, REQUEST_MAGIC};

/// Command of a request (section "Request types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Give data.
    Read,
    /// Store the data that follow.
    Write,
    /// End the session; there is no reply.
    Disconnect,
    /// Make durable what was acknowledged.
    Flush,
    /// Forget data.
    Trim,
    /// Data will be wanted soon.
    Cache,
    /// Store zeroes.
    WriteZeroes,
    /// Describe extents.
    BlockStatus,
}

impl Command {
    /// All of them; each one's place is its number on the wire.
    pub const ALL: [Command; 8] = [
        Command::Read,
        Command::Write,
        Command::Disconnect,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
        Command::BlockStatus,
    ];

    /// Its number on the wire.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// The command with that number.
    pub fn from_code(code: u16) -> Option<Self> {
        Command::ALL.get(usize::from(code)).copied()
    }

    /// Whether it changes the volume.
    pub fn is_write(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// A request, without the payload of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifies the reply; chosen by the client.
    pub cookie: u64,
    /// The command.
    pub command: Command,
    /// Its flags.
    pub flags: CommandFlags,
    /// The first byte of the volume that it is about.
    pub offset: u64,
    /// Number of bytes.
    pub len_bytes: u32,
}

impl Request {
    /// Bytes that follow the request's header.
    pub fn payload_bytes(&self) -> u32 {
        if self.command == Command::Write { self.len_bytes } else { 0 }
    }

    /// The first byte behind it; ends at the largest number there is.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.len_bytes))
    }

    /// The header as it goes over the wire (section "Request message").
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        Head::new()
            .u32(REQUEST_MAGIC)
            .u16(self.flags.bits())
            .u16(self.command.code())
            .u64(self.cookie)
            .u64(self.offset)
            .u32(self.len_bytes)
            .done()
    }
}

/// The fields of a request that may be nonsense.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRequest {
    pub(super) magic: u32,
    pub(super) flags: CommandFlags,
    pub(super) code: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len_bytes: u32,
}

impl RawRequest {
    /// Reads a header; `None` when `bytes` are too few.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        Some(RawRequest {
            magic: fields.u32()?,
            flags: CommandFlags::from_bits(fields.u16()?),
            code: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len_bytes: fields.u32()?,
        })
    }

    /// The request, if its command is known.
    pub(super) fn request(&self) -> Option<Request> {
        Some(Request {
            cookie: self.cookie,
            command: Command::from_code(self.code)?,
            flags: self.flags,
            offset: self.offset,
            len_bytes: self.len_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_these_bytes() {
        let request = Request {
            cookie: 0x0102_0304_0506_0708,
            command: Command::WriteZeroes,
            flags: CommandFlags::FUA.with(CommandFlags::NO_HOLE),
            offset: 0x1000,
            len_bytes: 0x200,
        };
        let bytes = *b"\x25\x60\x95\x13\x00\x03\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08\
            \x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x02\x00";
        assert_eq!(request.encode(), bytes);
        let raw = RawRequest::decode(&bytes).unwrap();
        assert_eq!((raw.magic, raw.request()), (REQUEST_MAGIC, Some(request)));
        assert!(RawRequest::decode(&bytes[..27]).is_none());
    }

    #[test]
    fn commands_are_known_by_their_numbers() {
        for (code, command) in (0..).zip(Command::ALL) {
            assert_eq!((command.code(), Command::from_code(code)), (code, Some(command)));
        }
        assert_eq!(Command::from_code(8), None);
    }
}
