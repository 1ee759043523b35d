//! Acts as the kernel is asked for them, many in one call: advice about ranges of neighbours, and moves of pages to another node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tiermem_policy::paging::{Act, Event, Outcome, Ticket};
use tiermem_sys::mapping::Pages;
use tiermem_sys::numa;
use tiermem_sys::pidfd::PidFd;
use tiermem_sys::process_advice::{AdviceError, ProcessAdvice};

use super::nodes::Nodes;
use super::spaces::Spaces;

const PAGE_BYTES: u64 = 4096;
/// Pages of a batch at most: how acts ended is told when all of a batch is done.
const BATCH_PAGES: usize = 256;
/// Why pages are not moved that may be moved at another time, or have gone: `ESRCH` and, while a process ends, `EINVAL`; `ENOMEM` where the
/// node is full.
const FOR_NOW: [i32; 3] = [3, 22, 12];

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Pages leave for swap, or come from there.
    Advice(ProcessAdvice),
    /// They go to this node.
    MoveTo(u32),
}

/// Why nothing more can be asked.
#[derive(Debug, thiserror::Error)]
pub enum CarryOutError {
    /// The kernel takes no advice from this process any more.
    #[error(transparent)]
    Advice(#[from] AdviceError),
    /// It moves no pages.
    #[error("cannot move pages to node {node}: {source}")]
    Move {
        /// The node.
        node: u32,
        /// The system's error.
        source: io::Error,
    },
}

/// What is asked of one kind about pages of one process, and the acts that it carries out.
#[derive(Debug)]
pub struct Batch {
    process: Arc<PidFd>,
    pid: u32,
    way: Way,
    ranges: Vec<Range>,
    /// Of each page, in the order of the ranges; none where pages are brought to where the core has them already.
    tickets: Vec<Ticket>,
    pages: usize,
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
    error: Option<CarryOutError>,
}

impl Batch {
    /// Batches in the order of the acts, which are taken out.
    pub fn of(acts: &mut Vec<Act>, spaces: &Spaces, nodes: Option<&Nodes>) -> Vec<Batch> {
        let wanted = acts.drain(..).map(|act| (act.page(), way(&act, nodes), Some(act.ticket())));
        Batch::gather(wanted, spaces)
    }

    /// Batches that bring pages to nodes, in this order.
    pub fn of_moves(moves: impl IntoIterator<Item = (u64, u32)>, spaces: &Spaces) -> Vec<Batch> {
        Batch::gather(moves.into_iter().map(|(page, node)| (page, Way::MoveTo(node), None)), spaces)
    }

    fn gather(wanted: impl Iterator<Item = (u64, Way, Option<Ticket>)>, spaces: &Spaces) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for (page, way, ticket) in wanted {
            let place = spaces.place_of(page);
            let is_open = batches.last().is_some_and(|batch| batch.takes(page, way));
            if !is_open {
                let (process, pid) = (place.process.clone(), place.pid);
                batches.push(Batch { process, pid, way, ranges: Vec::new(), tickets: Vec::new(), pages: 0 });
            }
            if let Some(batch) = batches.last_mut() {
                batch.add(page, place.address, ticket);
            }
        }
        batches
    }

    fn takes(&self, page: u64, way: Way) -> bool {
        let is_of_process = self.ranges.last().is_some_and(|last| Spaces::are_of_one(last.page, page));
        self.way == way && is_of_process && self.pages < BATCH_PAGES
    }

    fn add(&mut self, page: u64, address: u64, ticket: Option<Ticket>) {
        self.tickets.extend(ticket);
        self.pages += 1;
        match self.ranges.last_mut() {
            Some(last) if last.page + last.pages == page => last.pages += 1,
            _ => self.ranges.push(Range { page, address, pages: 1 }),
        }
    }

    /// Whether its pages leave memory: that makes room at once. The others can wait for what was sent for before.
    pub fn makes_room(&self) -> bool {
        self.way == Way::Advice(ProcessAdvice::PageOut)
    }

