//! Recording with perf, or with a script in its place where there are no counters.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use tiermem_place::capture::Stop;
use tiermem_place::capture::perf_mem::{PerfMemError, RecordOptions, Target, record};
use tiermem_trace::recording::Recording;

/// Does as perf would: lists events, writes a file while the program runs, prints it.
const PERF: &str = r#"#!/bin/sh
case "$1 $2 $3 $4" in
  "mem record -e list") echo "ldlat-loads : available" >&2 ;;
  "mem -t load record")
    echo "$@" >"$6"
    trap 'exit 0' INT
    case "$*" in *forever*) while :; do sleep 0.05; done ;; esac ;;
  "script "*)
    echo 'a 12/12 1.000000: PERF_RECORD_MMAP2 12/12: [0x7f0000(0x10000) @ 0 fe:00 9 0]: r--s /srv/model.gguf'
    echo 'a 12/13 1.000002: cpu/mem-loads/Pu: 7f1000 1a68101042 |OP LOAD|LVL Local RAM or RAM hit|SNP None|TLB N/A|LCK No   60   401136' ;;
esac
"#;

fn with(perf: &str, arguments: &[&str], options: RecordOptions) -> Result<Recording, PerfMemError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf");
    // Written by another process: were it open for writing here while another test forks, it could not be executed.
    let mut install = Command::new("install");
    let mut install =
        install.args(["-m", "755", "/dev/stdin"]).arg(&path).stdin(Stdio::piped()).spawn().unwrap();
    install.stdin.take().unwrap().write_all(perf.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
    let target = Target::Command(arguments.iter().map(Into::into).collect());
    record(&RecordOptions { target, perf: path.into(), ..options }, &Stop::default(), |_, _| {})
}

#[test]
fn what_perf_prints_is_imported() {
    let recording = with(PERF, &["prog", "x"], RecordOptions::default()).unwrap();
    assert_eq!(recording.head.command, ["prog", "x"]);
    assert_eq!(recording.head.regions[0].name, "model.gguf");
    assert_eq!((recording.samples.len(), recording.samples[0].offset), (1, 0x1000));
}

#[test]
fn a_recording_ends_when_its_time_is_over() {
    // Time enough for the script to begin on a busy machine: asked to end before, it has written nothing.
    let options = RecordOptions { duration: Some(Duration::from_secs(6)), ..RecordOptions::default() };
    assert!(with(PERF, &["forever"], options).is_ok());
}

#[test]
fn what_goes_wrong_is_said() {
    let none = "#!/bin/sh\necho 'failed: memory events not supported' >&2\nexit 255\n";
    let error = with(none, &["prog"], RecordOptions::default()).unwrap_err();
    assert!(error.to_string().contains("memory events not supported"), "{error}");
    assert!(matches!(error, PerfMemError::NoCounters { .. }) && !error.advice().is_empty());

    let forbidden = "#!/bin/sh\ncase \"$*\" in *list) echo 'ldlat-loads : available' ;; *) echo 'Access denied' >&2; exit 255 ;; esac\n";
    let error = with(forbidden, &["prog"], RecordOptions::default()).unwrap_err();
    assert!(
        matches!(error, PerfMemError::Perf { .. }) && error.to_string().contains("Access denied"),
        "{error}"
    );

    let mute =
        PERF.replace("\"script \"*)", "\"script \"*) echo 'no such thing' >&2; exit 1;;\n \"never \"*)");
    let error = with(&mute, &["prog"], RecordOptions::default()).unwrap_err();
    assert!(matches!(error, PerfMemError::Perf { .. }), "{error}");

    assert!(matches!(with(PERF, &[], RecordOptions::default()), Err(PerfMemError::Options(_))));
    let neither = RecordOptions { loads: false, ..RecordOptions::default() };
    assert!(matches!(with(PERF, &["prog"], neither), Err(PerfMemError::Options(_))));
    let missing =
        RecordOptions { perf: "no-such-perf".into(), target: Target::Process(1), ..RecordOptions::default() };
    assert!(matches!(record(&missing, &Stop::default(), |_, _| {}), Err(PerfMemError::NoPerf(_))));
}
