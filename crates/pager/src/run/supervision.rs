//! What is done while a program is paged: looks at it, its steering, the times of its faults, and what is asked for meanwhile.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tiermem_policy::evict;
use tiermem_sys::child::Usage;
use tiermem_sys::cpu_time;
use tiermem_sys::swap::{self, SwapTraffic};

use super::ended::{Cause, Ended, Full};
use super::fault_times::Times;
use super::how::How;
use super::late::Late;
use super::memory_pool::PoolBytes;
use super::note::Note;
use super::peaks::{Look, Peaks};
use super::report::Report;
use super::room::{Room, WaitOptions};
use super::steer_options::SteerOptions;
use super::target::Target;
use crate::control::{Change, Control, Status};
use crate::steer::CoreOptions;

/// Between two looks: a look takes about 0.1 ms.
const LOOKS_APART: Duration = Duration::from_millis(50);
/// Looks take one part in this number of the time at most: a group of very many processes takes longer.
const LOOKS_SHARE: u32 = 50;
/// How often is looked for processes that have come from elsewhere.
const PROCESSES_APART: Duration = Duration::from_secs(1);

const PAGE_BYTES: u64 = 4096;

/// How a program is paged, to begin with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The limit of DRAM.
    pub dram_bytes: u64,
    /// The limit of flash; `None`: all of the machine's swap.
    pub flash_bytes: Option<u64>,
    /// What steers it.
    pub steer: SteerOptions,
    /// Whether it is steered.
    pub is_steered: bool,
    /// The swap that was turned on for it.
    pub swap: Option<PathBuf>,
    /// How it may wait where both are full.
    pub room: WaitOptions,
    /// Is told at once what the user has to know while the program runs.
    pub tell: fn(&Note),
}

impl Settings {
    fn core(&self) -> CoreOptions {
        let pages = |bytes: u64| u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        let local_bytes = self.steer.pool.as_ref().map_or(0, |pool| pool.local_bytes);
        CoreOptions {
            evict: self.steer.evict,
            prefetch: self.steer.prefetch,
            drop_behind: self.steer.drop_behind,
            local_pages: pages(local_bytes),
            dram_pages: pages(self.dram_bytes.saturating_sub(local_bytes)),
            swap_pages: self.flash_bytes.map_or(u32::MAX, pages),
        }
    }
}

/// The supervision of one program.
#[derive(Debug)]
pub struct Supervision {
    target: Target,
    settings: Settings,
    control: Option<Control>,
    begun: Instant,
    spent_before: Duration,
    killed_before: u64,
    peaks: Peaks,
    /// The most on both nodes of a pool.
    pool_peaks: Option<PoolBytes>,
    /// It was told that nobody takes care of the pool any more.
    is_pool_left: bool,
    /// Pages read and written are counted for the machine alone.
    is_of_machine: bool,
    steering: Option<Late>,
    room: Room,
    times: Times,
    next_look: Instant,
    next_time: Instant,
    next_processes: Instant,
}

impl Supervision {
    /// Begins, with a look: all counts are from here on.
    pub fn begin(target: Target, settings: Settings) -> Self {
        let begun = Instant::now();
        let mut supervision = Supervision {
            killed_before: target.killed(),
            room: Room::new(&settings.room),
            steering: settings.is_steered.then(|| late(&settings, &target)),
            target,
            settings,
            control: None,
            begun,
            spent_before: own_time(),
            peaks: Peaks::default(),
            pool_peaks: None,
            is_pool_left: false,
            is_of_machine: false,
            times: Times::new(),
            next_look: begun,
            next_time: begun,
            next_processes: begun + PROCESSES_APART,
        };
        if let Some(look) = supervision.look_now() {
            supervision.peaks.add(look);
        }
        supervision
    }

    /// Answers requests from here on.
    pub fn answer(&mut self, mut control: Control) {
        control.publish(self.status());
        self.control = Some(control);
    }

    /// What is supervised.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Why nothing is steered any more, if it was to be.
    pub fn steering_ended(&self) -> Option<&str> {
        self.steering.as_ref().and_then(Late::has_ended)
    }

