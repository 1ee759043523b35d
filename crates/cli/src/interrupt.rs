//! Interrupts by Ctrl-C, SIGTERM or a closed terminal, for commands that keep their finished results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::Signal;
use tiermem_place::capture::Stop;
use tiermem_sys::inherited;
use tiermem_sys::signals::{Message, Signals};

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

/// Signals that end a command.
fn ending() -> Vec<Signal> {
    let mut ending = vec![Signal::INT, Signal::TERM];
    // Under nohup the command must continue without its terminal.
    if !inherited::ignores(Signal::HUP.as_raw()) {
        ending.push(Signal::HUP);
    }
    ending
}

/// Calls `each` for every signal of these that comes from now on. Where signals cannot be received they end the process as usual, which is
/// said.
fn on_signals(wanted: &[Signal], mut each: impl FnMut(Message) + Send + 'static) {
    // A write beyond the limit of a file's size (`RLIMIT_FSIZE`) is an error, and not the end of what is to be kept.
    let all = [wanted, &[Signal::XFSZ]].concat();
    let mut signals = match Signals::receive(&all) {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("tiermem: signals cannot be received ({error}): Ctrl-C will keep nothing");
            return;
        }
    };
    std::thread::spawn(move || {
        while let Ok(message) = signals.wait() {
            if message.signal != Signal::XFSZ.as_raw() {
                each(message);
            }
        }
    });
}

fn end_at_once(signal: i32) -> ! {
    std::process::exit(128 + signal)
}

/// Whether this process is the first of its session. (The session may be one of another PID namespace, whose number is 0.)
fn leads_session() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have any characters: state, parent, group, session.
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_ascii_whitespace().nth(3));
    session.is_some_and(|session| session == std::process::id().to_string())
}

/// Passes signals on to the program that runs, which gets each as the user meant it to: a terminal sends its own to both.
/// `first` is called at the first one that ends a command. One from a terminal does not end this process while a program runs that was
/// started here: the terminal is the program's.
pub fn pass_on(stop: &Stop, first: impl FnOnce(&Stop) + Send + 'static, then: Second) {
    let ending: Vec<i32> = ending().into_iter().map(Signal::as_raw).collect();
    // Those that programs use for themselves.
    let mut wanted = vec![Signal::QUIT, Signal::USR1, Signal::USR2];
    wanted.extend(self::ending());
    let (stop, mut first) = (stop.clone(), Some(first));
    // When the terminal goes away, the kernel tells the first process of the session alone.
    let is_leader = leads_session();
    on_signals(&wanted, move |message| {
        let is_from_terminal =
            message.is_from_terminal && !(is_leader && message.signal == Signal::HUP.as_raw());
        if ending.contains(&message.signal)
            && let Some(first) = first.take()
        {
            first(&stop);
        } else if ending.contains(&message.signal) && !(is_from_terminal && stop.has_program()) {
            match then {
                Second::Ends => {
                    stop.pass_on(message.signal);
                    end_at_once(message.signal);
                }
                Second::EndsProgram => return stop.end_program(),
            }
        }
        if !is_from_terminal {
            stop.pass_on(message.signal);
        }
    });
}

/// Watches for signals from now on; a second one ends the process.
pub fn watch() -> Interrupt {
    let interrupt = Interrupt::default();
    let set = interrupt.clone();
    on_signals(&ending(), move |message| {
        if set.0.swap(true, Relaxed) {
            end_at_once(message.signal);
        }
    });
    interrupt
}
