//! Pages of a plan, as the pager's core is told of them.

use tiermem_model::placement::{Misfit, Plan};
use tiermem_place::migrate::{PlannedStretch, in_recording};
use tiermem_policy::paging::{PageRange, Role};
use tiermem_trace::recording::Recording;

/// What a plan says of the pages of a recorded program, the most important first.
///
/// # Errors
/// If the plan is not for this program.
pub fn pages(plan: &Plan, recording: &Recording, page_bytes: u64) -> Result<Vec<(PageRange, Role)>, Misfit> {
    let of = |PlannedStretch { role, start, end }: PlannedStretch| {
        (PageRange { first: start / page_bytes, end: end.div_ceil(page_bytes) }, role)
    };
    Ok(in_recording(plan, recording)?.into_iter().map(of).collect())
}
