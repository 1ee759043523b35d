//! Names of stacks, looked up when nothing is recorded any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tiermem_stacks::{Code, Frame, Image, name as name_code, site_of};
use tiermem_trace::recording::{SiteFrame, SiteStack};

use super::gathering::AllTouches;

/// So long names are looked up. What takes longer is a file with very much debug information, or a damaged one.
const LOOKED_UP_FOR: Duration = Duration::from_secs(20);
/// A look that is under way then may end, or is not waited for.
const GRACE: Duration = Duration::from_secs(5);

/// Where programs and the loader begin.
const FIRST: &str = "_start";

/// Stacks by what their code is called.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub frames: Vec<SiteFrame>,
    pub stacks: Vec<SiteStack>,
    /// For each stack of addresses, the one of names; `None` if it has no frame.
    pub numbers: Vec<Option<u32>>,
    /// Touches of stacks that ended within the run-time library because they could not be unwound.
    pub not_unwound: u64,
    pub is_late: bool,
}

/// Names the stacks that were gathered.
pub(super) fn name(all: &AllTouches) -> Named {
    let mut wanted: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    for code in all.stacks.iter().flat_map(|stack| &stack.frames) {
        if let Code::InFile { image, address } = code {
            wanted.entry(*image).or_default().insert(*address);
        }
    }
    let wanted = wanted.into_iter().filter_map(|(image, addresses)| {
        let file = Arc::clone(all.images.get(image as usize)?);
        Some((image, file, addresses.into_iter().collect::<Vec<u64>>()))
    });
    let (found, is_late) = look_up(wanted.collect());
    let mut named = Named { is_late, ..Named::default() };
    let mut frames: HashMap<SiteFrame, u32> = HashMap::new();
    let mut stacks: HashMap<SiteStack, u32> = HashMap::new();
    for (stack, samples) in all.stacks.iter().zip(&all.samples) {
        let its: Vec<Frame> = stack.frames.iter().flat_map(|code| of_code(*code, &found, all)).collect();
        let Some((site, is_the_librarys)) = site_of(&its) else {
            named.numbers.push(None);
            continue;
        };
        // Nothing has called the first function, whatever the tables say.
        let is_complete =
            stack.is_complete || its.last().and_then(|it| it.function.as_deref()) == Some(FIRST);
        if is_the_librarys && !is_complete {
            named.not_unwound += samples;
        }
        let number = |it: Frame| {
            let frame = site_frame(it);
            let next = named.frames.len() as u32;
            *frames.entry(frame).or_insert_with_key(|frame| {
                named.frames.push(frame.clone());
                next
            })
        };
        let told = SiteStack { frames: its.into_iter().map(number).collect(), site: site as u32 };
        let next = named.stacks.len() as u32;
        let number = *stacks.entry(told).or_insert_with_key(|told| {
            named.stacks.push(told.clone());
            next
        });
        named.numbers.push(Some(number));
    }
    named
}

type Found = HashMap<(u32, u64), Vec<Frame>>;

/// Looks up names on a thread of its own, which is left behind if it does not end; and whether that took too long.
fn look_up(wanted: Vec<(u32, Arc<Image>, Vec<u64>)>) -> (Found, bool) {
    let deadline = Instant::now() + LOOKED_UP_FOR;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for (number, image, addresses) in wanted {
            let frames = name_code(&image, &addresses, deadline);
            let found: Vec<((u32, u64), Vec<Frame>)> =
                addresses.into_iter().map(|address| (number, address)).zip(frames).collect();
            // Whoever does not wait any more does without.
            let _ = tell.send(found);
        }
    });
    let mut found = Found::new();
    loop {
        let left = (deadline + GRACE).saturating_duration_since(Instant::now());
        match told.recv_timeout(left) {
            Ok(some) => found.extend(some),
            Err(mpsc::RecvTimeoutError::Disconnected) => return (found, Instant::now() >= deadline),
            Err(mpsc::RecvTimeoutError::Timeout) => return (found, true),
        }
    }
}

/// The frames of code: several where functions are inlined.
fn of_code(code: Code, found: &Found, all: &AllTouches) -> Vec<Frame> {
    let Code::InFile { image, address } = code else { return vec![Frame::default()] };
    found.get(&(image, address)).cloned().unwrap_or_else(|| {
        let module = all.images.get(image as usize).map(|image| image.path().to_owned());
        vec![Frame { module, offset: address, ..Frame::default() }]
    })
}

/// The same for a recording: a function is one, wherever in it the code is.
fn site_frame(frame: Frame) -> SiteFrame {
    let Frame { function, file, line, module, offset } = frame;
    let offset = (function.is_none() && module.is_some()).then_some(offset);
    SiteFrame { function, file, line, module, offset }
}
