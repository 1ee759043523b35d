//! Recording with perf, where the processor has counters that sample
//! accesses: `perf mem record`, then `perf script` into the importer.
//!
//! perf knows which events a processor has for this (`mem-loads` of Intel, `ibs_op` of AMD,
//! `arm_spe` of Arm) and their required options, so it is run instead of reimplemented.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tiermem_sys::child;
use tiermem_trace::recording::Recording;

use super::error::PerfMemError;
use super::{ImportOptions, Input, import_inputs};
use crate::capture::Stop;

/// Time between checks whether perf has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time for perf to write its data after it was asked to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of what perf says that are shown.
const SAID_BYTES: u64 = 2000;
/// Where the kernel lists what can be sampled.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// Target of a recording.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started for it, and its arguments.
    Command(Vec<OsString>),
    /// A process that runs already.
    Process(u32),
}

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The target.
    pub target: Target,
    /// The recording ends then; `None`: with the program, or when it is asked to stop.
    pub duration: Option<Duration>,
    /// Sample loads.
    pub loads: bool,
    /// Sample stores. On some processors loads and stores cannot be sampled together (Fisher 2025, section 4.1).
    pub stores: bool,
    /// Sample the program alone and not the kernel.
    pub user_only: bool,
    /// Loads that take less are not sampled, in cycles; where the processor can tell.
    pub latency_min_cycles: Option<u32>,
    /// One sample in this number of accesses; `None`: as perf chooses.
    pub period: Option<u64>,
    /// The program perf.
    pub perf: OsString,
    /// Options of the import.
    pub import: ImportOptions,
}

impl Default for RecordOptions {
    /// The program's own loads, as Fisher 2025 records them.
    fn default() -> Self {
        RecordOptions {
            target: Target::Command(Vec::new()),
            duration: None,
            loads: true,
            stores: false,
            user_only: true,
            latency_min_cycles: None,
            period: None,
            perf: OsString::from("perf"),
            import: ImportOptions::default(),
        }
    }
}

/// Records a program, or a process for a while, and reads the recording. `progress` gets the bytes of text read.
///
/// # Errors
/// If there is no perf, if the machine has no counters for it, if
/// perf may not record or prints something that cannot be parsed.
pub fn record(
    options: &RecordOptions,
    stop: &Stop,
    progress: impl FnMut(u64, Option<u64>),
) -> Result<Recording, PerfMemError> {
    options.import.check()?;
    if !options.loads && !options.stores {
        return Err(PerfMemError::Options("there is nothing to sample: neither loads nor stores".to_owned()));
    }
    if matches!(&options.target, Target::Command(command) if command.is_empty()) {
        return Err(PerfMemError::Options("there is no program to record".to_owned()));
    }
    probe(options)?;
    let folder = tempfile::tempdir().map_err(PerfMemError::Start)?;
    let data = folder.path().join("perf.data");
    let begun = Instant::now();
    sample(options, &data, stop)?;
    let wall = begun.elapsed();
    let mut recording = print(options, &data, progress)?;
    recording.head.cost.wall_s = wall.as_secs_f64();
    Ok(recording)
}

/// Asks perf whether there is anything to sample with.
fn probe(options: &RecordOptions) -> Result<(), PerfMemError> {
    let output = Command::new(&options.perf)
        .args(["mem", "record", "-e", "list"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| cannot_start(options, error))?;
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    // `ldlat-loads : available`, on versions that list; those before 4.? name what there is.
    if said.contains("available") && !said.contains("failed") {
        return Ok(());
    }
    let there: Vec<String> = std::fs::read_dir(DEVICES)
        .map(|list| list.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    let missing = format!(
        "none of cpu/mem-loads, ibs_op and arm_spe is under {DEVICES}, which has {}",
        if there.is_empty() { "nothing".to_owned() } else { there.join(", ") }
    );
    Err(PerfMemError::NoCounters { missing, said: said.trim().to_owned() })
}

fn cannot_start(options: &RecordOptions, error: io::Error) -> PerfMemError {
    match error.kind() {
        io::ErrorKind::NotFound => PerfMemError::NoPerf(options.perf.to_string_lossy().into_owned()),
        _ => PerfMemError::Start(error),
    }
}

/// A process that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            child::end_group(self.0.id());
            let _ = self.0.wait();
        }
    }
}

