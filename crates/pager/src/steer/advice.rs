//! Acts as advice to the kernel: neighbours as one range, many ranges in one call.

use std::sync::Arc;

use tiermem_policy::paging::{Act, Event, Outcome, Ticket};
use tiermem_sys::mapping::Pages;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::{AdviceError, ProcessAdvice};

use super::spaces::Spaces;

const PAGE_BYTES: u64 = 4096;
/// Pages of a batch at most: how acts ended is told when all of a batch is done.
const BATCH_PAGES: usize = 256;

/// Advice of one kind about pages of one process, and the acts that it carries out.
#[derive(Debug)]
pub struct Batch {
    process: Arc<PidFd>,
    advice: ProcessAdvice,
    ranges: Vec<Range>,
    /// Of each page, in the order of the ranges.
    tickets: Vec<Ticket>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    /// The number of its first page, among those of all processes.
    page: u64,
    address: u64,
    pages: u64,
}

/// How the acts of a batch ended.
#[derive(Debug)]
pub struct CarriedOut {
    outcomes: Vec<(Ticket, Outcome)>,
    error: Option<AdviceError>,
}

impl Batch {
    /// Batches in the order of the acts, which are taken out.
    pub fn of(acts: &mut Vec<Act>, spaces: &Spaces) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for act in acts.drain(..) {
            let (page, advice) = (act.page(), advice(&act));
            let is_open = batches.last().is_some_and(|batch| batch.takes(page, advice));
            if !is_open {
                let process = spaces.place_of(page).0.clone();
                batches.push(Batch { process, advice, ranges: Vec::new(), tickets: Vec::new() });
            }
            if let Some(batch) = batches.last_mut() {
                batch.add(page, spaces.place_of(page).1, act.ticket());
            }
        }
        batches
    }

    fn takes(&self, page: u64, advice: ProcessAdvice) -> bool {
        let is_of_process = self.ranges.last().is_some_and(|last| Spaces::are_of_one(last.page, page));
        self.advice == advice && is_of_process && self.tickets.len() < BATCH_PAGES
    }

    fn add(&mut self, page: u64, address: u64, ticket: Ticket) {
        self.tickets.push(ticket);
        match self.ranges.last_mut() {
            Some(last) if last.page + last.pages == page => last.pages += 1,
            _ => self.ranges.push(Range { page, address, pages: 1 }),
        }
    }

    /// Whether its pages are fetched; else they leave.
    pub fn is_fetch(&self) -> bool {
        self.advice == ProcessAdvice::WillNeed
    }

    /// Advises the kernel. A process that has gone refuses all.
    pub fn carry_out(self) -> CarriedOut {
        let mut refused = vec![false; self.ranges.len()];
        let error = self.advise(&mut refused).err();
        if error.is_some() {
            refused.fill(true);
        }
        let of_ranges = self.ranges.iter().zip(refused).flat_map(|(range, refused)| {
            std::iter::repeat_n(if refused { Outcome::Refused } else { Outcome::Done }, range.pages as usize)
        });
        let outcomes = self.tickets.iter().copied().zip(of_ranges).collect();
        CarriedOut { outcomes, error: error.filter(|error| !matches!(error, AdviceError::Gone { .. })) }
    }

    fn advise(&self, refused: &mut [bool]) -> Result<(), AdviceError> {
        let pages = |range: &Range| Pages::of_other_process(range.address, range.pages * PAGE_BYTES).ok();
        let pages: Option<Vec<Pages<'_>>> = self.ranges.iter().map(pages).collect();
        let Some(pages) = pages else {
            debug_assert!(false, "pages of a process are whole pages");
            refused.fill(true);
            return Ok(());
        };
        self.process.advise(&pages, self.advice, |at, _| refused[at] = true).map(drop)
    }
}

impl CarriedOut {
    /// Tells how each act ended.
    ///
    /// # Errors
    /// If the kernel takes no advice from this process any more.
    pub fn tell(self, mut tell: impl FnMut(Event)) -> Result<(), AdviceError> {
        for (ticket, outcome) in self.outcomes {
            tell(Event::Settled { ticket, outcome });
        }
        self.error.map_or(Ok(()), Err)
    }
}

fn advice(act: &Act) -> ProcessAdvice {
    match act {
        Act::PageOut { .. } => ProcessAdvice::PageOut,
        Act::Fetch { .. } => ProcessAdvice::WillNeed,
    }
}
