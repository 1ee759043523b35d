//! Printing of results in words: a line for each item.

use std::io::{self, Write};

/// A name, its value, and what is to be said of it.
pub fn line(out: &mut impl Write, name: &str, value: String, remark: String) -> io::Result<()> {
    writeln!(out, "{}", format!("{name:<19}{value:>16}   {remark}").trim_end())
}

/// A share of one as `12.34%`.
pub fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}
