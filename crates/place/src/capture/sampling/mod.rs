//! Sampling sources that scan a running program repeatedly: their inputs and outputs.

pub(super) mod damon;
pub(super) mod faults;
mod granules;
pub(super) mod refs;
mod windows;
pub(super) mod writes;

use std::io;
use std::time::{Duration, Instant};

use tiermem_base::Op;
use tiermem_sys::agent::Agent;
use tiermem_trace::recording;

use super::mappings::maps::MapLine;

/// Accesses that a source saw within a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Seen {
    /// The first address of what was accessed.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Number of accesses, in the source's unit.
    pub weight: f64,
    /// Load or store.
    pub op: Op,
}

/// What the program looks like at the start of a slice.
pub(super) struct Shape<'a> {
    /// The mappings that samples are wanted of, in the order of addresses.
    pub mappings: &'a [MapLine],
    /// The granules in which they are wanted, for the first address of a mapping.
    pub granules: &'a dyn Fn(u64) -> Granules,
}

/// How a stretch of memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granules {
    /// Bytes of a granule.
    pub bytes: u64,
    /// Where one of them starts.
    pub origin: u64,
}

impl Granules {
    /// The start of the granule in which an address lies.
    pub fn start_of(self, address: u64) -> u64 {
        let behind = i128::from(address) - i128::from(self.origin);
        address.saturating_sub(behind.rem_euclid(i128::from(self.bytes)) as u64)
    }
}

/// A source.
///
/// The recorder calls [`Self::begin`] before each slice; within it, as often as it likes, [`Self::open_window`] and
/// [`Self::close_window`] in turn, between them [`Self::act`] at each time that [`Self::due`] says; and [`Self::collect`] at its end. Errors of a process that has gone or has begun another
/// program are no errors of the source: the recorder finds that out by itself.
pub(super) trait Source {
    /// Description of the source.
    fn describe(&self) -> recording::Source;

    /// Mappings may have come and gone. `agent` is the one within the program, if there is one.
    ///
    /// # Errors
    /// If the source cannot work here at all.
    fn begin(&mut self, shape: &Shape<'_>, agent: Option<&mut Agent>) -> io::Result<()>;

    /// Most windows in a slice. Each costs the program time, and each covers another range of rates.
    fn windows_max(&self) -> u32 {
        3
    }

    /// From now on accesses count, until about this time.
    fn open_window(&mut self, _until: Instant) -> io::Result<()> {
        Ok(())
    }

    /// When it has something to do within the window.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn act(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Up to now.
    fn close_window(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Tells what was seen in a slice of this length.
    fn collect(&mut self, slice: Duration, each: &mut dyn FnMut(Seen)) -> io::Result<()>;

    /// Notes for the user at the end; empty if there are none.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends it, and puts back what it has changed outside of the program.
    fn finish(&mut self) {}
}
