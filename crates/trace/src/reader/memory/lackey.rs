//! Memory references of a program under `valgrind --tool=lackey --trace-mem=yes`: `I  addr,size` (instruction fetch), ` L addr,size`,
//! ` S addr,size` and ` M addr,size` (load and store), addresses in hexadecimal.
//!
//! An `M` is two records, a load and a store. Instruction fetches are loads of tenant 1, data is tenant 0, so that they can be
//! told apart. Valgrind's own lines, `==pid== ...` and a few more, are no accesses. The form is described in the Valgrind manual, "Lackey".

use tiermem_base::{Access, Op};

use crate::BadRecord;
use crate::reader::core::fields::{hexadecimal, malformed, number_u32};
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::lines::{LineFormat, LineOut};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "lackey",
    about: "valgrind --tool=lackey --trace-mem=yes: I, L, S, M with address and bytes",
    file_names: &[],
    open: Open::Text(|_| Box::new(Lackey)),
};

/// The tenant of instruction fetches in the format `lackey`; data has tenant 0.
pub const FETCHES: u32 = 1;

/// The beginnings of Valgrind's own lines; the last is of instructions that it does not know.
const OWN: [&[u8]; 3] = [b"==", b"--", b"vex "];

struct Lackey;

impl LineFormat for Lackey {
    fn line(&mut self, _: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        const WANTED: &str = "a line of lackey such as ` L 1fff000758,8`";
        let (kind, rest) = match line {
            [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
            _ if OWN.iter().any(|start| line.starts_with(start)) => {
                out.note();
                return Ok(());
            }
            _ => return Err(malformed(WANTED, line)),
        };
        let comma = memchr::memchr(b',', rest).ok_or_else(|| malformed(WANTED, line))?;
        let address = hexadecimal("address", &rest[..comma])?;
        let size = number_u32("size", &rest[comma + 1..])?;
        let access = |op| Access::new(0, op, address, size);
        match kind {
            b'I' => out.push(Access { tenant: FETCHES, ..access(Op::Load) }),
            b'L' => out.push(access(Op::Load)),
            b'S' => out.push(access(Op::Store)),
            _ => {
                out.push(access(Op::Load));
                out.push(access(Op::Store));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::core::lines::tests::read_with;

    #[test]
    fn references_become_loads_and_stores() {
        let text =
            b"==9933== Command: /bin/true\nvex amd64->IR: unhandled instruction bytes: 0x62 0xF2\nI  0401ab70,3\n S 1fff000758,8\n L 04222c24,4\n M 0421c7cc,4\n";
        let fetch = Access { tenant: 1, ..Access::new(0, Op::Load, 0x0401_ab70, 3) };
        let wanted = [
            Ok(fetch),
            Ok(Access::new(0, Op::Store, 0x1f_ff00_0758, 8)),
            Ok(Access::new(0, Op::Load, 0x0422_2c24, 4)),
            Ok(Access::new(0, Op::Load, 0x0421_c7cc, 4)),
            Ok(Access::new(0, Op::Store, 0x0421_c7cc, 4)),
        ];
        assert_eq!(read_with(Box::new(Lackey), text), wanted);
    }

    #[test]
    fn what_the_program_printed_is_named() {
        for line in [&b"hello"[..], b" L zz,8", b" L 12", b" L 12,", b"I 12,3", b""] {
            assert!(read_with(Box::new(Lackey), &[line, b"\n"].concat())[0].is_err(), "{line:?}");
        }
    }
}
