//! The agent: memory calls that only a program itself can make, made for another process by a process of this one.
//!
//! `madvise` (but for a few kinds of advice), `mbind`, `mlock` and `userfaultfd` concern the caller's own address space. So a program that
//! is observed has a second process in its address space, and nothing else of it: the agent. It is made by `clone` with CLONE_VM and without
//! CLONE_THREAD, CLONE_FS and CLONE_SIGHAND, and it gives up its descriptors before the program runs again. The program has no thread, no
//! child, no descriptor, no signal, no environment variable and no library of this one.
//!
//! The agent has no code either. It is traced (`ptrace`) by the process that observes: it stands still, and is made to do one system call
//! after another ([`traced`]) or many at once ([`batch`]). The kernel ends it when its tracer ends (`PTRACE_O_EXITKILL`), so that a program
//! whose observer dies goes on as if nothing had been. The agent keeps the address space: whoever holds it drops it as soon as the program
//! has ended or has begun another one ([`Agent::is_in`]).
//!
//! A program cannot use the agent for what it may not do itself. It could write into the memory from which the agent runs, and the agent
//! keeps the rights that the program had when it began: so the agent allows itself the few calls of [`sandbox`], which concern its own
//! memory alone.
//!
//! None of the calls changes what a byte of memory holds, so a wrong request can cost the program time and no more.

mod batch;
mod calls;
mod client;
mod error;
mod locks;
mod origin;
mod program;
mod sandbox;
mod traced;

pub use client::{Advice, Agent, Policy, Spent};
pub use error::{AgentError, LockError};
pub use origin::{NoAgent, Started, attach, leave_late, start};
