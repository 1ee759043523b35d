//! Interrupts by Ctrl-C, SIGTERM or a closed terminal, for commands that keep their finished results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

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

/// Calls `then` at the first signal that comes from now on. Where signals cannot be received they end the process as
/// usual, which is said.
pub fn then(then: impl FnOnce() + Send + 'static) {
    let wait = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let (mut interrupt, mut terminate) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            // Under nohup the command must continue without its terminal.
            let mut hangup =
                if is_ignored(SignalKind::hangup()) { None } else { Some(signal(SignalKind::hangup())?) };
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hung_up => {}
            }
            std::io::Result::Ok(())
        })
    };
    std::thread::spawn(move || match wait() {
        Ok(()) => then(),
        Err(error) => eprintln!("tiermem: signals cannot be received ({error}): Ctrl-C will keep nothing"),
    });
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
    then(move || set.0.store(true, Relaxed));
    interrupt
}
