//! Signals as messages: which came, and whether a terminal sent it.
//!
//! A handler writes each into a pipe. (`signalfd` would need the signals blocked in every thread, those that libraries started included.)

use std::io::{self, PipeReader, Read};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::Signal;

/// The end of the pipe to which the handler writes; it is never closed.
static PIPE: AtomicI32 = AtomicI32::new(-1);
/// Bytes of a message: the signal, and whether it is from a terminal.
const MESSAGE_BYTES: usize = 2;

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub signal: i32,
    /// Whether it came from a terminal, which sends it to all processes of the foreground group.
    pub is_from_terminal: bool,
}

/// Signals that this process receives as messages, and that do nothing else to it.
#[derive(Debug)]
pub struct Signals(PipeReader);

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    /// `SI_KERNEL`: sent by the kernel itself.
    const KERNEL: libc::c_int = 0x80;
    // SAFETY: the kernel gives a handler with `SA_SIGINFO` the facts of its signal.
    let is_from_terminal = unsafe { (*info).si_code } == KERNEL;
    let message = [signal as u8, u8::from(is_from_terminal)];
    // SAFETY: the call may be made by handlers, the message has as many bytes as it is told, and `errno` is put back. Where the pipe is
    // full, more than 30,000 signals wait already.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(PIPE.load(Ordering::Relaxed), message.as_ptr().cast(), MESSAGE_BYTES);
        *libc::__errno_location() = errno;
    }
}

impl Signals {
    /// Receives them from now on, in whatever thread they come. Programs that are started do not inherit that.
    ///
    /// # Errors
    /// Without descriptors, or if signals are received already.
    pub fn receive(signals: &[Signal]) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK)?;
        let writer = writer.into_raw_fd();
        if PIPE.compare_exchange(-1, writer, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // SAFETY: the descriptor was made above, and nobody knows of it.
            unsafe { libc::close(writer) };
            return Err(io::Error::other("signals are received already"));
        }
        for signal in signals {
            let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: an action is valid when all zero, with an empty mask. The handler makes calls alone that handlers may make.
            let done = unsafe {
                let action = action.assume_init_mut();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                libc::sigaction(signal.as_raw(), action, std::ptr::null_mut())
            };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Signals(reader))
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn wait(&mut self) -> io::Result<Message> {
        let mut message = [0; MESSAGE_BYTES];
        self.0.read_exact(&mut message)?;
        let [signal, is_from_terminal] = message;
        Ok(Message { signal: i32::from(signal), is_from_terminal: is_from_terminal != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_message_in_whatever_thread_it_comes() {
        let (begin, begun) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            begin.send(()).unwrap();
            wait.recv().unwrap();
            // SAFETY: the signal goes to this very thread, which was there before it was received.
            unsafe { libc::raise(libc::SIGURG) };
        });
        begun.recv().unwrap();
        let mut signals = Signals::receive(&[Signal::URG]).unwrap();
        go.send(()).unwrap();
        assert_eq!(signals.wait().unwrap(), Message { signal: libc::SIGURG, is_from_terminal: false });
        thread.join().unwrap();
        assert!(Signals::receive(&[]).is_err());
    }
}
