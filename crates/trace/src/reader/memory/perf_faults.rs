//! Page faults as `perf script` prints them, recorded with `perf record -e page-faults -c 1 -d`:
//!
//! ```text
//! ls  9940/9940  12225.757815: page-faults:     5563876b35c0 __progname ffffffff817554ea elf_load
//! ```
//!
//! The key is the first address after the event, the process is the tenant, the size a page. The address is only printed on
//! request: `perf script -F comm,pid,tid,time,event,addr`. Lines with nothing but an instruction's address are broken, because
//! taking code addresses for data would be a silent error. The event may be `page-faults`, `minor-faults`, `major-faults` or
//! `faults`, with modifiers (`:u`) or a period before it.

use tiermem_base::{Access, Op};

use crate::BadRecord;
use crate::reader::core::clock::{Clock, SECOND_NS};
use crate::reader::core::fields::{hexadecimal, malformed, number_u32, time_ns};
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::lines::{LineFormat, LineOut};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "perf-faults",
    about: "perf script of page faults with -F comm,pid,tid,time,event,addr",
    file_names: &[],
    open: Open::Text(|_| Box::new(PerfFaults::default())),
};

const PAGE_BYTES: u32 = 4096;
const EVENTS: [&[u8]; 4] = [b"page-faults", b"minor-faults", b"major-faults", b"faults"];

#[derive(Default)]
struct PerfFaults {
    clock: Clock,
}

fn is_event(word: &[u8]) -> bool {
    let name = word.split(|byte| *byte == b':').next().unwrap_or_default();
    word.ends_with(b":") && EVENTS.contains(&name)
}

/// Whether an instruction's address and symbol stand here: `ffffffff817554ea elf_load+0x28a (...)`.
fn is_instruction_alone(words: &[&[u8]]) -> bool {
    let is_offset = |word: &[u8]| word.windows(3).any(|part| part == b"+0x");
    match words {
        [_, symbol, rest @ ..] => {
            (is_offset(symbol) || *symbol == b"[unknown]") && rest.iter().all(|word| word.starts_with(b"("))
        }
        _ => false,
    }
}

impl LineFormat for PerfFaults {
    fn line(&mut self, _: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        const WANTED: &str = "a page fault as `perf script -F comm,pid,tid,time,event,addr` prints it";
        if line.starts_with(b"#") || line.is_empty() {
            out.note();
            return Ok(());
        }
        let words: Vec<&[u8]> =
            line.split(|byte| byte.is_ascii_whitespace()).filter(|w| !w.is_empty()).collect();
        let event = words.iter().position(|word| is_event(word)).ok_or_else(|| malformed(WANTED, line))?;
        // Names of commands may hold blanks and digits, so this looks backwards from the event: the time ends with a colon.
        let (before, behind) = (&words[..event], &words[event + 1..]);
        let time_at =
            before.iter().rposition(|word| word.ends_with(b":")).ok_or_else(|| malformed(WANTED, line))?;
        let time = &before[time_at][..before[time_at].len() - 1];
        let at_ns = time_ns("time", time, SECOND_NS)?;
        let is_pid = |word: &&&[u8]| {
            word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'/') && word[0].is_ascii_digit()
        };
        let pid = before[..time_at].iter().rev().find(is_pid).ok_or_else(|| malformed(WANTED, line))?;
        let pid = pid.split(|byte| *byte == b'/').next().unwrap_or_default();
        let tenant = number_u32("pid", pid)?;
        let address = match behind {
            [] => return Err(malformed(WANTED, line)),
            _ if is_instruction_alone(behind) => return Err(malformed(WANTED, line)),
            [address, ..] => hexadecimal("address", address)?,
        };
        let access = Access::new(self.clock.since_start(at_ns), Op::Load, address, PAGE_BYTES);
        out.push(Access { tenant, ..access });
        Ok(())
    }

    fn line_bytes_max(&self) -> usize {
        8192
    }

    fn steps_back(&self) -> u64 {
        self.clock.steps_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::core::lines::tests::read_with;

    fn read(text: &str) -> Vec<Result<Access, String>> {
        read_with(Box::new(PerfFaults::default()), text.as_bytes())
    }

    #[test]
    fn faults_become_loads_of_their_process() {
        let text = "              ls  9940/9940  12225.757815: page-faults:     5563876b35c0 __progname ffffffff817554ea elf_load\n\
                    Web Content 7  812 [001] 12225.757816:          1 page-faults:u:      7fbcf9379110 \n\
                    ls 9940 12225.757817: minor-faults: 7fbcf935fb70 7fbcf935fb70 _start+0x0 (/usr/lib/ld.so)\n";
        let fault = |time_ns, tenant, key| Ok(Access { tenant, ..Access::new(time_ns, Op::Load, key, 4096) });
        let wanted = [
            fault(0, 9940, 0x5563_876b_35c0),
            fault(1000, 812, 0x7fbc_f937_9110),
            fault(2000, 9940, 0x7fbc_f935_fb70),
        ];
        assert_eq!(read(text), wanted);
    }

    #[test]
    fn addresses_of_code_are_not_taken_for_data() {
        for line in [
            "ls  9940 12225.757815:          1 page-faults:  ffffffff817554ea elf_load+0x28a ([kernel.kallsyms])",
            "ls  9940 12225.757815: page-faults:",
            "ls  9940 12225.757815: cycles: 12 34",
            "page-faults: 1234",
            "1.5: page-faults: 1234",
            ": page-faults: 1",
        ] {
            assert!(read(&format!("{line}\n"))[0].is_err(), "{line}");
        }
    }
}
