//! The processor time of the calling thread or of the process: on a shared machine a fairer measure than the wall
//! clock, since it stands still while somebody else has the core.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time that this thread has used.
pub fn thread_cpu_time() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Processor time that all threads of this process have used.
pub fn process_cpu_time() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_work() {
        let before = thread_cpu_time();
        let sum = (0..2_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        std::hint::black_box(sum);
        let after = thread_cpu_time();
        assert!(after > before);
        assert!(process_cpu_time() >= after);
    }
}
