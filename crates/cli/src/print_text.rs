//! Printing of text other than rows to standard output.

use std::io::{self, Write};

/// Prints text as it is. The reader may have gone, where `print!` would panic.
pub fn print_text(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
