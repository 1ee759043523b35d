//! Time since the machine was booted, which goes on while it is suspended and knows no steps.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_BOOTTIME`.
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_boot_goes_on() {
        let first = since_boot();
        std::thread::sleep(Duration::from_millis(2));
        assert!(since_boot() >= first + Duration::from_millis(2));
    }
}
