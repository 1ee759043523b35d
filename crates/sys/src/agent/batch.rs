//! Many system calls at once: a loop and its list are mapped into the address space, run by the agent, and unmapped again.
//!
//! To stop and go on costs some 10 us a call where processors are idle; a list costs that once. It is mapped far from the program's own
//! memory, so that the kernel gives the program the same addresses as without it.

use std::io;

use super::program::Memory;
use super::traced::{Call, Halt, Traced};

/// Calls of one list.
const CALLS_MAX: usize = 1000;
const CALL_WORDS: usize = 8;
const CALL_BYTES: usize = CALL_WORDS * 8;
const PAGE_BYTES: u64 = 4096;
/// Bytes that calls can point to, behind the loop's code.
const DATA_OFFSET: usize = 256;
pub(super) const DATA_BYTES: usize = 1536;
const LIST_OFFSET: usize = 2048;
/// How it is mapped.
pub(super) const PROTECTION: libc::c_int = libc::PROT_READ | libc::PROT_EXEC;
pub(super) const FLAGS: libc::c_int =
    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
/// Addresses for the list: between what is mapped from below (the program, its heap) and from above (all else).
const PLACES: [u64; 4] = [0x2a5e_7b00_0000, 0x1d37_6c00_0000, 0x3391_f400_0000, 0x0e2c_4d00_0000];

// The list's first call is in rbx, its end in r12; r14 counts calls that were passed over. Stops with rbx behind the last call, or at one
// that failed, whose error is in rax.
std::arch::global_asm!(
    ".pushsection .rodata",
    ".globl tiermem_agent_loop",
    ".globl tiermem_agent_loop_end",
    "tiermem_agent_loop:",
    "2: cmp rbx, r12",
    "jae 5f",
    "mov rax, [rbx]",
    "mov rdi, [rbx + 8]",
    "mov rsi, [rbx + 16]",
    "mov rdx, [rbx + 24]",
    "mov r10, [rbx + 32]",
    "mov r8, [rbx + 40]",
    "mov r9, [rbx + 48]",
    "syscall",
    "test rax, rax",
    "jns 4f",
    "cmp qword ptr [rbx + 56], 0",
    "je 5f",
    "cmp rax, -{nomem}",
    "je 3f",
    "cmp rax, -{inval}",
    "jne 5f",
    "3: inc r14",
    "4: add rbx, {bytes}",
    "jmp 2b",
    "5: int3",
    "tiermem_agent_loop_end:",
    ".popsection",
    nomem = const libc::ENOMEM,
    inval = const libc::EINVAL,
    bytes = const CALL_BYTES,
);

unsafe extern "C" {
    #[link_name = "tiermem_agent_loop"]
    static LOOP: u8;
    #[link_name = "tiermem_agent_loop_end"]
    static LOOP_END: u8;
}

fn code() -> &'static [u8] {
    let (start, end) = (&raw const LOOP, &raw const LOOP_END);
    // SAFETY: both are labels of one piece of constant data, the second behind its last byte; the data only moves with the program.
    unsafe { std::slice::from_raw_parts(start, end.addr() - start.addr()) }
}

/// Calls to be made one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    calls: Vec<(Call, bool)>,
    data: Vec<u8>,
}

/// What calls point to, by its place in the batch's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datum(u64);

impl Batch {
    /// Adds bytes that calls can point to, aligned for numbers.
    pub fn datum(&mut self, bytes: &[u8]) -> Datum {
        let at = self.data.len().next_multiple_of(8);
        self.data.resize(at, 0);
        self.data.extend(bytes);
        debug_assert!(self.data.len() <= DATA_BYTES, "a call points to few bytes");
        Datum(at as u64)
    }

    /// Adds a call. The program gives memory back whenever it likes: with `passes_over`, what is not mapped (ENOMEM) or has no such property
    /// (EINVAL) is no error.
    pub fn push(&mut self, call: Call, passes_over: bool) {
        self.calls.push((call, passes_over));
    }

    /// The calls, and whether each is passed over where it finds nothing.
    #[cfg(test)]
    pub fn calls(&self) -> impl Iterator<Item = &(Call, bool)> {
        self.calls.iter()
    }

    /// How many calls have been added.
    pub fn len(&self) -> usize {
        self.calls.len()
    }
}

/// Where data will be: calls that point to some are made of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base(u64);

impl Base {
    /// The address of a datum.
    pub fn of(self, datum: Datum) -> u64 {
        self.0 + datum.0
    }
}

