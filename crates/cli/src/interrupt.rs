//! Interrupts by Ctrl-C, SIGTERM or a closed terminal, for commands that keep their finished results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::Signal;
use tiermem_place::capture::Stop;
use tiermem_sys::inherited;
use tiermem_sys::signals::Signals;

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
    /// It ends the process at once, with what shells call its exit code. A program that runs goes on.
    Ends,
    /// It ends the program: what the command has changed of the machine must be put back by itself.
    EndsProgram,
}

/// Calls `first` at the first signal that comes from now on, and `second` at each later one. Where signals cannot be received they end the
/// process as usual, which is said.
fn on_signals(first: impl FnOnce(i32, bool) + Send + 'static, second: impl Fn(i32, bool) + Send + 'static) {
    // A write beyond the limit of a file's size (`RLIMIT_FSIZE`) is an error, and not the end of what is to be kept.
    let mut wanted = vec![Signal::INT, Signal::TERM, Signal::XFSZ];
    // Under nohup the command must continue without its terminal.
    if !inherited::ignores(Signal::HUP.as_raw()) {
        wanted.push(Signal::HUP);
    }
    let signals = match Signals::receive(&wanted) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("tiermem: signals cannot be received ({error}): Ctrl-C will keep nothing");
            return;
        }
    };
    std::thread::spawn(move || {
        let mut first = Some(first);
        while let Ok(message) = signals.next() {
            if message.signal == Signal::XFSZ.as_raw() {
                continue;
            }
            match first.take() {
                Some(first) => first(message.signal, message.is_from_terminal),
                None => second(message.signal, message.is_from_terminal),
            }
        }
    });
}

fn end_at_once(signal: i32) -> ! {
    std::process::exit(128 + signal)
}

/// Passes signals on to the program that runs, which gets each as the user meant it to: a terminal sends its own to both.
/// `first` is called at the first one.
pub fn pass_on(stop: &Stop, first: impl FnOnce(&Stop) + Send + 'static, then: Second) {
    let (stopped, again) = (stop.clone(), stop.clone());
    let first = move |signal, is_from_terminal: bool| {
        first(&stopped);
        if !is_from_terminal {
            stopped.pass_on(signal);
        }
    };
    on_signals(first, move |signal, is_from_terminal| {
        if !is_from_terminal {
            again.pass_on(signal);
        }
        match then {
            Second::Ends => end_at_once(signal),
            Second::EndsProgram => again.end_program(),
        }
    });
}

/// Watches for signals from now on; a second one ends the process.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let set = interrupt.clone();
    on_signals(move |_, _| set.0.store(true, Relaxed), |signal, _| end_at_once(signal));
    interrupt
}
