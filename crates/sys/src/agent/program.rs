//! Facts of a program that an agent needs: where it has a `syscall` instruction, and whether it can be traced.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
/// Mappings are searched in pieces of this size.
const PIECE_BYTES: u64 = 64 << 10;

/// The memory of a process.
#[derive(Debug)]
pub(super) struct Memory(fs::File);

impl Memory {
    pub fn open(pid: libc::pid_t) -> io::Result<Self> {
        Ok(Memory(fs::File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?))
    }

    pub fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, address)
    }

    /// Writes there, whatever its protection is.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }

    /// Whether a `syscall` instruction is there.
    pub fn has_instruction(&self, address: u64) -> bool {
        let mut found = [0; 2];
        self.read(address, &mut found).is_ok() && found == INSTRUCTION
    }

    /// The address of a `syscall` instruction in what the program may execute: the kernel's own code for programs has one, and so has the
    /// loader and what is linked statically.
    pub fn find_instruction(&self, pid: libc::pid_t) -> io::Result<u64> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut executable: Vec<(bool, u64, u64)> = maps.lines().filter_map(executable).collect();
        // The kernel's own comes first: it is there in every program.
        executable.sort_by_key(|(is_kernels, ..)| !is_kernels);
        let mut piece = vec![0; PIECE_BYTES as usize];
        for (_, start, end) in executable {
            for from in (start..end).step_by(PIECE_BYTES as usize) {
                let bytes = &mut piece[..(end - from).min(PIECE_BYTES) as usize];
                let found = self.read(from, bytes).is_ok().then(|| find(bytes)).flatten();
                if let Some(at) = found {
                    return Ok(from + at as u64);
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::NotFound, "the program has no syscall instruction"))
    }
}

fn find(bytes: &[u8]) -> Option<usize> {
    bytes.windows(INSTRUCTION.len()).position(|window| window == INSTRUCTION)
}

/// The bounds of a mapping that can be executed, and whether it is the kernel's code for programs.
fn executable(line: &str) -> Option<(bool, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_executable = words.next()?.contains('x');
    // A call from there is another one, and it cannot be read.
    let is_other = line.ends_with("[vsyscall]");
    let bounds = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    (is_executable && !is_other).then_some((line.ends_with("[vdso]"), bounds.0, bounds.1))
}

/// A field of `/proc/PID/status`; `None` if there is no such process or field, or it cannot be read.
pub(super) fn status(pid: libc::pid_t, field: &str) -> Option<String> {
    try_status(pid, field).ok().flatten()
}

/// The same, and why it cannot be read.
pub(super) fn try_status(pid: libc::pid_t, field: &str) -> io::Result<Option<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(field_of(&text, field))
}

fn field_of(text: &str, field: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}

/// Whether two processes have one address space.
pub(super) fn share_memory(one: libc::pid_t, other: libc::pid_t) -> io::Result<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: the call takes numbers alone.
    match unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_found_in_code_alone() {
        let lines = [
            "7f0000000000-7f0000001000 r-xp 00000000 00:00 0                  [vdso]",
            "560000000000-560000002000 r-xp 00002000 fe:00 247766             /usr/bin/sleep",
            "560000002000-560000003000 r--p 00002000 fe:00 247766             /usr/bin/sleep",
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]",
        ];
        let found: Vec<_> = lines.iter().map(|line| executable(line)).collect();
        let kernels = Some((true, 0x7f00_0000_0000, 0x7f00_0000_1000));
        assert_eq!(found, [kernels, Some((false, 0x5600_0000_0000, 0x5600_0000_2000)), None, None]);
        assert_eq!(find(&[0x0f, 0x0f, 0x05, 0x0f]), Some(1));
        assert_eq!(find(&[0x05, 0x0f]), None);
        let own = std::process::id() as libc::pid_t;
        let memory = Memory::open(own).unwrap();
        assert!(memory.has_instruction(memory.find_instruction(own).unwrap()));
        assert!(!memory.has_instruction(0));
        assert!(share_memory(own, own).unwrap_or(true));
    }
}
