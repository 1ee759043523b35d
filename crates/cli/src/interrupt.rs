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

/// Receives the signals from now on. Where that cannot be they end the process as usual, which is said.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let set = interrupt.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let waited = runtime.and_then(|runtime| {
            runtime.block_on(async {
                let (mut interrupt, mut terminate) =
                    (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                Ok(())
            })
        });
        match waited {
            Ok(()) => set.0.store(true, Relaxed),
            Err(error) => {
                eprintln!("tiermem: signals cannot be received ({error}): Ctrl-C will keep nothing")
            }
        }
    });
    interrupt
}
