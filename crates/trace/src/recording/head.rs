//! Head of a recording: the program, its regions, slices, sources and cost.

use serde::{Deserialize, Serialize};
use tiermem_base::Access;

use super::{Rss, Sample, Sites};

/// Metadata of a recording, stored as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The form's version: [`Head::VERSION`].
    pub version: u32,
    /// The program and its arguments; empty if it was running already and they could not be read.
    pub command: Vec<String>,
    /// The program's file.
    pub executable: Executable,
    /// When the recording began, in nanoseconds since 1970, to hold it against what others saw; 0 if not known.
    #[serde(default)]
    pub began_unix_ns: u64,
    /// How long the program had run when the recording of it began, as that was asked for.
    #[serde(default)]
    pub delay_ns: u64,
    /// The finest granule that samples have, in bytes.
    pub granule_bytes: u64,
    /// The slices in the order of time; they do not overlap.
    pub slices: Vec<Slice>,
    /// The sources of the accesses.
    pub sources: Vec<Source>,
    /// The processes, where descendants were followed: first the one that was started or named, then the others as they were born.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// The regions that samples lie in, and regions that were mapped and never accessed.
    pub regions: Vec<Region>,
    /// Which code first touched the memory, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<Sites>,
    /// The cost of recording.
    pub cost: Cost,
    /// Notes for readers: events that could not be followed or were lost.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Head {
    /// The version of the form that this code writes.
    pub const VERSION: u32 = 1;
}

/// A program's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// Where it was.
    pub path: String,
    /// The build-id that its linker gave it, in hexadecimal.
    pub build_id: Option<String>,
}

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// What it is called here, unique within a recording: `cc1`, `cc1 #2`. Regions of all but the first process have it before their own
    /// names: `cc1 #2: heap`.
    pub name: String,
    /// Its number in the system.
    pub pid: u32,
    /// The process that started it: its index in [`Head::processes`]. `None` if that is not known, or none of them.
    pub parent: Option<u32>,
    /// The program that it ran last, and its arguments; empty if they could not be read.
    pub command: Vec<String>,
    /// That program's file.
    pub executable: Executable,
    /// When it was born, in nanoseconds from the recording's start.
    pub begun_ns: u64,
    /// When it ended; `None` if it did not.
    pub ended_ns: Option<u64>,
    /// Whether its memory was looked at. What lives shorter than a tenth of a second is not.
    pub is_observed: bool,
    /// How much of it was in memory.
    #[serde(default, skip_serializing_if = "Rss::is_empty")]
    pub rss: Rss,
}

/// A stretch of time, in nanoseconds from the recording's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Its start.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

/// The unit that a source counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Loads and stores.
    #[default]
    Accesses,
    /// Samples of loads and stores: one for a number of them.
    Samples,
    /// Pages touched, as often as they were looked at; between looks, estimated from how many pages of a granule were
    /// touched how soon.
    PageTouches,
    /// Pages written.
    PageWrites,
    /// Page faults.
    Faults,
}

/// A source: the means by which accesses were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name on the command line: refs, writes, faults, damon, perf-mem, lackey.
    pub name: String,
    /// The unit that it counts.
    pub unit: Unit,
    /// Whether it tells loads from stores. One that sees writes alone says so by samples that all are stores.
    pub tells_stores: bool,
    /// Whether it tells where an access was answered.
    pub tells_level: bool,
}

/// The kind of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionKind {
    /// Bytes of a file.
    File,
    /// Memory of the program's own, from `mmap` or an allocator.
    #[default]
    Anonymous,
    /// The heap that `brk` gives.
    Heap,
    /// The first thread's stack.
    Stack,
    /// What the kernel maps into every program (vdso, vvar), and what is neither of the others.
    Special,
}

/// A stretch of a program's addresses that is one thing to the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its usual name: `model.gguf`, `libc.so.6 text`, `heap`, `anon 3`. Unique within a recording.
    pub name: String,
    /// The process that it belongs to: an index in [`Head::processes`], 0 where there are none.
    #[serde(default)]
    pub process: u32,
    /// Its kind.
    pub kind: RegionKind,
    /// The mapped file.
    pub path: Option<String>,
    /// The file's build-id, if it is a program or a library that has one.
    pub build_id: Option<String>,
    /// Where in the file the region starts.
    pub file_offset: u64,
    /// As in `/proc/PID/maps`: `rw-p`.
    pub permissions: String,
    /// Its address in the recorded run; another run has it elsewhere.
    pub start: u64,
    /// Its size, at its largest.
    pub bytes: u64,
    /// The slice in which it was first seen.
    pub first_slice: u32,
    /// The last slice in which it was there.
    pub last_slice: u32,
}

impl Head {
    /// A sample as an access of a trace.
    pub fn access(&self, sample: &Sample) -> Access {
        Access {
            time_ns: self.slices[sample.slice as usize].start_ns,
            op: sample.op,
            key: self.regions[sample.region as usize].first_key().wrapping_add(sample.offset),
            size: sample.bytes,
            tenant: sample.region,
            ..Access::default()
        }
    }
}

impl Region {
    /// The key of its first byte where recordings are read as traces: its address, in whose highest 16 bits the process is. Programs have
    /// addresses of 47 bits, but for those that ask for more.
    pub fn first_key(&self) -> u64 {
        self.start ^ u64::from(self.process) << 48
    }
}

/// The cost of recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// From start to end, in seconds.
    pub wall_s: f64,
    /// Processor time of the recorder, in seconds.
    pub recorder_cpu_s: f64,
    /// Processor time of the program and what it waited for, in seconds.
    pub program_cpu_s: f64,
    /// Processor time that the program's own process spent for the recorder (the agent within it), in seconds.
    pub agent_cpu_s: f64,
}
