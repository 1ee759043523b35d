//! HTTP port: the live page and metrics of [`tiermem_live`], `/api/status` with the
//! engine's current figures, and the commands `/api/set`, `/api/flush`, `/api/drop`.

pub mod command;
mod control_api;
mod metrics;
mod outcome;
pub mod view;

use std::sync::Arc;
use std::time::Duration;

use tiermem_live::control_access::Control;
use tiermem_live::page::File;
use tiermem_live::{HttpError, HttpPort, HttpServer};
use tokio::sync::watch;

use crate::engine::Engine;
use crate::server::Server;
use control_api::ControlApi;
use view::{Counters, Observer, View};

/// Time between published figures.
const PUBLISH_PERIOD: Duration = Duration::from_secs(1);

impl tiermem_live::View for View {
    type Counters = Counters;
    const PAGE: &'static [File] = &[
        File::html(include_str!("page/index.html")),
        File::css("/page/block.css", include_str!("page/block.css")),
        File::js("/page/live.js", include_str!("page/live.js")),
        File::js("/page/plots.js", include_str!("page/plots.js")),
        File::js("/page/exports.js", include_str!("page/exports.js")),
    ];

    fn uptime_s(&self) -> f64 {
        self.uptime_s
    }

    fn counters(&self) -> Counters {
        View::counters(self)
    }

    fn metrics(&self, ready: bool) -> String {
        metrics::render(self, ready)
    }

    fn trouble(&self) -> Option<&'static str> {
        let has_failed = self.cache.log.as_ref().is_some_and(|log| log.failure.is_some());
        let is_full = self.exports.iter().any(|export| export.status.refuses_writes);
        match () {
            () if has_failed => Some("the log cannot be written: writes and flushes fail\n"),
            () if self.cache.out_of_use => {
                Some("the cache is out of use: its device fails, and the stores serve alone\n")
            }
            () if is_full => Some("the store of an export is full, and so is the cache: its writes fail\n"),
            () => None,
        }
    }
}

/// Makes the server publish its figures, and serves them at `port`. Commands are accepted there
/// according to `control`; without it, only if the port is on this machine. `version` is the program's.
///
/// # Errors
/// When the system cannot start a thread.
pub fn show(
    port: HttpPort,
    server: &mut Server<Engine>,
    control: Option<bool>,
    version: &'static str,
) -> Result<HttpServer, HttpError> {
    let (publisher, views) = watch::channel(Arc::new(View::default()));
    let observer = Observer::new(version, server.stats());
    let control_api =
        ControlApi::new(server.control_queue(), observer.clone(), Control::at(port.address(), control));
    server.publish(PUBLISH_PERIOD, move |engine, _| {
        publisher.send_replace(Arc::new(observer.view(engine)));
    });
    port.serve(views, control_api.routes())
}
