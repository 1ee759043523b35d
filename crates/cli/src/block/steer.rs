//! `tiermem block set`, `flush` and `drop`: operator commands to a running server.

use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::Value;
use tiermem_base::Bytes;
use tiermem_block::config::ExportMode;
use tiermem_block::http::command::{Dropped, Flushed, Quota, SetCommand, SetDone, Which};
use tiermem_live::client::Client;

use super::status::ServerOption;
use crate::failure::Failure;
use crate::serving::say;

const SET_EXAMPLE: &str = "\
Example:
  tiermem block set database --mode write-through --quota 300GiB
  tiermem block set database --quota none

The change lasts until the server stops; put lasting changes into its configuration. A change of mode applies to writes that begin after it. When
an export leaves write-back, they wait until all its dirty data is written back, which begins at once.";
const FLUSH_EXAMPLE: &str = "\
Example:
  tiermem block flush database
  tiermem block flush

When it returns, the backing store durably has everything that was written before.";
const DROP_EXAMPLE: &str = "\
Example:
  tiermem block flush templates && tiermem block drop templates

Data that only the cache has is kept: to drop everything, flush first.";

/// Options of `tiermem block set`.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLE)]
#[group(id = "change", required = true, multiple = true, args = ["mode", "quota"])]
pub struct SetOptions {
    /// The export's name.
    export: String,
    /// Write mode: write-back, write-through or write-around.
    #[arg(long, value_name = "MODE")]
    mode: Option<ExportMode>,
    /// The most of the cache that it may hold, such as 300GiB, or none.
    #[arg(long, value_name = "SIZE|none")]
    quota: Option<Quota>,
    #[command(flatten)]
    server: ServerOption,
}

/// Options of `tiermem block flush`.
#[derive(Debug, Args)]
#[command(after_help = FLUSH_EXAMPLE)]
pub struct FlushOptions {
    /// The export's name [default: all exports].
    export: Option<String>,
    #[command(flatten)]
    server: ServerOption,
}

/// Options of `tiermem block drop`.
#[derive(Debug, Args)]
#[command(after_help = DROP_EXAMPLE)]
pub struct DropOptions {
    /// The export's name.
    export: String,
    #[command(flatten)]
    server: ServerOption,
}

/// Changes an export.
pub fn set(options: SetOptions) -> Result<(), Failure> {
    let client = options.server.client()?;
    let command = SetCommand { export: options.export, mode: options.mode, quota: options.quota };
    let mut done = Vec::new();
    client.control("/api/set", &command, |line| done = line.to_vec()).map_err(Failure::failed)?;
    let done: SetDone = serde_json::from_slice(&done).map_err(|error| misunderstood(&error))?;
    let quota = done.quota_bytes.map_or("none".to_owned(), |quota| Bytes(quota).to_string());
    let mut words = format!("{}: mode {}, quota {quota}", done.export, done.mode);
    if options.mode.is_some_and(|mode| mode != ExportMode::WriteBack) && done.dirty_bytes > 0 {
        words += &format!("; {} are written back first", Bytes(done.dirty_bytes));
    }
    say(&format!("{words}\n"));
    Ok(())
}

/// Has all written back that is dirty.
pub fn flush(options: FlushOptions) -> Result<(), Failure> {
    let client = options.server.client()?;
    each(&client, "/api/flush", &Which { export: options.export }, |line| {
        let Flushed { export, written_back_bytes } = serde_json::from_value(line)?;
        Ok(format!("{export}: {} written back", Bytes(written_back_bytes)))
    })
}

/// Forgets what the store has too.
pub fn drop_clean(options: DropOptions) -> Result<(), Failure> {
    let client = options.server.client()?;
    each(&client, "/api/drop", &Which { export: Some(options.export) }, |line| {
        let Dropped { export, dropped_bytes, dirty_bytes } = serde_json::from_value(line)?;
        let mut words = format!("{export}: {} forgotten", Bytes(dropped_bytes));
        if dirty_bytes > 0 {
            words += &format!(
                "; what holds {} that only the cache has stays, until it is flushed",
                Bytes(dirty_bytes)
            );
        }
        Ok(words)
    })
}

fn misunderstood(error: &serde_json::Error) -> Failure {
    Failure::failed(anyhow!("the answer is not that of a block server of this version: {error}"))
}

/// Sends a command and prints the text of `words` for each export that it was done for; meanwhile its progress.
fn each(
    client: &Client,
    path: &str,
    command: &impl Serialize,
    words: impl Fn(Value) -> Result<String, serde_json::Error>,
) -> Result<(), Failure> {
    let progress = ProgressBar::no_length().with_style(indicatif::ProgressStyle::default_spinner());
    progress.enable_steady_tick(Duration::from_millis(200));
    let mut failures = Vec::new();
    let asked = client.control(path, command, |line| {
        let Ok(line) = serde_json::from_slice::<Value>(line) else {
            return failures.push("the server says what cannot be understood".to_owned());
        };
        if let Some(export) = line["working_on"].as_str() {
            let left = Bytes(line["dirty_bytes"].as_u64().unwrap_or(0));
            progress.set_message(format!("{export}: {left} dirty"));
        } else if let Some(error) = line["error"].as_str() {
            failures.push(error.to_owned());
        } else {
            match words(line) {
                Ok(words) => progress.suspend(|| say(&format!("{words}\n"))),
                Err(error) => failures.push(format!("the server says what cannot be understood: {error}")),
            }
        }
    });
    progress.finish_and_clear();
    asked.map_err(Failure::failed)?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::failed(anyhow!(failures.join("\n")))) }
}
