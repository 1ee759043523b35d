//! Form of a placement plan: which parts of which regions belong in fast memory, when, and what that should save.
//!
//! A plan names regions and offsets, never addresses, so that it holds for the next run; and it says where bytes should lie,
//! never by which mechanism they get there (Fisher 2025, section 5.1).

use serde::{Deserialize, Serialize};

/// A plan, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The form's version: [`Plan::VERSION`].
    pub version: u32,
    /// The recording that it was made from, by which a program that it does not fit is refused.
    pub made_from: MadeFrom,
    /// The granule in which offsets and sizes are given, in bytes.
    pub granule_bytes: u64,
    /// The fast memory that it divides, in bytes.
    pub fast_bytes: u64,
    /// Bytes of the program's regions that are smaller than a granule. They lie in fast memory in addition to what is divided.
    #[serde(default)]
    pub small_bytes: u64,
    /// The assumed tiers.
    pub assumed: Assumed,
    /// The regions that it speaks of.
    pub regions: Vec<PlannedRegion>,
    /// The spans that lie in fast memory all the time, the hottest first.
    pub always: Vec<Span>,
    /// The spans that lie there in some phases of the program only; empty if it has none.
    pub phases: Vec<Phase>,
    /// The sweeps through it, ahead of a hotspot that moves.
    pub sweeps: Vec<Sweep>,
    /// The predicted savings.
    pub predicted: Predicted,
}

impl Plan {
    /// The version of the form that this code writes and reads.
    pub const VERSION: u32 = 1;
}

/// The recording that a plan was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeFrom {
    /// The recording's file.
    pub recording: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The program's file.
    pub executable: String,
    /// The build-id of the program's file, in hexadecimal.
    pub build_id: Option<String>,
}

/// The tiers as a plan assumes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assumed {
    /// Latency of fast memory.
    pub fast_latency_ns: f64,
    /// Latency of slow memory.
    pub slow_latency_ns: f64,
    /// How fast bytes can be moved between them, bytes in a second, both ways together.
    pub move_bytes_per_s: f64,
}

/// A region that a plan speaks of, by what a later run can know it by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRegion {
    /// Its name in the recording.
    pub name: String,
    /// file, anonymous, heap, stack or special.
    pub kind: String,
    /// The mapped file.
    pub path: Option<String>,
    /// The file's build-id.
    pub build_id: Option<String>,
    /// Where in the file it starts.
    pub file_offset: u64,
    /// As in `/proc/PID/maps`.
    pub permissions: String,
    /// Its size in the recording.
    pub bytes: u64,
}

/// A stretch of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Index in [`Plan::regions`].
    pub region: u32,
    /// Bytes from the region's start.
    pub offset: u64,
    /// Bytes of the stretch.
    pub bytes: u64,
}

/// A phase: a time in which the program uses other parts than in others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// When it began in the recording, in nanoseconds, each time.
    pub began_ns: Vec<u64>,
    /// The spans that belong in fast memory then, in addition to those that always do; the hottest first.
    pub spans: Vec<Span>,
}

/// A hotspot that moves through a stretch, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// The span that it moves through.
    pub span: Span,
    /// From one pass to the next.
    pub period_ns: u64,
    /// How fast it moves; negative if towards lower offsets.
    pub bytes_per_s: f64,
    /// How much of it is hot at once.
    pub hot_bytes: u64,
    /// How far ahead of it bytes should be in fast memory, from its speed and how fast they can be moved.
    pub lead_bytes: u64,
    /// The fast memory that it is given.
    pub window_bytes: u64,
    /// The distance at which the pattern repeats in space, 0 if it does not.
    pub stride_bytes: u64,
    /// Of its granules, every so-manieth passes through the window, as bytes cannot be moved as fast as it does: 1 if all do.
    #[serde(default = "all")]
    pub every: u32,
}

/// Plans of before there was a choice have every granule pass.
fn all() -> u32 {
    1
}

/// The predicted savings of a plan, by a simulation over its own recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The share of accesses that go to slow memory if pages lie where they are first touched, fast memory first.
    pub slow_share_before: f64,
    /// That share with the plan.
    pub slow_share_after: f64,
    /// That share with a clairvoyant placement, which knows the future and moves at most as fast.
    pub slow_share_clairvoyant: f64,
    /// Bytes moved in a second, both ways together.
    pub moved_bytes_per_s: f64,
    /// The share of the time that moving takes, at the assumed speed.
    pub moving_s_per_s: f64,
    /// Nanoseconds of latency saved in a second, had each access waited for its memory: to be held against the time that
    /// moving takes. From samples and pages touched it is less than the truth by as much as those are fewer than accesses.
    pub saved_ns_per_s: f64,
    /// Of a plan for the pager, to which the others do not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paged: Option<PagedPrediction>,
}

/// What a plan for the pager saves, by the pager's simulation over its own recording: without a plan, and with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PagedPrediction {
    /// Faults that read from flash without a plan, by the kernel's reclaim and readahead.
    pub faults_before: u64,
    /// Those with the plan.
    pub faults_after: u64,
    /// Bytes read from flash without a plan, for faults and ahead of them.
    pub read_bytes_before: u64,
    /// Those with the plan.
    pub read_bytes_after: u64,
    /// Seconds that these faults and reads take without a plan.
    pub waiting_s_before: f64,
    /// Those with the plan.
    pub waiting_s_after: f64,
}
