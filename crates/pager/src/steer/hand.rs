//! The hand: carries acts out as advice to the kernel, neighbours as one range, many ranges in one call.

use tiermem_policy::paging::{Act, Event, Outcome, Ticket};
use tiermem_sys::mapping::Pages;
use tiermem_sys::process_advice::{AdviceError, ProcessAdvice};

use super::spaces::Spaces;

const PAGE_BYTES: u64 = 4096;

/// Acts that follow each other: one kind, one process, pages side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    advice: ProcessAdvice,
    page: u64,
    pages: u64,
    /// The first of its acts, among all.
    first: usize,
}

/// Carries out acts, in their order as far as the kernel is concerned, and tells how each ended. They are taken out.
///
/// # Errors
/// If the kernel takes no advice from this process any more. Advice to processes that have gone is none.
pub fn carry_out(
    acts: &mut Vec<Act>,
    spaces: &Spaces,
    mut tell: impl FnMut(Event),
) -> Result<(), AdviceError> {
    let runs = runs(acts);
    let mut error = None;
    let mut rest = runs.as_slice();
    while let Some(first) = rest.first() {
        let is_alike = |run: &Run| run.advice == first.advice && Spaces::are_of_one(run.page, first.page);
        let count = rest.iter().position(|run| !is_alike(run)).unwrap_or(rest.len());
        let (alike, behind) = rest.split_at(count);
        rest = behind;
        let mut refused = vec![false; count];
        if let Err(failed) = advise(alike, spaces, &mut refused) {
            refused.fill(true);
            if !matches!(failed, AdviceError::Gone { .. }) {
                error = error.or(Some(failed));
            }
        }
        for (run, refused) in alike.iter().zip(refused) {
            let outcome = if refused { Outcome::Refused } else { Outcome::Done };
            let of_run = &acts[run.first..run.first + run.pages as usize];
            of_run
                .iter()
                .map(Act::ticket)
                .for_each(|ticket: Ticket| tell(Event::Settled { ticket, outcome }));
        }
    }
    acts.clear();
    error.map_or(Ok(()), Err)
}

fn advise(alike: &[Run], spaces: &Spaces, refused: &mut [bool]) -> Result<(), AdviceError> {
    let Some(first) = alike.first() else { return Ok(()) };
    let (process, _) = spaces.place_of(first.page);
    let range = |run: &Run| Pages::of_other_process(spaces.place_of(run.page).1, run.pages * PAGE_BYTES).ok();
    let ranges: Option<Vec<Pages<'_>>> = alike.iter().map(range).collect();
    let Some(ranges) = ranges else {
        debug_assert!(false, "pages of a process are whole pages");
        refused.fill(true);
        return Ok(());
    };
    process.advise(&ranges, first.advice, |at, _| refused[at] = true).map(drop)
}

fn runs(acts: &[Act]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, act) in acts.iter().enumerate() {
        let advice = match act {
            Act::PageOut { .. } => ProcessAdvice::PageOut,
            Act::Fetch { .. } => ProcessAdvice::WillNeed,
        };
        let page = act.page();
        match runs.last_mut() {
            Some(run)
                if run.advice == advice
                    && run.page + run.pages == page
                    && Spaces::are_of_one(run.page, page) =>
            {
                run.pages += 1;
            }
            _ => runs.push(Run { advice, page, pages: 1, first: at }),
        }
    }
    runs
}
