//! The few system calls that an agent allows itself (seccomp), all of which concern the address space alone.

use super::batch::{Base, Batch, Datum};
use super::calls;
use super::traced::Call;

/// What the agent is made to do later, and how it ends.
const ALLOWED: [libc::c_long; 10] = [
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mbind,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_userfaultfd,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
];
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// Offsets in the kernel's `seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const FILTER_BYTES: usize = 8;
/// The name by which `ps` and `top` show it.
const NAME: &[u8] = b"tiermem-agent\0";

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

fn unless_equal(value: u32, skip: usize) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: 0, jf: skip as u8, k: value }
}

/// Refuses all other calls (EPERM).
fn filter() -> Vec<libc::sock_filter> {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let answer = libc::BPF_RET | libc::BPF_K;
    let refuse = statement(answer, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let allow = statement(answer, libc::SECCOMP_RET_ALLOW);
    let mut filter =
        vec![statement(load, ARCHITECTURE_OFFSET), unless_equal(ARCHITECTURE, ALLOWED.len() * 2 + 1)];
    filter.push(statement(load, NUMBER_OFFSET));
    for number in ALLOWED {
        filter.push(unless_equal(number as u32, 1));
        filter.push(allow);
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
pub(super) const STEPS: usize = 6;

/// What a new agent does first: it gives up what it has of the program's (descriptors, session and terminal, folder), takes a name, and
/// allows itself no more than it needs.
pub(super) fn first_steps(base: Base) -> Batch {
    let mut batch = Batch::default();
    let root = base.of(batch.datum(b"/\0"));
    let name = base.of(batch.datum(NAME));
    let filter = base.of(filter_data(&mut batch, base));
    batch.push(calls::close_all(), false);
    batch.push(Call::of(libc::SYS_setsid, []), false);
    batch.push(Call::of(libc::SYS_chdir, [root]), false);
    batch.push(Call::of(libc::SYS_prctl, [libc::PR_SET_NAME as u64, name]), false);
    batch.push(Call::of(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as u64, 1]), false);
    let seccomp = [u64::from(libc::SECCOMP_SET_MODE_FILTER), 0, filter];
    batch.push(Call::of(libc::SYS_seccomp, seccomp), false);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says of a call, by the rules of the kernel's machine for these three kinds of instruction.
    fn verdict(architecture: u32, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        let filter = filter();
        loop {
            let it = filter[at];
            at += 1;
            match u32::from(it.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = if it.k == NUMBER_OFFSET { number } else { architecture };
                }
                code if code == libc::BPF_RET | libc::BPF_K => return it.k,
                _ => at += usize::from(if loaded == it.k { it.jt } else { it.jf }),
            }
        }
    }

    #[test]
    fn only_calls_about_memory_are_allowed() {
        for number in ALLOWED {
            assert_eq!(verdict(ARCHITECTURE, number as u32), libc::SECCOMP_RET_ALLOW, "{number}");
            assert_ne!(verdict(0x4000_0003, number as u32), libc::SECCOMP_RET_ALLOW, "another architecture");
        }
        for number in [libc::SYS_openat, libc::SYS_execve, libc::SYS_kill, libc::SYS_ioctl, libc::SYS_ptrace]
        {
            assert_ne!(verdict(ARCHITECTURE, number as u32), libc::SECCOMP_RET_ALLOW, "{number}");
        }
    }
}
