//! `tiermem store replay` as a user meets it when something is wrong.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests, though clippy sees only functions marked as such.

use std::process::Command;

/// Runs the program; its exit code and what it said on standard error.
fn replay(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tiermem"))
        .args(["store", "replay"])
        .args(arguments)
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn wrong_use_exits_with_2_and_says_what_would_do() {
    for (arguments, wanted) in [
        (&["zipf:alpha=9", "--to", "127.0.0.1:1"][..], "`alpha=9` must be a number from 0 to 3"),
        (&["zipf:size", "--to", "127.0.0.1:1"], "its settings are alpha, objects"),
        (&["scan", "--to", "nowhere"], "an address is HOST:PORT"),
        (&["scan", "--to", "127.0.0.1:1", "--connections", "0"], "0 is not in 1..=10000"),
        (&["scan", "--to", "127.0.0.1:1", "--value-scale", "nan"], "a factor is a number from 0 on"),
        (
            &["scan", "--to", "127.0.0.1:1", "--trace-format", "x"],
            "the formats are parquet, recording-journal, vscsi",
        ),
        (&["scan"], "--to <ADDR>"),
    ] {
        let (code, said) = replay(arguments);
        assert!(code == 2 && said.contains(wanted), "{arguments:?} ended with {code}: {said}");
    }
}

#[test]
fn failures_exit_with_1_and_name_the_thing() {
    // No server listens on the port reserved for the multiplexer of RFC 1078.
    let closed = "127.0.0.1:1";
    let (code, said) = replay(&["scan:requests=1", "--to", closed]);
    assert!(code == 1 && said.contains(&format!("cannot connect to {closed}")), "{said}");
    assert!(said.contains("is the server running there?"), "{said}");

    let (code, said) = replay(&["/nonexistent/trace.csv", "--to", closed]);
    assert!(code == 1 && said.contains("cannot open the trace /nonexistent/trace.csv"), "{said}");
}
