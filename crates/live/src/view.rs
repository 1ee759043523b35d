//! View of a server: the contract between it and the HTTP port.

use serde::Serialize;

use crate::page::File;

/// All figures of a server at one moment. As JSON it is an object.
pub trait View: Serialize + Send + Sync + 'static {
    /// The counters that plots over time need: an object too, with members that do not change while the server runs.
    type Counters: Clone + Serialize + Send + 'static;
    /// The page, and what it loads beside [what all pages share](page).
    const PAGE: &'static [File];

    /// Seconds since the server started, by which rates are worked out: it must come from the same moment as the figures. 0 as long as
    /// there is nothing to see.
    fn uptime_s(&self) -> f64;
    /// The counters that the plots need.
    fn counters(&self) -> Self::Counters;
    /// The figures as `/metrics` gives them ([`crate::metrics`]).
    fn metrics(&self, ready: bool) -> String;
    /// Why the server does not do all that it should, although it serves: `/ready` answers 503 with these words.
    fn trouble(&self) -> Option<&'static str> {
        None
    }
}
