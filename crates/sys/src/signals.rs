//! Signals as messages (`signalfd`): which came, and whether a terminal sent it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::process::Signal;

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
pub struct Signals(OwnedFd);

impl Signals {
    /// Receives them from now on. They are blocked for the calling thread and those that it starts then, so that this belongs at the
    /// beginning of a program. Programs that are started get a mask of their own ([`crate::inherited`]).
    ///
    /// # Errors
    /// Without descriptors.
    pub fn receive(signals: &[Signal]) -> io::Result<Self> {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set outlives the calls, which fill and read it.
        let descriptor = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal.as_raw());
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and no other code knows of it.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next(&self) -> io::Result<Message> {
        /// `SI_KERNEL`: sent by the kernel itself.
        const KERNEL: i32 = 0x80;
        let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        loop {
            // SAFETY: the information has as many bytes as the call may fill, and is valid when all zero.
            let (read, info) = unsafe {
                let bytes = size_of::<libc::signalfd_siginfo>();
                (libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), bytes), info.assume_init())
            };
            match read {
                0.. => {
                    let signal = info.ssi_signo.cast_signed();
                    return Ok(Message { signal, is_from_terminal: info.ssi_code == KERNEL });
                }
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_message() {
        let signals = Signals::receive(&[Signal::URG]).unwrap();
        // SAFETY: the signal goes to this very thread, which has blocked it.
        unsafe { libc::raise(libc::SIGURG) };
        assert_eq!(signals.next().unwrap(), Message { signal: libc::SIGURG, is_from_terminal: false });
    }
}
