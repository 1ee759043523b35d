//! Processor time of the calling thread or of the process: on a shared machine a fairer measure than the wall clock, since it
//! stands still while another process has the core.

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

/// Processor time, split into the program's own and the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The program.
    pub user: Duration,
    /// The kernel for it.
    pub system: Duration,
}

/// Processor time of all threads of this process.
pub fn process_spent() -> Spent {
    spent(libc::RUSAGE_SELF)
}

/// Processor time of this thread.
pub fn thread_spent() -> Spent {
    spent(libc::RUSAGE_THREAD)
}

/// The processor time of this process's children whose end it has taken in, and of their children.
pub fn children_spent() -> Spent {
    spent(libc::RUSAGE_CHILDREN)
}

/// Processor time of a thread of any process, the kernel's own threads included; `None` if the kernel does not tell.
pub fn spent_by_thread(thread: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?))
}

/// Processor time of all threads of any process; `None` if the kernel does not tell, as of one that has gone.
pub fn spent_by_process(pid: u32) -> Option<Duration> {
    /// What the kernel's scheduler has counted, of all threads (`CPUCLOCK_SCHED`).
    const SCHEDULED: libc::clockid_t = 2;
    let pid = libc::pid_t::try_from(pid).ok()?;
    // As `clock_getcpuclockid` makes it.
    let clock = (!pid << 3) | SCHEDULED;
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is as large as the call wants and outlives it; it is read only where the call has written it.
    let time = unsafe { (libc::clock_gettime(clock, time.as_mut_ptr()) == 0).then(|| time.assume_init())? };
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Times that this thread has waited for the kernel to give it memory, or to show it some that was there.
pub fn thread_faults() -> u64 {
    usage(libc::RUSAGE_THREAD).ru_minflt.max(0) as u64
}

fn usage(who: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is as large as the call wants and outlives it; it is valid when all zero, should the call fail.
    unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn spent(who: libc::c_int) -> Spent {
    spent_of(&usage(who))
}

/// The processor time that the kernel has counted.
pub(crate) fn spent_of(usage: &libc::rusage) -> Spent {
    let duration = |time: libc::timeval| {
        Duration::new(time.tv_sec.max(0) as u64, time.tv_usec.clamp(0, 999_999) as u32 * 1000)
    };
    Spent { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_what_is_used() {
        let before = thread_spent();
        while thread_spent().user - before.user < Duration::from_millis(20) {
            std::hint::black_box(thread_spent());
        }
        let (all, one) = (process_spent(), thread_spent());
        assert!(all.user + all.system >= one.user, "{all:?} {one:?}");
    }

    #[test]
    fn what_another_thread_spends_is_told_too() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        if let Some(told) = spent_by_thread(own) {
            let after = thread_cpu_time();
            assert!(told <= after && after - told < Duration::from_secs(1), "{told:?} of {after:?}");
        }
        assert_eq!(spent_by_thread(u32::MAX), None);
    }

    #[test]
    fn what_a_process_spends_is_told_and_stands_still_while_it_sleeps() {
        let own = std::process::id();
        let before = process_cpu_time();
        let told = spent_by_process(own).unwrap();
        assert!(told >= before && told <= process_cpu_time());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut spent = spent_by_process(child.id());
        let stands_still = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            let before = std::mem::replace(&mut spent, spent_by_process(child.id()));
            before == spent
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(stands_still && spent > Some(Duration::ZERO));
        assert_eq!(spent_by_process(child.id()), None);
    }

    #[test]
    fn memory_that_is_new_is_waited_for() {
        let before = thread_faults();
        let mut mapping = crate::mapping::Mapping::anonymous(4 << 20).unwrap();
        mapping.bytes_mut()[1 << 20] = 1;
        let first = thread_faults();
        assert!(first > before);
        mapping.bytes_mut()[1 << 20] = 2;
        assert_eq!(thread_faults(), first);
    }

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
