//! Live view of a recording that is under way (`record --watch`): an HTTP port with a page that follows the recording, its map as text and
//! as JSON, and metrics.
//!
//! - It reads the recording's journal, as `tiermem heatmap REC --text --watch` does, and decides nothing. The recorder appends slices and
//!   knows of no reader, so that no client can hold it up, however slowly it reads or whatever it asks.
//! - What is kept is bounded ([`under_way::LIMITS`]), and so is what is sent.
//! - Its address is told before the program starts, in one line on standard error: from then on the terminal is the program's. If the port
//!   is taken, no program is started.
//! - With the recording it ends. Pages that wait for the end are told; nobody is waited for longer than the port's own grace.

mod reader;
mod routes;
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::anyhow;
use tiermem_live::{HttpError, HttpPort, HttpServer};
use tiermem_trace::recording::Journal;
use tokio::sync::watch;

use self::reader::Reader;
use self::routes::Maps;
use self::view::View;
use crate::failure::Failure;
use crate::heatmap::under_way;

/// Reads the address of `--watch`.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    tiermem_live::address::parse(text)
}

/// The port of a view that is still to begin.
pub struct Port(HttpPort);

impl Port {
    /// Takes the port: nothing is recorded that was to be watched and cannot be.
    pub fn take(address: SocketAddr) -> Result<Self, Failure> {
        HttpPort::bind(address).map(Port).map_err(|error| {
            let advice = match &error {
                HttpError::AddressInUse(_) => "; --watch without an address takes a free one",
                _ => "",
            };
            Failure::failed(anyhow!("{error}{advice}"))
        })
    }

    /// Begins the view of a recording, and tells the user where it is.
    pub fn show(self, journal: &Journal, output: &Path, slice: Duration) -> Result<Watch, Failure> {
        let cannot = |error: std::io::Error| Failure::failed(anyhow!("cannot follow the recording: {error}"));
        let address = self.0.address();
        let follower = Arc::new(Mutex::new(journal.follow(under_way::LIMITS).map_err(cannot)?));
        let (views, newest) = watch::channel(Arc::new(View::default()));
        let (end, ended) = watch::channel(None);
        let output: PathBuf = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
        let maps = Maps::new(Arc::clone(&follower), &output);
        let server = self.0.serve(newest, routes::routes(maps, ended)).map_err(Failure::failed)?;
        let server = Arc::new(server);
        let reader = Reader::new(follower, output, slice, views, Arc::clone(&server));
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || reader.run(&stopped))
            .map_err(cannot)?;
        eprintln!("tiermem: the recording can be watched at http://{address}/");
        Ok(Watch { server, stop, end, thread })
    }
}

/// A view of a recording under way.
pub struct Watch {
    server: Arc<HttpServer>,
    stop: mpsc::Sender<()>,
    end: watch::Sender<Option<String>>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Tells those who watch that the recording has ended, and how.
    pub fn end(self, how: &str) {
        drop(self.stop);
        // A panic over there has been reported, and costs the view alone.
        let _ = self.thread.join();
        self.end.send_replace(Some(how.to_owned()));
        drop(self.server);
    }
}
