//! `tiermem block replay` against a server, as a user meets it.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tiermem_block::disks::{Answer, Disks, Job, MemoryDisks, Outcome, Waker};
use tiermem_block::nbd::{Address, Export};
use tiermem_block::server::{Listeners, Server, ServerConfig, ServerStats};
use tokio::sync::oneshot;

const CLOUD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/cloudPhysicsIO-20k.vscsi.zst");
const SLICE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/msr-slice-rw20-10k.trace.zst");
const MSR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/testdata/msr-cambridge1-200.csv.gz");
/// A trace with enough requests to be interrupted.
const LONG: &str = "zipf:objects=1000,requests=3M,size=4096";

/// A server over disks, in a thread of its own. Dropped, it shuts down.
struct Serving {
    stats: Arc<ServerStats>,
    directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn of<D: Disks + 'static>(make: impl FnOnce() -> D + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listeners = Listeners::bind(&[Address::Unix(directory.path().join("socket"))]).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let server = Server::new(make(), ServerConfig::default()).unwrap();
            tell.send(server.stats()).unwrap();
            let shutdown = async {
                let _ = stopped.await;
            };
            server.run(listeners, shutdown).unwrap();
        });
        Serving { stats: told.recv().unwrap(), directory, stop: Some(stop), thread: Some(thread) }
    }

    /// Disks of these names and sizes.
    fn memory(disks: &'static [(&'static str, u64)]) -> Self {
        Serving::of(move || {
            let mut memory = MemoryDisks::new();
            for (name, size_bytes) in disks {
                memory.add(name, *size_bytes);
            }
            memory
        })
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.directory.path().join("socket").display())
    }

    /// Waits until this number of requests have arrived; if they never do, the test hangs and its runner ends it.
    fn until(&self, requests: u64) {
        while self.stats.exports().iter().map(|export| export.requests_total()).sum::<u64>() < requests {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the server has panicked");
        }
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiermem"));
    command.args(["block", "replay"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Runs the program: its exit code, what it printed, and what it said on standard error.
fn replay(arguments: &[&str]) -> (i32, String, String) {
    ended(command(arguments).output().unwrap())
}

fn result(arguments: &[&str]) -> Value {
    let (code, printed, said) = replay(&[arguments, &["--format", "json"]].concat());
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(&printed).unwrap()
}

fn wait(child: Child) -> (i32, String, String) {
    ended(child.wait_with_output().unwrap())
}

#[test]
fn real_traces_are_replayed_and_what_comes_back_is_right() {
    let server = Serving::memory(&[("disk", 64 << 30), ("disk-0", 64 << 30), ("disk-1", 64 << 30)]);
    let cloud = result(&[CLOUD, "--to", &server.uri("disk"), "--verify"]);
    assert_eq!(
        (&cloud["requests"], &cloud["reads"], &cloud["writes"]),
        (&20_000.into(), &4153.into(), &15_847.into())
    );
    assert_eq!(
        (&cloud["errors"], &cloud["mismatches"], &cloud["connections"]),
        (&0.into(), &0.into(), &16.into())
    );
    assert!(cloud["read_p50_us"].as_f64().unwrap() <= cloud["read_max_us"].as_f64().unwrap());
    assert!(cloud["late_p99_us"].is_null());

    // Another run wrote the same bytes: they do not count as this run's.
    let again = result(&[CLOUD, "--to", &server.uri("disk"), "--verify", "--speed", "1e9", "--workers", "3"]);
    assert_eq!((&again["mismatches"], &again["connections"]), (&0.into(), &3.into()));
    assert!(again["late_p99_us"].is_f64());

    let several = result(&[
        SLICE,
        "--to",
        &server.uri("disk-{volume}"),
        "--verify",
        "--requests",
        "5000",
        "--warm-up",
        "1000",
    ]);
    assert_eq!((&several["requests"], &several["mismatches"]), (&4000.into(), &0.into()));
    let exports = several["exports"].as_array().unwrap();
    assert!(exports[0]["export"].as_str().unwrap().contains(":///disk-0?") && exports[0]["volumes"] == "0");
    let parts: u64 = exports.iter().map(|export| export["requests"].as_u64().unwrap()).sum();
    assert_eq!(parts, 4000);
}

#[test]
fn the_three_formats_have_the_same_fields() {
    let server = Serving::memory(&[("a", 64 << 30)]);
    let to = &format!("0={}", server.uri("a"));
    let json = result(&[MSR, "--to", to]);
    let (code, csv, said) = replay(&[MSR, "--to", to, "--format", "csv"]);
    assert_eq!(code, 0, "{said}");
    let heads: Vec<_> = csv.split("\n\n").map(|list| list.lines().next().unwrap()).collect();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let sorted = |head: &str| {
        let mut names: Vec<_> = head.split(',').map(str::to_owned).collect();
        names.sort();
        names
    };
    let mut of_total = names(&json);
    of_total.retain(|name| name != "exports" && name != "complaints");
    assert_eq!(sorted(heads[0]), of_total);
    assert_eq!(sorted(heads[1]), names(&json["exports"][0]));
    assert_eq!(heads[2], "export,volume,op,offset,bytes,expected,found");
    let (_, table, _) = replay(&[MSR, "--to", to]);
    let shown: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert!(shown.contains(&"mismatches") && shown.iter().all(|name| heads[1].contains(name)), "{table}");
    assert_eq!(table.lines().count(), 2, "one export, and nothing to complain about: {table}");
}

/// Disks that forget what they were given.
struct Forgetful(MemoryDisks);

impl Disks for Forgetful {
    fn exports(&self) -> &[Export] {
        self.0.exports()
    }

    fn submit(&mut self, job: Job) {
        self.0.submit(job);
    }

    fn take(&mut self, done: &mut Vec<Outcome>) {
        self.0.take(done);
        for outcome in done {
            if let Ok(Answer::Data(pieces)) = &mut outcome.result {
                pieces.iter_mut().for_each(|piece| piece.buffer.fill(0));
            }
        }
    }

    fn notify(&mut self, waker: Waker) {
        self.0.notify(waker);
    }
}

#[test]
fn a_server_that_gives_back_something_else_is_found_out() {
    let server = Serving::of(|| {
        let mut memory = MemoryDisks::new();
        memory.add("a", 64 << 30);
        Forgetful(memory)
    });
    let (code, printed, said) = replay(&[CLOUD, "--to", &server.uri("a"), "--verify", "--format", "json"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("sectors differ; the first: nbd+unix:///a?"), "{said}");
    assert!(said.contains(", volume 0, read of ") && said.contains(" has written, but zeroes"), "{said}");
    let told: Value = serde_json::from_str(&printed).unwrap();
    // It continues to the end.
    assert_eq!(told["requests"], 20_000);
    assert!(told["mismatches"].as_u64().unwrap() > 0);
    assert_eq!(told["complaints"][0]["found"], "zeroes");
    // Nothing is verified without being asked to.
    assert_eq!(result(&[CLOUD, "--to", &server.uri("a")])["mismatches"], 0);
}

#[test]
fn a_server_that_goes_away_ends_it_with_a_report() {
    let mut server = Serving::memory(&[("a", 1 << 20)]);
    let to = server.uri("a");
    let child = command(&[LONG, "--to", &to, "--wrap", "--format", "json"]).spawn().unwrap();
    server.until(200);
    server.stop();
    let (code, printed, said) = wait(child);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("nbd+unix:///a?") && said.contains("is the server still running?"), "{said}");
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert!((1..3_000_000).contains(&result["requests"].as_u64().unwrap()));
}

#[test]
fn ctrl_c_ends_it_with_what_was_done() {
    let server = Serving::memory(&[("a", 1 << 20)]);
    let child = command(&[LONG, "--to", &server.uri("a"), "--wrap", "--format", "json"]).spawn().unwrap();
    // By then it listens to signals.
    server.until(5000);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let (code, printed, said) = wait(child);
    assert!(code == 0 && said.contains("ended by a signal"), "{code}: {said}");
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert!((1..3_000_000).contains(&result["requests"].as_u64().unwrap()));
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let server = Serving::memory(&[("a", 1 << 20), ("b", 1 << 40)]);
    let (code, _, said) = replay(&[CLOUD, "--to", &server.uri("a")]);
    assert_eq!(code, 1);
    assert!(said.contains("has 1048576 bytes, and the trace needs ") && said.contains("--wrap"), "{said}");
    // What it says is enough, is.
    let needed: u64 = said.split("needs ").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!((1 << 30..1 << 40).contains(&needed));
    assert_eq!(server.stats.exports().iter().map(|export| export.requests_total()).sum::<u64>(), 0);
    let wrapped = result(&[CLOUD, "--to", &server.uri("a"), "--wrap", "--verify"]);
    assert_eq!((&wrapped["mismatches"], &wrapped["requests"]), (&0.into(), &20_000.into()));
    assert!(wrapped["wrapped"].as_u64().unwrap() > 10_000);
}

#[test]
fn wrong_use_exits_with_2_and_says_what_would_do() {
    let server = Serving::memory(&[("a", 64 << 30)]);
    let to: &str = &server.uri("a");
    let keys = server.directory.path().join("keys");
    std::fs::write(&keys, "1\n2\n").unwrap();
    let keys = keys.to_str().unwrap();
    for (arguments, wanted) in [
        (&[CLOUD][..], "--to <URI>"),
        (&[CLOUD, "--to", "localhost"], "begins with none of nbd://"),
        (&[CLOUD, "--to", to, "--speed", "0"], "none of all-at-once, timed"),
        (&[CLOUD, "--to", to, "--workers", "0"], "0 is not in 1..=1024"),
        (&[CLOUD, "--to", to, "--to", to], "--to 0=URI --to 1=URI"),
        (&[CLOUD, "--to", &format!("7={to}")], "no export is given for volume 0"),
        (&[CLOUD, "--to", to, "--warm-up", "20000"], "leaves nothing to measure"),
        (&[keys, "--to", to, "--trace-format", "txt", "--speed", "timed"], "have the same time"),
    ] {
        let (code, _, said) = replay(arguments);
        assert!(code == 2 && said.contains(wanted), "{arguments:?} ended with {code}: {said}");
    }
}

#[test]
fn who_is_not_there_is_named() {
    let (code, _, said) = replay(&[CLOUD, "--to", "nbd+unix:///a?socket=/nonexistent/socket"]);
    assert!(
        code == 1 && said.contains("/nonexistent/socket") && said.contains("is the server running?"),
        "{said}"
    );
    let (code, _, said) = replay(&["/nonexistent/trace.csv", "--to", "nbd://127.0.0.1:1/a"]);
    assert!(code == 1 && said.contains("cannot open the trace /nonexistent/trace.csv"), "{said}");
}
