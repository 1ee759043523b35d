//! Serving: shared by all servers of this binary. Logging, printing addresses, stopping on a signal.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::interrupt::SIGXFSZ;

/// Long enough that what is freed for the next request is there still, and short enough that what floods leave behind is a small part
/// of what a store needs beside its tiers.
const FREE_MEMORY_DELAY_MS: u16 = 100;

/// How often freed memory is given back when nothing else happens.
const FREE_MEMORY_EVERY: Duration = Duration::from_secs(1);

/// Keeps the process's memory to what it uses. Before any thread is started.
pub fn limit_free_memory() {
    // A delay that the user sets takes precedence.
    let _ = tiermem_sys::allocator::give_back_after(FREE_MEMORY_DELAY_MS);
    let give_back = || {
        loop {
            std::thread::sleep(FREE_MEMORY_EVERY);
            tiermem_sys::allocator::give_back_freed();
        }
    };
    // Without the thread the server keeps more memory, and serves as well.
    let _ = std::thread::Builder::new().name("free-memory".to_owned()).spawn(give_back);
}

/// Starts logging to standard error and returns what changes what is logged, given as in `RUST_LOG`. That, where it is set, says
/// what is logged at first.
pub fn start_log(filter: &'static str) -> impl Fn(&'static str) {
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter)))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // The reader of the log may go away; reporting that on the same stream would end in a panic.
        .log_internal_errors(false)
        .with_filter_reloading();
    let handle = log.reload_handle();
    log.init();
    let present = Cell::new(filter);
    move |filter| {
        if present.replace(filter) != filter {
            // The log lives as long as the process, so there is always something to change.
            let _ = handle.reload(EnvFilter::new(filter));
        }
    }
}

/// Prints a text and ignores errors: the server works also if the output is closed.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// An address at which this machine reaches a server that may listen on all of its addresses.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// A seed that cannot be guessed from outside: the standard library's is random for each process.
pub fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The signals that ask the process to stop, received from here on.
pub struct Signals {
    first: io::Result<oneshot::Receiver<()>>,
}

impl Signals {
    /// Begins to receive them: the first one asks the server to stop, the second one ends the process at once.
    pub fn receive() -> Self {
        Signals { first: receive_signals() }
    }

    /// Ready when a signal has arrived.
    pub async fn stopped(self) {
        let Ok(first) = self.first else {
            tracing::error!("signals cannot be received: only SIGKILL will stop the server");
            return std::future::pending().await;
        };
        // The sender outlives the process's first signal.
        let _ = first.await;
        tracing::info!("stopping; a second signal ends the process at once");
    }
}

/// A thread receives them: those that stop the server may wait for a disk.
fn receive_signals() -> io::Result<oneshot::Receiver<()>> {
    let (stop, first) = oneshot::channel();
    let (ready, started) = mpsc::channel();
    let wait = move || {
        let registered = Builder::new_current_thread().enable_io().build().and_then(|runtime| {
            let _entered = runtime.enter();
            let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            // Received by nobody: a write beyond the limit of a file's size is then an error, and not the process's end.
            drop(signal(SignalKind::from_raw(SIGXFSZ))?);
            Ok((runtime, signals))
        });
        let (runtime, (mut interrupt, mut terminate)) = match registered {
            Ok(registered) => registered,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        let mut next = || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
        };
        next();
        let _ = stop.send(());
        next();
        // Nothing is said: whatever holds the server up may hold the log up as well.
        std::process::exit(1);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    started.recv().map_err(io::Error::other)??;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_all_is_reached_at_this_machine() {
        assert_eq!(reachable("[::]:80".parse().unwrap()).to_string(), "[::1]:80");
        assert_eq!(reachable("0.0.0.0:80".parse().unwrap()).to_string(), "127.0.0.1:80");
        assert_eq!(reachable("10.0.0.1:80".parse().unwrap()).to_string(), "10.0.0.1:80");
    }
}
