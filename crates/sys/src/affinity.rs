//! On which processor core a thread runs.

use std::io;

/// Keeps the calling thread on one core. An error names a core that the machine does not have or the process may not use.
pub fn pin_thread(core: usize) -> io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    cores.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &cores)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_stays_where_it_is_pinned() {
        let pinned = std::thread::spawn(|| {
            super::pin_thread(0).unwrap();
            rustix::thread::sched_getaffinity(None).unwrap().count()
        });
        assert_eq!(pinned.join().unwrap(), 1);
        assert!(super::pin_thread(100_000).is_err());
    }
}
