//! `tiermem block status`: contents and activity of a block server.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tiermem_base::Nanos;
use tiermem_block::http::view::View;
use tiermem_live::client::Client;

use super::status_print;
use crate::failure::Failure;
use crate::output::Format;

const EXAMPLE: &str = "\
Example:
  tiermem block status
  tiermem block status --watch
  tiermem block status --format json | jq '.exports[] | {export, read_hit_ratio, dirty_bytes}'

JSON is one object; CSV is three tables separated by empty lines: the server and its cache, the exports, the blocks of each size. The field
names are the same. Counters count since the server started. Unknown values (a ratio before the first request, no quota, the log's fields of a
cache without a log) are empty, and null in JSON. A *hit* is a read or write that found everything it needed in the cache; *core* is the
backing store, *cache* the cache's device. Times run from when a request was received completely until its reply was ready;
processing is the part until its requests to devices and backing stores were submitted.";
/// Seconds from one look to the next, unless told.
const WATCH: &str = "2s";
/// Back to the top, and all below it cleared.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Options of `tiermem block status`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct Options {
    #[command(flatten)]
    server: ServerOption,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Repeat, by default every 2 s, showing each interval (csv and json: totals since the server's start).
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = WATCH)]
    watch: Option<Nanos>,
}

/// Whom to ask.
#[derive(Clone, Copy, Debug, Args)]
pub struct ServerOption {
    /// Address of the server's live page.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7381")]
    http: SocketAddr,
}

impl ServerOption {
    /// The client for that address.
    pub fn client(self) -> Result<Client, Failure> {
        Client::new(self.http).map_err(Failure::failed)
    }
}

/// Shows it, once or until it is stopped.
pub fn run(options: &Options) -> Result<(), Failure> {
    let client = options.server.client()?;
    let mut before: Option<View> = None;
    loop {
        let now = ask(&client)?;
        if options.format != Format::Table {
            status_print::print(options.format, &now)
                .map_err(|error| Failure::writing("the status", error))?;
        } else {
            // After a restart of the server there is nothing to compare with.
            let since = before.as_ref().filter(|before| before.uptime_s < now.uptime_s);
            let mut text = status_print::table(&now, since);
            if options.watch.is_some() && io::stdout().is_terminal() {
                text.insert_str(0, CLEAR);
            }
            let mut out = io::stdout().lock();
            out.write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .map_err(|error| Failure::writing("the status", error))?;
        }
        let Some(pause) = options.watch else { return Ok(()) };
        std::thread::sleep(Duration::from_nanos(pause.0));
        before = Some(now);
    }
}

fn ask(client: &Client) -> Result<View, Failure> {
    let answer = client.get("/api/status").map_err(Failure::failed)?;
    serde_json::from_slice(&answer).map_err(|error| {
        Failure::failed(anyhow::anyhow!(
            "the answer is not that of a block server of this version ({error}): is this the address of its live page (--http)?"
        ))
    })
}
