//! Interrupts by Ctrl-C, SIGTERM or a closed terminal, for commands that keep their finished results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signal for a write beyond the limit of a file's size.
pub const SIGXFSZ: i32 = 25;

/// Whether the user wants the command to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Whether a signal has arrived.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// What a second signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// It ends the process at once, with what shells call its exit code.
    Ends,
    /// Nothing: what the command has changed of the machine must be put back.
    Waits,
}

/// Calls `then` at the first signal that comes from now on. Where signals cannot be received they end the process as usual, which
/// is said.
pub fn then(then: impl FnOnce() + Send + 'static, second: Second) {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::receive()?
        };
        runtime.block_on(signals.next());
        std::io::Result::Ok((runtime, signals))
    };
    std::thread::spawn(move || match wait() {
        Ok((runtime, mut signals)) => {
            // Nor does what the first one begins keep the second one waiting.
            std::thread::spawn(then);
            let signal = runtime.block_on(signals.next());
            if second == Second::Ends {
                std::process::exit(128 + signal.as_raw_value());
            }
        }
        Err(error) => eprintln!("tiermem: signals cannot be received ({error}): Ctrl-C will keep nothing"),
    });
}

/// The signals that ask a command to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None`: under nohup the command must continue without its terminal.
    hangup: Option<Signal>,
}

impl Signals {
    /// Receives them from now on.
    fn receive() -> std::io::Result<Self> {
        let hangup = SignalKind::hangup();
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if is_ignored(hangup) { None } else { Some(signal(hangup)?) },
        })
    }

    /// The next one that comes.
    async fn next(&mut self) -> SignalKind {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = hung_up => SignalKind::hangup(),
        }
    }
}

/// Makes a write beyond the limit of a file's size an error, and not the end of the process. Programs that are started later know
/// nothing of it: what they ignore is inherited, a handler is not.
pub fn outlive_file_limit() {
    let limit = SignalKind::from_raw(SIGXFSZ);
    let handle = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _entered = runtime.enter();
        // Received by nobody; the handler stays.
        signal(limit).map(drop)
    };
    if !is_ignored(limit)
        && let Err(error) = handle()
    {
        eprintln!("tiermem: signals cannot be received ({error}): a file's size limit ends the recording");
    }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let bit = u32::try_from(kind.as_raw_value() - 1).unwrap_or(0);
    mask.is_some_and(|mask| mask >> bit & 1 == 1)
}

/// Watches for signals from now on.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let set = interrupt.clone();
    then(move || set.0.store(true, Relaxed), Second::Ends);
    interrupt
}
