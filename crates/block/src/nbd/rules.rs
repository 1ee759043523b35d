//! Rules of an export: which requests it takes. The server refuses others, and the client does not send them.

use super::command::{Command, Request};
use super::errno::Errno;
use super::sizes::BlockSizes;
use super::wire::{CommandFlags, TransmissionFlags};

/// Rules of a session's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Bytes of the export.
    pub size_bytes: u64,
    /// Features of the export.
    pub flags: TransmissionFlags,
    /// Sizes of requests.
    pub block: BlockSizes,
    /// Whether replies are structured.
    pub structured: bool,
    /// Whether there is a metadata context to ask about.
    pub contexts: bool,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {error}")]
pub struct Fault {
    /// The error on the wire.
    pub error: Errno,
    /// Words for people.
    pub reason: &'static str,
}

impl Rules {
    /// Whether the export takes `request`. A disconnect is always taken.
    ///
    /// The errors are those of sections "Error values" and "Size constraints". A request for nothing, which the
    /// protocol leaves open, is refused as invalid.
    pub fn check(&self, request: &Request) -> Result<(), Fault> {
        let fault = |error, reason| Err(Fault { error, reason });
        if request.command == Command::Disconnect {
            return Ok(());
        }
        if request.command.is_write() && self.flags.contains(TransmissionFlags::READ_ONLY) {
            return fault(Errno::Perm, "the export is read-only");
        }
        if !self.offers(request.command) {
            return fault(Errno::Inval, "the export does not offer this command");
        }
        if !self.flags_for(request.command).contains(request.flags) {
            return fault(Errno::Inval, "a flag that this command does not have here");
        }
        if request.command == Command::Flush {
            return match (request.offset, request.len_bytes) {
                (0, 0) => Ok(()),
                _ => fault(Errno::Inval, "a flush has no offset and no length"),
            };
        }
        if request.len_bytes == 0 {
            return fault(Errno::Inval, "a request for no bytes");
        }
        if request.offset > self.size_bytes || u64::from(request.len_bytes) > self.size_bytes - request.offset
        {
            let error = match request.command {
                Command::Write | Command::WriteZeroes => Errno::NoSpc,
                _ => Errno::Inval,
            };
            return fault(error, "the request reaches beyond the export");
        }
        // A power of two, so that both can be looked at as one.
        let minimum = u64::from(self.block.minimum.max(1));
        if !(request.offset | u64::from(request.len_bytes)).is_multiple_of(minimum) {
            return fault(Errno::Inval, "the request is not aligned to the minimum block size");
        }
        if request.len_bytes > self.block.payload_max {
            match request.command {
                // Only with structured replies may a client hope that a longer read is cut in chunks.
                Command::Read if self.structured => {
                    return fault(Errno::Overflow, "the read is longer than the maximum payload");
                }
                Command::Read | Command::Write => {
                    return fault(Errno::Inval, "the request is longer than the maximum payload");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn offers(&self, command: Command) -> bool {
        match command {
            Command::Read | Command::Write | Command::Disconnect => true,
            Command::Flush => self.flags.contains(TransmissionFlags::SEND_FLUSH),
            Command::Trim => self.flags.contains(TransmissionFlags::SEND_TRIM),
            Command::Cache => self.flags.contains(TransmissionFlags::SEND_CACHE),
            Command::WriteZeroes => self.flags.contains(TransmissionFlags::SEND_WRITE_ZEROES),
            Command::BlockStatus => self.structured && self.contexts,
        }
    }

    /// The flags that may come with `command`. Where durability was offered, its flag may come with any.
    fn flags_for(&self, command: Command) -> CommandFlags {
        let offered = |feature, flag| {
            if self.flags.contains(feature) { flag } else { CommandFlags::none() }
        };
        offered(TransmissionFlags::SEND_FUA, CommandFlags::FUA).with(match command {
            Command::Read => offered(TransmissionFlags::SEND_DF, CommandFlags::DF),
            Command::WriteZeroes => CommandFlags::NO_HOLE
                .with(offered(TransmissionFlags::SEND_FAST_ZERO, CommandFlags::FAST_ZERO)),
            Command::BlockStatus => CommandFlags::REQ_ONE,
            _ => CommandFlags::none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 20;

    fn rules() -> Rules {
        Rules {
            size_bytes: SIZE,
            flags: TransmissionFlags::from_bits(0xffff).without(TransmissionFlags::READ_ONLY),
            block: BlockSizes { minimum: 512, preferred: 4096, payload_max: 65536 },
            structured: true,
            contexts: true,
        }
    }

    fn check(rules: &Rules, command: Command, flags: CommandFlags, offset: u64, len: u32) -> Option<Errno> {
        let request = Request { cookie: 1, command, flags, offset, len_bytes: len };
        rules.check(&request).err().map(|fault| fault.error)
    }

    #[test]
    fn ranges_end_where_the_export_ends() {
        let rules = rules();
        for (command, beyond) in [
            (Command::Read, Errno::Inval),
            (Command::Write, Errno::NoSpc),
            (Command::Trim, Errno::Inval),
            (Command::Cache, Errno::Inval),
            (Command::WriteZeroes, Errno::NoSpc),
            (Command::BlockStatus, Errno::Inval),
        ] {
            let check = |offset, len| check(&rules, command, CommandFlags::FUA, offset, len);
            assert_eq!(check(SIZE - 512, 512), None, "{command:?}");
            assert_eq!(check(SIZE - 512, 1024), Some(beyond), "{command:?}");
            assert_eq!(check(SIZE, 512), Some(beyond));
            assert_eq!(check(u64::MAX - 511, 512), Some(beyond));
            assert_eq!(check(0, 0), Some(Errno::Inval));
            assert_eq!(check(1, 512), Some(Errno::Inval));
            assert_eq!(check(0, 513), Some(Errno::Inval));
        }
        assert_eq!(check(&rules, Command::Flush, CommandFlags::FUA, 0, 0), None);
        assert_eq!(check(&rules, Command::Flush, CommandFlags::none(), 0, 512), Some(Errno::Inval));
    }

    #[test]
    fn lengths_are_bounded_where_bytes_travel() {
        let mut rules = rules();
        let long = 65536 + 512;
        assert_eq!(check(&rules, Command::Read, CommandFlags::none(), 0, 65536), None);
        assert_eq!(check(&rules, Command::Read, CommandFlags::none(), 0, long), Some(Errno::Overflow));
        assert_eq!(check(&rules, Command::Write, CommandFlags::none(), 0, long), Some(Errno::Inval));
        for command in [Command::Trim, Command::WriteZeroes, Command::Cache, Command::BlockStatus] {
            assert_eq!(check(&rules, command, CommandFlags::none(), 0, long), None);
        }
        rules.structured = false;
        assert_eq!(check(&rules, Command::Read, CommandFlags::none(), 0, long), Some(Errno::Inval));
    }

    #[test]
    fn flags_belong_to_their_commands() {
        let mut rules = rules();
        let flags = [
            (CommandFlags::NO_HOLE, Command::WriteZeroes),
            (CommandFlags::FAST_ZERO, Command::WriteZeroes),
            (CommandFlags::DF, Command::Read),
            (CommandFlags::REQ_ONE, Command::BlockStatus),
        ];
        for (flag, owner) in flags {
            for command in [Command::Read, Command::Write, Command::WriteZeroes, Command::BlockStatus] {
                let expected = (command != owner).then_some(Errno::Inval);
                assert_eq!(check(&rules, command, flag, 0, 512), expected, "{command:?} {flag:?}");
            }
        }
        let unknown = CommandFlags::from_bits(1 << 15);
        assert_eq!(check(&rules, Command::Read, unknown, 0, 512), Some(Errno::Inval));
        rules.flags = TransmissionFlags::SEND_WRITE_ZEROES;
        for (flag, expected) in [
            (CommandFlags::NO_HOLE, None),
            (CommandFlags::FAST_ZERO, Some(Errno::Inval)),
            (CommandFlags::FUA, Some(Errno::Inval)),
        ] {
            assert_eq!(check(&rules, Command::WriteZeroes, flag, 0, 512), expected);
        }
    }

    #[test]
    fn what_was_not_offered_is_invalid_and_read_only_is_not_permitted() {
        let mut rules = rules();
        rules.flags = TransmissionFlags::HAS_FLAGS;
        rules.contexts = false;
        for command in Command::ALL {
            let basic = matches!(command, Command::Read | Command::Write | Command::Disconnect);
            let expected = (!basic).then_some(Errno::Inval);
            assert_eq!(check(&rules, command, CommandFlags::none(), 0, 512), expected, "{command:?}");
        }
        rules.flags = TransmissionFlags::READ_ONLY;
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            assert_eq!(check(&rules, command, CommandFlags::none(), SIZE, 1), Some(Errno::Perm));
        }
        assert_eq!(check(&rules, Command::Read, CommandFlags::none(), 0, 512), None);
    }
}