    /// When [`Self::step`] is to be called again.
    pub fn next_due(&self) -> Instant {
        self.next_look.min(self.next_time)
    }

    /// Does what is due.
    pub fn step(&mut self) {
        if Instant::now() >= self.next_time {
            self.next_time = self.times.step(&self.target, &self.peaks);
        }
        if Instant::now() < self.next_look {
            return;
        }
        self.take_changes();
        let begun = Instant::now();
        if let Some(look) = self.look_now() {
            self.peaks.add(look);
        }
        self.next_look = Instant::now() + LOOKS_APART.max(begun.elapsed() * LOOKS_SHARE);
        if let Some(steering) = &mut self.steering {
            steering.look(&self.target, &self.peaks).iter().for_each(self.settings.tell);
            if begun >= self.next_processes {
                steering.processes(&self.target);
                self.next_processes = begun + PROCESSES_APART;
            }
        }
        if let Some(reason) =
            self.steering_ended().filter(|_| self.settings.steer.pool.is_some() && !self.is_pool_left)
        {
            (self.settings.tell)(&Note::PoolLeft(reason.to_owned()));
            self.is_pool_left = true;
        }
        if let Some(group) = self.target.group() {
            let limits = (self.settings.dram_bytes, self.settings.flash_bytes);
            self.room.look(group, &self.peaks, limits, begun).iter().for_each(self.settings.tell);
        }
        let status = self.control.is_some().then(|| self.status());
        if let (Some(control), Some(status)) = (&mut self.control, status) {
            control.publish(status);
        }
    }

    fn take_changes(&mut self) {
        let changes: Vec<Change> = self.control.iter_mut().flat_map(Control::changes).collect();
        for change in changes {
            let Settings { dram_bytes, flash_bytes, steer, .. } = &mut self.settings;
            *dram_bytes = change.dram_bytes.unwrap_or(*dram_bytes);
            *flash_bytes = change.flash_bytes.or(*flash_bytes);
            steer.drop_behind = change.drop_behind.unwrap_or(steer.drop_behind);
            steer.evict = change.evict.unwrap_or(steer.evict);
            steer.prefetch = change.prefetch.unwrap_or(steer.prefetch);
            match &mut self.steering {
                Some(steering) => steering.change(self.settings.core()),
                None if change.asks_for_steering() => {
                    self.steering = Some(late(&self.settings, &self.target))
                }
                None => {}
            }
        }
    }

    fn status(&self) -> Status {
        let steered = self.steering.as_ref().map(Late::now);
        let total = self.peaks.total();
        let counts = steered.as_ref().map(|steered| steered.counts);
        Status {
            dram_bytes: self.settings.dram_bytes,
            flash_bytes: self.settings.flash_bytes,
            charged_bytes: self.peaks.charged_now(),
            swapped_bytes: self.peaks.swapped_now(),
            minor_faults: total.minor_faults,
            major_faults: total.major_faults,
            read_bytes: total.read_bytes,
            written_bytes: total.written_bytes,
            prefetched_pages: counts.map(|counts| counts.prefetched),
            prefetch_used_pages: counts.map(|counts| counts.prefetch_used),
            paged_out_pages: counts.map(|counts| counts.paged_out),
            quarter_more_saves_faults: steered.map(|steered| steered.quarter_more.faults),
            evict: self.settings.steer.evict.map_or("kernel", evict::Named::name).to_owned(),
            prefetch: self.settings.steer.prefetch.to_string(),
            is_steered: self.steering.is_some(),
            waits_ms: self.room.waits().map(|time| time.as_millis() as u64),
        }
    }