/// Runs `perf mem record` until the program ends, the time is over, or it is asked to stop.
fn sample(options: &RecordOptions, data: &Path, stop: &Stop) -> Result<(), PerfMemError> {
    let types = match (options.loads, options.stores) {
        (true, true) => "load,store",
        (false, _) => "store",
        _ => "load",
    };
    let mut command = Command::new(&options.perf);
    command.args(["mem", "-t", types, "record", "-o"]).arg(data);
    if options.user_only {
        command.arg("-U");
    }
    if let Some(cycles) = options.latency_min_cycles {
        command.arg("--ldlat").arg(cycles.to_string());
    }
    if let Some(period) = options.period {
        command.arg(format!("--count={period}"));
    }
    match &options.target {
        Target::Process(pid) => command.arg(format!("--pid={pid}")),
        Target::Command(program) => command.arg("--").args(program),
    };
    let mut said = tempfile::tempfile().map_err(PerfMemError::Start)?;
    command.stdout(io::stderr()).stderr(said.try_clone().map_err(PerfMemError::Start)?).process_group(0);
    // A group of its own is no terminal's foreground, so that reading from one would stop it for ever.
    if io::IsTerminal::is_terminal(&io::stdin()) {
        command.stdin(Stdio::null());
    }
    child::end_with_parent(&mut command);
    let begun = Instant::now();
    let mut perf = Ended(command.spawn().map_err(|error| cannot_start(options, error))?);
    let mut asked: Option<Instant> = None;
    let status = loop {
        if let Some(status) = perf.0.try_wait().map_err(PerfMemError::Start)? {
            break status;
        }
        let is_over = stop.is_asked() || options.duration.is_some_and(|duration| begun.elapsed() >= duration);
        match asked {
            None if is_over => {
                // perf writes down what it has, and ends the program that it has started.
                child::interrupt(perf.0.id());
                asked = Some(Instant::now());
            }
            Some(when) if when.elapsed() > PATIENCE => child::end_group(perf.0.id()),
            _ => {}
        }
        std::thread::sleep(LOOK_EVERY);
    };
    // perf ends as the program did, so its status says nothing; the file does.
    let is_there = data.metadata().is_ok_and(|meta| meta.len() > 0);
    if is_there { Ok(()) } else { Err(failed("perf mem record", status, &mut said)) }
}

/// Runs perf to print the samples, and reads them as they come.
fn print(
    options: &RecordOptions,
    data: &Path,
    progress: impl FnMut(u64, Option<u64>),
) -> Result<Recording, PerfMemError> {
    let mut said = tempfile::tempfile().map_err(PerfMemError::Start)?;
    let mut command = Command::new(&options.perf);
    command.args([
        "script",
        "-F",
        "comm,pid,tid,time,event,addr,data_src,weight,ip",
        "--show-mmap-events",
        "-i",
    ]);
    command.arg(data).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    command.stderr(said.try_clone().map_err(PerfMemError::Start)?);
    child::end_with_parent(&mut command);
    let mut perf = Ended(command.spawn().map_err(|error| cannot_start(options, error))?);
    let Some(text) = perf.0.stdout.take() else {
        return Err(PerfMemError::Start(io::Error::other("it has no output")));
    };
    let mut import = options.import.clone();
    if let (Target::Process(pid), None) = (&options.target, import.pid) {
        import.pid = Some(*pid);
    }
    if let (Target::Command(program), true) = (&options.target, import.command.is_empty()) {
        import.command = program.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    }
    // The recording may have been asked to stop; what there is of it is read all the same.
    let recording = Input::stream(Path::new("perf script"), text)
        .and_then(|input| import_inputs(vec![input], &import, &Stop::default(), progress));
    if recording.is_err() {
        child::end_group(perf.0.id());
    }
    let status = perf.0.wait().map_err(PerfMemError::Start)?;
    match recording {
        Ok(recording) if status.success() => Ok(recording),
        Ok(_) | Err(PerfMemError::NoSamples(_)) if !status.success() => {
            Err(failed("perf script", status, &mut said))
        }
        recording => recording,
    }
}

fn failed(command: &str, status: ExitStatus, said: &mut File) -> PerfMemError {
    let mut text = Vec::new();
    let length = said.seek(SeekFrom::End(0)).unwrap_or(0);
    // What cannot be read of it is not shown.
    let _ = said.seek(SeekFrom::Start(length.saturating_sub(SAID_BYTES)));
    let _ = said.take(SAID_BYTES).read_to_end(&mut text);
    let said = String::from_utf8_lossy(&text).trim().to_owned();
    PerfMemError::Perf { command: command.to_owned(), status: status.to_string(), said }
}
