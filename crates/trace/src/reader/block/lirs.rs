//! The traces of the LIRS paper: a block's number per line, and at times `*` on the last one.
//!
//! Jiang, Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy to Improve Buffer Cache
//! Performance", SIGMETRICS 2002.

use tiermem_base::{Access, Op};

use crate::BadRecord;
use crate::reader::core::fields::number;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::SIZE_UNKNOWN;
use crate::reader::core::lines::{LineFormat, LineOut};

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "lirs",
    about: "LIRS paper: one block number per line",
    file_names: &["lirs_"],
    open: Open::Text(|_| Box::new(Lirs)),
};

struct Lirs;

impl LineFormat for Lirs {
    fn line(&mut self, _: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        match line.trim_ascii() {
            b"*" => out.note(),
            text => out.push(Access::new(0, Op::Read, number("block", text)?, SIZE_UNKNOWN)),
        }
        Ok(())
    }
}
