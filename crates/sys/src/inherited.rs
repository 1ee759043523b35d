//! What this process was given by the one that started it: the signals that are ignored or blocked, which of the first three descriptors
//! are closed, how many may be open, and whether it may have huge pages.
//!
//! The language's runtime changes signals and descriptors before `main`, and starts programs with its own settings. A program that is started on behalf of
//! the user gets what the user would have given it ([`pass_on`]). So they are looked up by a function that runs before the runtime does.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Signals that have numbers below this, which all platforms here have.
const SIGNALS: i32 = 65;
const DESCRIPTORS: i32 = 3;

/// As found at the very beginning.
struct Inherited {
    mask: libc::sigset_t,
    ignored: u64,
    closed: [bool; DESCRIPTORS as usize],
    open_files: Rlimit,
    /// As `PR_GET_THP_DISABLE` tells it: 0, or 1 with flags above (Linux 6.18: huge pages where the program asks for them alone).
    huge_pages_disabled: u64,
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

extern "C" fn loaded() {
    let inherited = INHERITED.get_or_init(look);
    if inherited.ignored & bit(libc::SIGCHLD) != 0 {
        // Or the ends of children would be lost.
        // SAFETY: the call takes numbers alone, and no other thread runs yet.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

// SAFETY: the loader calls the function in this section with C's calling convention, once, and nothing else reads it.
#[unsafe(link_section = ".init_array")]
#[used]
static LOADED: extern "C" fn() = loaded;

fn look() -> Inherited {
    let mut mask = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is as large as the call fills, and valid when all zero; no mask is set.
    let mask = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
        mask.assume_init()
    };
    let is_closed = |number| {
        // SAFETY: the request takes a number and changes nothing.
        unsafe { libc::fcntl(number, libc::F_GETFD) == -1 }
    };
    let ignored = (1..SIGNALS).filter(|number| is_ignored(*number)).fold(0, |all, number| all | bit(number));
    let closed = std::array::from_fn(|number| is_closed(number as i32));
    // SAFETY: the call takes numbers alone and changes nothing.
    let disabled = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0_u64, 0_u64, 0_u64, 0_u64) };
    // A kernel that does not tell does not let it be set either.
    let huge_pages_disabled = u64::try_from(disabled).unwrap_or(0);
    Inherited { mask, ignored, closed, open_files: getrlimit(Resource::Nofile), huge_pages_disabled }
}

/// Does without huge pages in this process from now on: one that has many small things in memory for a short time would wait for the kernel
/// to clear 2 MiB again and again. Programs that are started with [`pass_on`] are not concerned.
pub fn forgo_huge_pages() {
    INHERITED.get_or_init(look);
    // A kernel that cannot do so leaves it as it is, which is slower and nothing else.
    let _ = set_huge_pages_disabled(1);
}

/// Takes what `PR_GET_THP_DISABLE` tells.
fn set_huge_pages_disabled(disabled: u64) -> io::Result<()> {
    // SAFETY: the call changes an attribute of the calling process and takes numbers alone.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, disabled & 1, disabled & !1, 0_u64, 0_u64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps a process that is going to be started, and all that it starts, from having huge pages. To be asked for after [`pass_on`].
pub fn without_huge_pages(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes one system call, which takes no locks and allocates nothing.
    unsafe { command.pre_exec(|| set_huge_pages_disabled(1)) };
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the action is as large as the call fills, and valid when all zero; none is set.
    let (done, action) =
        unsafe { (libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()), action.assume_init()) };
    done == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Whether this process was started with a signal ignored.
pub fn ignores(signal: i32) -> bool {
    (1..SIGNALS).contains(&signal) && INHERITED.get_or_init(look).ignored & bit(signal) != 0
}

/// Has a program that is going to be started get what this process was given.
pub fn pass_on(command: &mut Command) {
    let inherited = INHERITED.get_or_init(look);
    let ask = move || {
        for signal in (1..SIGNALS).filter(|signal| inherited.ignored & bit(*signal) != 0) {
            // SAFETY: the call takes numbers alone. What cannot be ignored is not among them.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        if inherited.ignored & bit(libc::SIGPIPE) == 0 {
            // SAFETY: the call takes numbers alone.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        }
        for number in (0..DESCRIPTORS).filter(|number| inherited.closed[*number as usize]) {
            // SAFETY: the descriptor is what the runtime has put where there was none.
            unsafe { libc::close(number) };
        }
        // Where somebody has lowered the hard limit meanwhile, that holds for the program too.
        let _ = setrlimit(Resource::Nofile, inherited.open_files);
        // Where it may not be set, it has not been set before. Nor is that a reason not to begin the program.
        let _ = set_huge_pages_disabled(inherited.huge_pages_disabled);
        // SAFETY: the set outlives the call, which reads it.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const inherited.mask, std::ptr::null_mut())
        } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    };
    // SAFETY: between fork and exec the closure makes system calls alone, which take no locks and allocate nothing; what it reads was
    // written before.
    unsafe { command.pre_exec(ask) };
}
