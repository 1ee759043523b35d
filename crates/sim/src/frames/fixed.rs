//! The best fixed set: DRAM holds the same frames all the time, those that would fault most often if it did not.
//!
//! Of a frame that DRAM does not hold, each *run* of touches faults once: touches of it that follow each other without one of
//! another frame between. One frame of DRAM serves those frames in turn, so that the set has one less, unless DRAM holds all.
//! Nothing is chosen before the end of the trace, so this is a bound for whoever places pages once and never moves them.

use super::counts::Counts;
use super::touches::{Touches, Use};
use super::{FirstTouch, Memory};

/// What one frame would cost.
#[derive(Clone, Copy, Debug, Default)]
struct Outside {
    /// Runs that begin while the frame holds something.
    faults: u32,
    /// The same where the touches of a slice are in the order that joins most of them, and most of them apart.
    faults_low: u32,
    faults_high: u32,
    /// Runs that write.
    writes: u32,
    /// Whether it holds anything.
    holds: bool,
    /// The slice of its last touch.
    slice: u32,
}

/// Counts the faults of the best fixed set.
pub fn count(touches: &Touches, memory: &Memory) -> Counts {
    let holds_data = memory.first_touch == FirstTouch::Fetch;
    let mut frames =
        vec![Outside { holds: holds_data, slice: u32::MAX, ..Outside::default() }; touches.frames() as usize];
    let mut before = None;
    let mut run_writes = false;
    let mut slices = touches.slice_ends().iter().peekable();
    let mut slice = 0;
    for (at, touched) in (0u32..).zip(touches.touches()) {
        while slices.next_if(|end| **end <= at).is_some() {
            slice += 1;
        }
        let frame = &mut frames[touched.frame.0 as usize];
        if touched.what == Use::Discard {
            (frame.holds, before) = (false, None);
            continue;
        }
        let is_new_run = before.replace(touched.frame) != Some(touched.frame);
        let is_first_of_slice = touches.slice_ends().is_empty() || frame.slice != slice;
        frame.slice = slice;
        frame.faults_high += u32::from(frame.holds && (is_new_run || !touches.slice_ends().is_empty()));
        frame.faults_low += u32::from(frame.holds && is_new_run && is_first_of_slice);
        frame.faults += u32::from(frame.holds && is_new_run);
        run_writes &= !is_new_run;
        if touched.what == Use::Write {
            frame.writes += u32::from(!run_writes);
            (frame.holds, run_writes) = (true, true);
        }
    }
    let in_place = memory.tiers.iter().take_while(|tier| tier.in_place);
    let dram = in_place.map(|tier| tier.frames as usize).fold(0, usize::saturating_add);
    // The most gain first; the first touch of what lies below is a fault in any case.
    let compulsory = u32::from(holds_data);
    frames.sort_by_key(|frame| std::cmp::Reverse(frame.faults.saturating_sub(compulsory)));
    let kept = if frames.len() <= dram { frames.len() } else { dram - 1 };
    let frame_bytes = u64::from(touches.frame_bytes());
    let mut counts = Counts { touches: touches.count(), ..Counts::default() };
    for (rank, frame) in frames.iter().enumerate() {
        let is_kept = rank < kept;
        let of = |faults: u32| u64::from(if is_kept { faults.min(compulsory) } else { faults });
        counts.faults += of(frame.faults);
        counts.faults_low += of(frame.faults_low);
        counts.faults_high += of(frame.faults_high);
        counts.written_bytes += if is_kept { 0 } else { u64::from(frame.writes) * frame_bytes };
    }
    counts.read_bytes = counts.faults * frame_bytes;
    counts
}
