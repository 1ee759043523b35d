//! Page of a recording that is under way: files for a server. It draws with the script of the page of a finished recording, of the same
//! [data](super::page_data), which it asks the server for after each slice.
//!
//! Beside its own files it loads what the pages of all servers share (`/page/feed.js` and others).

/// The page.
pub const PAGE: &str =
    concat!(include_str!("top.html"), include_str!("../page.html"), include_str!("bottom.html"));
/// Its colours and layout, at `/page/recording.css`.
pub const STYLE: &str =
    concat!(include_str!("../../page/page.css"), include_str!("../page.css"), include_str!("live_page.css"));
/// What draws the map, at `/page/heatmap.js`.
pub const VIEWS: &str = super::page::VIEWS;
/// What asks the server, at `/page/recording.js`.
pub const SCRIPT: &str = include_str!("live_page.js");
