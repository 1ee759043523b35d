//! The few system calls that an agent allows itself (seccomp), all of which concern the address space alone.

use super::batch::{self, Base, Batch, Datum};
use super::calls;
use super::traced::Call;

/// What the agent is made to do later, and how it ends: calls, and of some the arguments (by number) with the values that they may have. A
/// value is the lower half of an argument: the upper one is 0, or no part of what the kernel reads.
const ALLOWED: [(libc::c_long, Arguments); 10] = [
    (libc::SYS_madvise, &[(2, &ADVICE)]),
    (libc::SYS_mmap, &[(2, &[batch::PROTECTION as u32]), (3, &[batch::FLAGS as u32]), (4, &[u32::MAX])]),
    (libc::SYS_munmap, &[]),
    (libc::SYS_mbind, &[(5, &[0])]),
    (libc::SYS_mlock, &[]),
    (libc::SYS_munlock, &[]),
    (libc::SYS_userfaultfd, &[(0, &[calls::USERFAULT_FLAGS as u32])]),
    (libc::SYS_close, &[]),
    (libc::SYS_exit, &[]),
    (libc::SYS_exit_group, &[]),
];
/// Arguments by number, with the values that they may have.
type Arguments = &'static [(u32, &'static [u32])];
const ADVICE: [u32; 4] = [
    libc::MADV_HUGEPAGE as u32,
    libc::MADV_NOHUGEPAGE as u32,
    libc::MADV_DONTDUMP as u32,
    libc::MADV_DODUMP as u32,
];
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// Offsets in the kernel's `seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
const FILTER_BYTES: usize = 8;
/// The name by which `ps` and `top` show it.
const NAME: &[u8] = b"tiermem-agent\0";
/// `_LINUX_CAPABILITY_VERSION_3`, which has two sets of three words.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const CAPABILITY_BYTES: usize = 24;

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

fn answer(value: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, value)
}

/// Skips statements if what was loaded is this value, or if it is not.
fn compare(value: u32, if_equal: usize, if_not: usize) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: if_equal as u8, jf: if_not as u8, k: value }
}

/// Refuses all other calls (EPERM).
fn filter() -> Vec<libc::sock_filter> {
    let refuse = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut filter =
        vec![load(ARCHITECTURE_OFFSET), compare(ARCHITECTURE, 1, 0), refuse, load(NUMBER_OFFSET)];
    for (number, arguments) in ALLOWED {
        let mut rest = Vec::new();
        for (argument, values) in arguments {
            rest.push(load(ARGUMENTS_OFFSET + 8 * argument));
            let count = values.len();
            rest.extend(values.iter().enumerate().map(|(at, value)| compare(*value, count - at, 0)));
            rest.push(refuse);
        }
        rest.push(answer(libc::SECCOMP_RET_ALLOW));
        filter.push(compare(number as u32, 0, rest.len()));
        filter.extend(rest);
    }
    filter.push(refuse);
    filter
}

/// The filter and its description, as `seccomp` wants them.
fn filter_data(batch: &mut Batch, base: Base) -> Datum {
    let filter = filter();
    let mut bytes = Vec::with_capacity(filter.len() * FILTER_BYTES);
    for it in &filter {
        bytes.extend(it.code.to_ne_bytes());
        bytes.extend([it.jt, it.jf]);
        bytes.extend(it.k.to_ne_bytes());
    }
    let instructions = base.of(batch.datum(&bytes));
    // struct sock_fprog: a count, and behind a gap the address.
    let mut description = [0; 16];
    description[..2].copy_from_slice(&(filter.len() as u16).to_ne_bytes());
    description[8..].copy_from_slice(&instructions.to_ne_bytes());
    batch.datum(&description)
}

/// How many steps it takes at first.
pub(super) const STEPS: usize = 7;