    /// Ends it: the report. `real` is how long the program ran, which has used so much.
    pub fn end(mut self, real: Duration, usage: Option<Usage>, cause: Cause) -> Report {
        if let Some(look) = self.look_now() {
            match self.target {
                Target::OwnGroup(_) | Target::Processes(_) => self.peaks.add_end(look),
                Target::Group(_) => self.peaks.add(look),
            }
        }
        let steered = self.steering.map(|steering| steering.end(&self.target));
        let Supervision { target, settings, mut peaks, pool_peaks, room, .. } = self;
        let waited = room.end(&target);
        if let Target::OwnGroup(group) = &target {
            // The kernel's own peaks miss nothing between two looks.
            peaks.charged_bytes = peaks.charged_bytes.max(group.peak_bytes().unwrap_or(0));
            peaks.flash_bytes = peaks.flash_bytes.max(group.swap_peak_bytes().unwrap_or(0));
        }
        let full = (target.killed() > self.killed_before).then_some(Full {
            dram_bytes: settings.dram_bytes,
            flash_bytes: settings.flash_bytes,
            flash_peak_bytes: peaks.flash_bytes,
            waited,
        });
        let total = peaks.total();
        let largest_bytes = usage.map_or(0, |usage| usage.peak_resident_bytes);
        Report {
            how: if steered.is_some() { How::Kernel } else { How::Swap },
            // A program that ends before the second look has needed no less than its largest process.
            required_bytes: peaks.required_bytes.max(largest_bytes.min(peaks.charged_bytes)),
            charged_peak_bytes: peaks.charged_bytes,
            dram_bytes: settings.dram_bytes,
            pool: settings.steer.pool.as_ref().map(|pool| pool.local_bytes).zip(pool_peaks),
            flash_bytes: settings.flash_bytes,
            flash_peak_bytes: peaks.flash_bytes,
            // Of processes it is not known how much lies in swap and in DRAM at once.
            foreign_bytes: settings.swap.as_ref().and(target.group()).map(|_| peaks.foreign_bytes),
            real,
            usage,
            pager_cpu: own_time().saturating_sub(self.spent_before),
            major_faults: total.major_faults,
            minor_faults: total.minor_faults,
            shared_bytes: peaks.shared_bytes,
            read_bytes: total.read_bytes,
            written_bytes: total.written_bytes,
            is_of_machine: self.is_of_machine,
            fault_times: self.times.end(),
            steered,
            slices: peaks.slices(),
            ended: Ended { cause, full },
        }
    }

    /// How long it has lasted.
    pub fn lasted(&self) -> Duration {
        self.begun.elapsed()
    }

    /// `None` where the group does not tell for once: it is looked at again.
    fn look_now(&mut self) -> Option<Look> {
        let group = self.target.look()?;
        let pool = self.settings.steer.pool.as_ref().zip(self.target.group());
        if let Some(bytes) = pool.and_then(|(pool, group)| pool.use_of(group)) {
            self.pool_peaks = Some(self.pool_peaks.unwrap_or_default().most(bytes));
        }
        let (swapped_in, swapped_out) = match (group.swapped_in, group.swapped_out) {
            (Some(swapped_in), Some(swapped_out)) => (swapped_in, swapped_out),
            _ => {
                self.is_of_machine = true;
                let SwapTraffic { read_pages, written_pages } = swap::traffic().unwrap_or_default();
                (read_pages, written_pages)
            }
        };
        let foreign_bytes = self.used_bytes().saturating_sub(group.swap_places_bytes);
        let at = self.begun.elapsed();
        Some(Look { at, group, swapped_in, swapped_out, foreign_bytes })
    }

    /// Bytes in the swap that was turned on for this program.
    fn used_bytes(&self) -> u64 {
        let Some(path) = &self.settings.swap else { return 0 };
        let areas = swap::areas().unwrap_or_default();
        areas.iter().find(|area| area.path == *path).map_or(0, |area| area.used_bytes)
    }
}

/// Where no group has a limit, what is above the size leaves by steering alone, from the beginning. So it is with what lies on which node.
fn late(settings: &Settings, target: &Target) -> Late {
    let begins_at_once = matches!(target, Target::Processes(_)) || settings.steer.pool.is_some();
    Late::new(settings.core(), &settings.steer, begins_at_once)
}

fn own_time() -> Duration {
    let spent = cpu_time::process_spent();
    spent.user + spent.system
}
