//! HTTP port of the store, served by [`tiermem_live`].

mod metrics;
pub mod view;

use tiermem_live::page::File;
pub use tiermem_live::{HttpError, HttpPort, HttpServer};

use view::{Counters, View};

impl tiermem_live::View for View {
    type Counters = Counters;
    const PAGE: &'static [File] = &[
        File::html(include_str!("page/index.html")),
        File::css("/page/store.css", include_str!("page/store.css")),
        File::js("/page/live.js", include_str!("page/live.js")),
        File::js("/page/operation.js", include_str!("page/operation.js")),
        File::js("/page/plots.js", include_str!("page/plots.js")),
        File::js("/page/tenants.js", include_str!("page/tenants.js")),
    ];

    fn uptime_s(&self) -> f64 {
        self.uptime_s
    }

    fn counters(&self) -> Counters {
        Counters::of(self)
    }

    fn metrics(&self, ready: bool) -> String {
        metrics::render(self, ready)
    }
}