/// A place for a list in the address space of an agent, while it is mapped.
pub(super) struct Place<'a> {
    agent: &'a mut Traced,
    memory: &'a Memory,
    instruction: u64,
    address: u64,
    bytes: u64,
}

impl<'a> Place<'a> {
    /// Maps room for a number of calls.
    ///
    /// # Errors
    /// The kernel's: without room under the program's limits (`RLIMIT_AS`, `vm.max_map_count`), nothing is mapped.
    pub fn map(
        agent: &'a mut Traced,
        memory: &'a Memory,
        instruction: u64,
        calls: usize,
    ) -> io::Result<Self> {
        let list = calls.min(CALLS_MAX) * CALL_BYTES;
        let bytes = ((LIST_OFFSET + list) as u64).next_multiple_of(PAGE_BYTES);
        let mut refused = io::Error::from_raw_os_error(libc::EEXIST);
        for address in PLACES {
            let map =
                Call::of(libc::SYS_mmap, [address, bytes, PROTECTION as u64, FLAGS as u64, u64::MAX, 0]);
            // SAFETY: the agent has no code of its own to go back to, and what is mapped was free.
            match unsafe { agent.call(instruction, map) }? {
                mapped if mapped.cast_unsigned() == address => {
                    return Ok(Place { agent, memory, instruction, address, bytes });
                }
                error if error < 0 => refused = io::Error::from_raw_os_error(-error as i32),
                // A kernel that knows no such flag takes the address for a wish.
                elsewhere => drop(Place { agent, memory, instruction, address: elsewhere as u64, bytes }),
            }
            if refused.raw_os_error() != Some(libc::EEXIST) {
                break;
            }
        }
        Err(refused)
    }

    /// Where the data of batches will be.
    pub fn base(&self) -> Base {
        Base(self.address + DATA_OFFSET as u64)
    }

    /// Makes the calls of a batch. Returns how many there were that were not passed over.
    ///
    /// # Errors
    /// The first one of a call; those before it are done. No such process if the agent has been ended.
    ///
    /// # Safety
    ///
    /// The calls do the program no harm.
    pub unsafe fn run(&mut self, batch: &Batch) -> io::Result<u64> {
        let mut done = 0;
        self.memory.write(self.address, code())?;
        self.memory.write(self.base().0, &batch.data)?;
        for calls in batch.calls.chunks(CALLS_MAX) {
            // SAFETY: as the caller promises.
            done += unsafe { self.run_list(calls) }?;
        }
        Ok(done)
    }

    unsafe fn run_list(&mut self, calls: &[(Call, bool)]) -> io::Result<u64> {
        let mut words: Vec<u8> = Vec::with_capacity(calls.len() * CALL_BYTES);
        for (call, passes_over) in calls {
            words.extend((call.number as u64).to_ne_bytes());
            call.arguments.iter().for_each(|word| words.extend(word.to_ne_bytes()));
            words.extend(u64::from(*passes_over).to_ne_bytes());
        }
        let list = self.address + LIST_OFFSET as u64;
        self.memory.write(list, &words)?;
        let mut registers = self.agent.registers()?;
        (registers.rip, registers.orig_rax) = (self.address, u64::MAX);
        (registers.rbx, registers.r12, registers.r14) = (list, list + words.len() as u64, 0);
        // SAFETY: the loop ends in a stop; the agent has no code of its own.
        unsafe { self.agent.set_registers(&registers) }?;
        self.agent.resume(libc::PTRACE_CONT, 0)?;
        loop {
            match self.agent.halt()? {
                Halt::Signal(libc::SIGTRAP) => break,
                Halt::Signal(libc::SIGSEGV | libc::SIGILL | libc::SIGBUS) => {
                    return Err(io::Error::other("the program has changed the agent's memory"));
                }
                _ => self.agent.resume(libc::PTRACE_CONT, 0)?,
            }
        }
        let stopped = self.agent.registers()?;
        if stopped.rbx == registers.r12 {
            return Ok(calls.len() as u64 - stopped.r14.min(calls.len() as u64));
        }
        match i32::try_from(-stopped.rax.cast_signed()) {
            Ok(error @ 1..4096) => Err(io::Error::from_raw_os_error(error)),
            _ => Err(io::Error::other("the program has changed the agent's memory")),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let unmap = Call::of(libc::SYS_munmap, [self.address, self.bytes]);
        // SAFETY: nobody else knows of the mapping. An agent that has been ended leaves it to the program, which does not use it.
        let _ = unsafe { self.agent.call(self.instruction, unmap) };
    }
}
