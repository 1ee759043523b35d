//! Source `faults`: where pages were first touched, or touched again after the kernel had reclaimed them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tiermem_base::Op;
use tiermem_sys::agent::Agent;
use tiermem_sys::perf::FaultWatch;
use tiermem_trace::recording;

use super::{Seen, Shape, Source};

const PAGE_BYTES: u64 = 4096;

pub(in crate::capture) struct Faults {
    pid: u32,
    watch: FaultWatch,
    pages: BTreeMap<u64, u32>,
    lost: u64,
}

impl Faults {
    /// Opens it for a process: the threads that it has and those that they start.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Faults { pid, watch: FaultWatch::open(&[pid])?, pages: BTreeMap::new(), lost: 0 })
    }

    fn drain(&mut self) {
        let Faults { pid, watch, pages, lost } = self;
        *lost += watch.drain(|fault| {
            // Processes that it forks are watched too, but have pages of their own.
            if fault.pid == *pid {
                *pages.entry(fault.address / PAGE_BYTES).or_default() += 1;
            }
        });
    }
}

impl Source for Faults {
    fn describe(&self) -> recording::Source {
        let unit = recording::Unit::Faults;
        recording::Source { name: "faults".to_owned(), unit, tells_stores: false, tells_level: false }
    }

    fn begin(&mut self, _: &Shape<'_>, _: Option<&mut Agent>) -> io::Result<()> {
        Ok(())
    }

    fn close_window(&mut self) -> io::Result<()> {
        // Rings are small; a slice may be long.
        self.drain();
        Ok(())
    }

    fn collect(&mut self, _: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()> {
        self.drain();
        for (page, count) in std::mem::take(&mut self.pages) {
            let address = page * PAGE_BYTES;
            each(Seen { address, bytes: PAGE_BYTES, weight: f64::from(count), op: Op::Unknown });
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        match self.lost {
            0 => Vec::new(),
            lost => vec![format!(
                "faults: {lost} page faults came too fast and were lost; shorter slices lose fewer"
            )],
        }
    }
}