    /// Asks the kernel. A process that has gone refuses all.
    pub fn carry_out(self) -> CarriedOut {
        let (refused, error) = match self.way {
            Way::Advice(advice) => self.advise_all(advice),
            Way::MoveTo(node) => self.move_all(node),
        };
        let outcome = |refused| if refused { Outcome::Refused } else { Outcome::Done };
        let outcomes = self.tickets.iter().copied().zip(refused.into_iter().map(outcome)).collect();
        CarriedOut { outcomes, error }
    }

    /// Whether each page was refused, and why nothing more can be asked.
    fn move_all(&self, node: u32) -> (Vec<bool>, Option<CarryOutError>) {
        let ranges = self.ranges.iter().copied();
        let addresses =
            ranges.flat_map(|range| (0..range.pages).map(move |at| range.address + at * PAGE_BYTES));
        let addresses: Vec<u64> = addresses.collect();
        let mut status = vec![0; addresses.len()];
        // Pages are named by the number of their process: one that has ended may have left it to another.
        if self.process.wait(Duration::ZERO) {
            return (vec![true; addresses.len()], None);
        }
        match numa::move_to(self.pid, &addresses, node, &mut status) {
            Ok(_) => (status.iter().map(|status| u32::try_from(*status) != Ok(node)).collect(), None),
            Err(source) => {
                let is_for_all = !source.raw_os_error().is_some_and(|error| FOR_NOW.contains(&error));
                let error = is_for_all.then_some(CarryOutError::Move { node, source });
                (vec![true; addresses.len()], error)
            }
        }
    }

    fn advise_all(&self, advice: ProcessAdvice) -> (Vec<bool>, Option<CarryOutError>) {
        let mut refused = vec![false; self.ranges.len()];
        let error = self.advise(advice, &mut refused).err();
        if error.is_some() {
            refused.fill(true);
        }
        let of_ranges = self.ranges.iter().zip(refused);
        let of_pages =
            of_ranges.flat_map(|(range, refused)| std::iter::repeat_n(refused, range.pages as usize));
        let has_gone = matches!(error, Some(AdviceError::Gone { .. }));
        (of_pages.collect(), error.filter(|_| !has_gone).map(CarryOutError::Advice))
    }

    fn advise(&self, advice: ProcessAdvice, refused: &mut [bool]) -> Result<(), AdviceError> {
        let pages = |range: &Range| Pages::of_other_process(range.address, range.pages * PAGE_BYTES).ok();
        let pages: Option<Vec<Pages<'_>>> = self.ranges.iter().map(pages).collect();
        let Some(pages) = pages else {
            debug_assert!(false, "pages of a process are whole pages");
            refused.fill(true);
            return Ok(());
        };
        self.process.advise(&pages, advice, |at, _| refused[at] = true).map(drop)
    }
}

impl CarriedOut {
    /// Tells how each act ended.
    ///
    /// # Errors
    /// If the kernel does nothing more for this process.
    pub fn tell(self, mut tell: impl FnMut(Event)) -> Result<(), CarryOutError> {
        for (ticket, outcome) in self.outcomes {
            tell(Event::Settled { ticket, outcome });
        }
        self.error.map_or(Ok(()), Err)
    }
}

/// A page moves where both tiers are nodes; where one of them is swap, it is paged.
fn way(act: &Act, nodes: Option<&Nodes>) -> Way {
    let node = |tier: u8| nodes.and_then(|nodes| nodes.of_tier(tier));
    match *act {
        Act::PageOut { to, .. } => to.and_then(node).map_or(Way::Advice(ProcessAdvice::PageOut), Way::MoveTo),
        Act::Fetch { from, to, .. } => {
            let move_to = node(from).and(node(to));
            move_to.map_or(Way::Advice(ProcessAdvice::WillNeed), Way::MoveTo)
        }
    }
}
