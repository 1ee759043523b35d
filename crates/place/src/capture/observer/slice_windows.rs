//! The windows of a slice: when they are opened and closed, and what is waited for meanwhile.
//!
//! A window in which the process does not run goes on until it does, as nothing was accessed in it. So each of hundreds of processes that
//! wait for work costs a look a slice, and no more.

use std::time::{Duration, Instant};

use tiermem_policy::accessed_bits::Pacing;
use tiermem_sys::cpu_time;
use tiermem_sys::perf::MappingWatch;
use tiermem_sys::pidfd::Woken;

use super::{Observer, Stop};

/// Longest delay until a request to stop, or the begin of another program, is noticed.
pub(super) const STEP: Duration = Duration::from_millis(20);
/// Most mappings are complete by then.
const SETTLING: Duration = Duration::from_micros(300);
/// A program that maps again and again, little each time, wakes its observer no more often.
const PAUSE: Duration = Duration::from_millis(1);
/// Nor does it take more of its observer's time than such a part.
const MAPPINGS_PART: u32 = 10;

/// Processor time that a process had used at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    time: Option<Duration>,
    at: Instant,
}

impl Used {
    /// By now.
    pub fn of(pid: u32) -> Self {
        Used { time: cpu_time::spent_by_process(pid), at: Instant::now() }
    }

    /// Whether the kernel has counted nothing between the two moments. Where it does not tell, the process may have run.
    pub fn is_same(self, later: Used) -> bool {
        self.time.is_some() && self.time == later.time
    }

    /// Becomes the moment since when the process does not run, as far as is counted, and tells how long ago that is.
    fn quiet_for(&mut self, pid: u32) -> Duration {
        let now = Used::of(pid);
        if !self.is_same(now) {
            *self = now;
        }
        now.at - self.at
    }
}

impl Observer<'_> {
    /// Opens and closes windows, from short to long, until the slice's end or the program's. Whether it ended.
    pub(super) fn windows(&mut self, stop: &Stop, end: Instant, mapped: &mut dyn FnMut(&mut Self)) -> bool {
        let most = self.sources.iter().map(|source| source.windows_max()).min().unwrap_or(1);
        let mut pacing = Pacing::new(self.options.slice.as_secs_f64(), most, self.look.as_secs_f64());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let window = pacing.next(left.as_secs_f64(), self.look.as_secs_f64());
            let wait = Duration::from_secs_f64(window.seconds);
            let before = Instant::now();
            // Sources of a process that has gone fail; the watch reports that.
            self.sources.iter_mut().for_each(|source| drop(source.open_window(before + wait)));
            let opening = before.elapsed();
            let mut ended = self.window(stop, before + wait, STEP, mapped);
            self.windows += 1;
            self.long_windows += u32::from(pacing.is_late(window, before.elapsed().as_secs_f64()));
            let last = end.checked_sub(self.look).unwrap_or(end);
            let goes_on = |it: &Self, ended| !(ended || it.has_left || stop.is_asked());
            while goes_on(self, ended) {
                let quiet_s = self.quiet.quiet_for(self.process.pid).as_secs_f64();
                let left = last.saturating_duration_since(Instant::now());
                let Some(more_s) = pacing.goes_on_s(quiet_s, left.as_secs_f64()) else { break };
                let more = Duration::from_secs_f64(more_s);
                ended = self.window(stop, Instant::now() + more, more, mapped);
            }
            let is_last = window.is_last || Instant::now() >= last;
            let before = Instant::now();
            self.sources.iter_mut().for_each(|source| drop(source.close_window()));
            self.look = opening + before.elapsed();
            if !goes_on(self, ended) {
                return ended;
            }
            if is_last {
                return self.process.watch.wait(Duration::ZERO);
            }
        }
    }

    /// Waits until a window's end, and lets sources act meanwhile. Returns whether the process ended.
    fn window(
        &mut self,
        stop: &Stop,
        until: Instant,
        step: Duration,
        mapped: &mut dyn FnMut(&mut Self),
    ) -> bool {
        loop {
            let due = self.sources.iter().filter_map(|source| source.due()).min();
            let next = due.filter(|due| *due < until);
            let wait = next.unwrap_or(until).saturating_duration_since(Instant::now());
            let ended = self.wait(stop, wait, step, mapped);
            if ended || stop.is_asked() || next.is_none() {
                return ended;
            }
            self.sources.iter_mut().for_each(|source| drop(source.act()));
        }
    }

    /// Waits for this time, or until the process ends or, which is looked at after each `step`, the recording is asked to stop. Returns
    /// whether the process ended.
    pub(super) fn wait(
        &mut self,
        stop: &Stop,
        wait: Duration,
        step: Duration,
        mapped: &mut dyn FnMut(&mut Self),
    ) -> bool {
        let until = Instant::now() + wait;
        loop {
            // A look at the mappings may have taken in what the kernel has told, which wakes nobody then.
            if self.options.tell_mappings && self.news.is_due(Instant::now()) {
                mapped(self);
            }
            let left = until.saturating_duration_since(Instant::now());
            let watch = self.mappings.iter().filter(|_| self.options.tell_mappings);
            let new = watch.flat_map(MappingWatch::events);
            let ended = match self.process.watch.wait_or(new, left.min(step)) {
                Woken::Ended => true,
                Woken::InTime => false,
                Woken::Readable if self.process.watch.wait(left.min(SETTLING)) => true,
                Woken::Readable => {
                    let begun = Instant::now();
                    self.drain_mappings();
                    if self.news.is_due(begun) {
                        mapped(self);
                    }
                    let pause = PAUSE.max(begun.elapsed() * MAPPINGS_PART);
                    self.process.watch.wait(left.min(pause))
                }
            };
            self.let_agent_go();
            if ended || self.has_left || stop.is_asked() || Instant::now() >= until {
                return ended;
            }
        }
    }

    /// Takes in what the kernel has told of new mappings.
    pub(super) fn drain_mappings(&mut self) {
        let granule_bytes = self.options.granule_bytes;
        if let Some(mappings) = &mut self.mappings {
            mappings.drain(self.process.pid, |new| {
                if new.bytes >= granule_bytes {
                    self.news.tell();
                }
                self.origins.mapped(new);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::schedule::Due;
    use super::super::{Options, Target};
    use super::*;
    use crate::capture::options::SourceKind;

    /// Of a process and slices of this length.
    fn options(pid: u32, slice: Duration) -> Options {
        Options {
            target: Target::Process(pid),
            sources: vec![SourceKind::Refs],
            slice,
            granule_bytes: 1 << 20,
            closer: None,
            every_page: false,
            small_pages: false,
            tell_mappings: false,
            agent: false,
            children: false,
            sites: false,
            delay: Duration::ZERO,
            duration: None,
        }
    }

    #[test]
    fn a_process_that_waits_is_looked_at_once_a_slice() {
        let slice = Duration::from_millis(400);
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let options = options(pid, slice);
        let mut observer = Observer::follow(&options, pid, 0).unwrap();
        while observer.quiet.quiet_for(pid) < STEP {
            std::thread::sleep(STEP);
        }
        for number in 0..2 {
            let due = Due { number, until: Instant::now() + slice };
            let looked = observer.slice(&Stop::default(), due, |_| {}, &mut |_| {}).unwrap().unwrap();
            assert!(!looked.ended && looked.end >= due.until - observer.look);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(observer.windows, 2);
        // Its memory is there all the time.
        assert!(observer.regions.numbered().iter().all(|it| it.region.last_slice == 1));
    }
}