/// What a new agent does first: it gives up what it has of the program's (descriptors, session and terminal, folder, rights), takes a name,
/// and allows itself no more than it needs.
pub(super) fn first_steps(base: Base) -> Batch {
    let mut batch = Batch::default();
    let root = base.of(batch.datum(b"/\0"));
    let name = base.of(batch.datum(NAME));
    let filter = base.of(filter_data(&mut batch, base));
    let mut header = [0; 8];
    header[..4].copy_from_slice(&CAPABILITY_VERSION.to_ne_bytes());
    let header = base.of(batch.datum(&header));
    let none = base.of(batch.datum(&[0; CAPABILITY_BYTES]));
    batch.push(calls::close_all(), false);
    batch.push(Call::of(libc::SYS_setsid, []), false);
    batch.push(Call::of(libc::SYS_chdir, [root]), false);
    batch.push(Call::of(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name]), false);
    batch.push(Call::of(libc::SYS_capset, [header, none]), false);
    batch.push(Call::of(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1]), false);
    let seccomp = [u64::from(libc::SECCOMP_SET_MODE_FILTER), 0, filter];
    batch.push(Call::of(libc::SYS_seccomp, seccomp), false);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call, by the rules of the kernel's machine for these three kinds of instruction.
    fn verdict(architecture: u32, number: libc::c_long, arguments: [u32; 6]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        let filter = filter();
        loop {
            let it = filter[at];
            at += 1;
            match u32::from(it.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = match it.k {
                        NUMBER_OFFSET => number as u32,
                        ARCHITECTURE_OFFSET => architecture,
                        offset => arguments[(offset - ARGUMENTS_OFFSET) as usize / 8],
                    };
                }
                code if code == libc::BPF_RET | libc::BPF_K => return it.k,
                _ => at += usize::from(if loaded == it.k { it.jt } else { it.jf }),
            }
        }
    }

    #[test]
    fn only_calls_about_memory_are_allowed_with_what_they_are_needed_for() {
        let allows = |number, arguments| verdict(ARCHITECTURE, number, arguments) == libc::SECCOMP_RET_ALLOW;
        let mapping = [0, 0, batch::PROTECTION as u32, batch::FLAGS as u32, u32::MAX, 0];
        for (number, arguments) in [
            (libc::SYS_madvise, [0, 0, libc::MADV_DONTDUMP as u32, 0, 0, 0]),
            (libc::SYS_madvise, [0, 0, libc::MADV_HUGEPAGE as u32, 0, 0, 0]),
            (libc::SYS_mmap, mapping),
            (libc::SYS_munmap, [7; 6]),
            (libc::SYS_mbind, [9, 9, 2, 9, 65, 0]),
            (libc::SYS_userfaultfd, [calls::USERFAULT_FLAGS as u32, 0, 0, 0, 0, 0]),
            (libc::SYS_exit_group, [7; 6]),
        ] {
            assert!(allows(number, arguments), "{number} {arguments:?}");
            assert_ne!(
                verdict(0x4000_0003, number, arguments),
                libc::SECCOMP_RET_ALLOW,
                "another architecture"
            );
        }
        let change = |at: usize, value: u32| {
            let mut changed = mapping;
            changed[at] = value;
            changed
        };
        for (number, arguments) in [
            (libc::SYS_madvise, [0, 0, libc::MADV_DONTNEED as u32, 0, 0, 0]),
            (libc::SYS_madvise, [0, 0, libc::MADV_HWPOISON as u32, 0, 0, 0]),
            (libc::SYS_mmap, change(2, libc::PROT_WRITE as u32)),
            (libc::SYS_mmap, change(3, libc::MAP_FIXED as u32)),
            (libc::SYS_mmap, change(4, 3)),
            (libc::SYS_mbind, [0, 0, 0, 0, 0, 4]),
            (libc::SYS_userfaultfd, [0; 6]),
            (libc::SYS_openat, [0; 6]),
            (libc::SYS_execve, [0; 6]),
            (libc::SYS_kill, [0; 6]),
            (libc::SYS_ptrace, [0; 6]),
        ] {
            assert!(!allows(number, arguments), "{number} {arguments:?}");
        }
    }
}
