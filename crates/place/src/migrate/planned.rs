//! Planned run: starts a program under a plan, observes it in slices, and places its memory as the plan says.

use std::time::{Duration, Instant};

use tiermem_model::placement::Plan;
use tiermem_sys::agent::Policy;

use super::executor::{Executor, Placement, Touched};
use super::fast_memory_cap::Room;
use super::mover::ProcessPages;
use super::region_match;
use super::report::{Failure, Report};
use crate::capture::live::{self, Target};
use crate::capture::observer::{Observer, Piece};
use crate::capture::schedule::Schedule;
use crate::capture::{Stop, executable_of};

/// A program that has given back its memory has ended after this time; until then its pages cannot be queried.
const ENDING: Duration = Duration::from_secs(1);

/// Options of a planned run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program and how it is looked at: its granule must be the plan's, and it has one source that tells how hot granules are.
    pub look: live::Options,
    /// The plan.
    pub plan: Plan,
    /// How pages are placed.
    pub placement: Placement,
    /// The node of fast memory.
    pub fast_node: u32,
    /// The node of slow memory.
    pub slow_node: u32,
    /// Bytes that may be moved in a second.
    pub move_bytes_per_s: f64,
}

/// Runs a program under a plan. `progress` gets the slices so far. The program does not outlive this call.
///
/// # Errors
/// If the plan is for another program (before that is started, where its build-id shows
/// it), if the program cannot be started or observed, or its pages cannot be moved.
pub fn run(options: &Options, stop: &Stop, mut progress: impl FnMut(u64)) -> Result<Report, Failure> {
    let plan = &options.plan;
    if let Target::Command(command) = &options.look.target {
        let build_id = executable_of(command)?.build_id;
        plan.fits_binary(build_id.as_deref()).map_err(Failure::Misfit)?;
    }
    // Held until the program has ended.
    let room = (options.placement == Placement::FirstTouch)
        .then(|| Room::leave(options.fast_node, plan.fast_bytes.saturating_add(plan.small_bytes), plan));
    let begun = Instant::now();
    let mut observer = Observer::begin(&options.look, stop)?;
    let pages = ProcessPages::of(observer.process.pid);
    let slice_ns = options.look.slice.as_nanos() as u64;
    let placer = options.placement.placer(plan, slice_ns, options.move_bytes_per_s);
    let mut executor = Executor::new(plan, placer, [options.fast_node, options.slow_node], pages);
    let mut touched: Vec<Touched> = Vec::new();
    let mut schedule = Schedule::new(options.look.slice);
    let ended = loop {
        touched.clear();
        let mut settled = Ok(());
        let mut mapped = |observer: &mut Observer<'_>| {
            if settled.is_ok() {
                settled = after_mapping(&mut executor, observer);
            }
        };
        let looked =
            observer.slice(stop, schedule.due(), |piece| touched.push(touch(&piece)), &mut mapped)?;
        let Some(looked) = looked else { break true };
        let since = |moment: Instant| moment.saturating_duration_since(begun).as_nanos() as u64;
        let placed = settled
            .and_then(|()| attach(&mut executor, &mut observer))
            .and_then(|()| executor.after_slice(since(looked.begun), since(looked.end), &touched));
        match placed {
            Ok(()) => {}
            // A program that ends meanwhile has no pages.
            Err(_) if looked.ended || observer.process.watch.wait(ENDING) => break true,
            Err(error) => return Err(error),
        }
        schedule.end(looked.end);
        progress(u64::from(schedule.due().number));
        if looked.ended || stop.is_asked() {
            break looked.ended;
        }
    };
    let mut report = executor.report();
    report.ending = Some(observer.process.finish(ended && !stop.is_asked())?);
    observer.end_sources();
    report.wall = begun.elapsed();
    report.notes = observer.notes;
    match room {
        Some(Ok(room)) => report.notes.push(room.note()),
        Some(Err(reason)) => report.not_measured = Some(reason),
        None => {}
    }
    Ok(report)
}

fn touch(piece: &Piece) -> Touched {
    let Piece { region, address, bytes, weight, .. } = *piece;
    Touched { region, address, bytes, weight }
}

/// Gives what the program has just mapped its place, before more of it is touched.
fn after_mapping(
    executor: &mut Executor<'_, ProcessPages>,
    observer: &mut Observer<'_>,
) -> Result<(), Failure> {
    if !observer.look_again()? {
        return Ok(());
    }
    match attach(executor, observer) {
        // A library is mapped as a whole first, and part by part then. What does not fit at the end of a slice does not fit.
        Err(Failure::Misfit(_)) => Ok(()),
        done => done,
    }
}

/// Tells what is mapped now; the agent within the program asks the kernel for homes.
fn attach(executor: &mut Executor<'_, ProcessPages>, observer: &mut Observer<'_>) -> Result<(), Failure> {
    let now = region_match::mapped(&mut observer.regions);
    let agent = &mut observer.agent;
    let mut bind = |start: u64, end: u64, node: u32| {
        if let Some(agent) = agent.as_mut().filter(|_| node < 64 && start < end) {
            // What the kernel refuses is placed by moves.
            let _ = agent.bind(start, end - start, Policy::Preferred, 1 << node);
        }
    };
    executor.attach(&now, &mut bind)
}
