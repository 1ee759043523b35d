//! Ctrl-C and SIGTERM for commands that keep what they have finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio::signal::unix::{SignalKind, signal};

/// Whether the user wants the command to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Whether a signal has come.
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
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            std::io::Result::Ok(())
        })
    };
    std::thread::spawn(move || match wait() {
        Ok(()) => then(),
        Err(error) => eprintln!("tiermem: signals cannot be received ({error}): Ctrl-C will keep nothing"),
    });
}

/// Whether a signal has come from now on.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let set = interrupt.clone();
    then(move || set.0.store(true, Relaxed));
    interrupt
}
