//! CloudPhysics virtual disks as block numbers: little-endian u32, nothing else. Any bits are a record, so the format is detected
//! by the file's name alone.

use tiermem_base::{Access, Op};

use crate::BadRecord;
use crate::reader::core::fixed::FixedFormat;
use crate::reader::core::info::{FormatInfo, Open, open_fixed};
use crate::reader::core::layout::SIZE_UNKNOWN;

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "cloudphysics",
    about: "CloudPhysics block numbers: little-endian u32",
    file_names: &["cloudphysics_"],
    open: Open::Binary { looks: |_| false, open: |path, source| open_fixed::<_, 4>(path, source, Blocks) },
};

struct Blocks;

impl FixedFormat<4> for Blocks {
    fn record(&mut self, record: &[u8; 4]) -> Result<Option<Access>, BadRecord> {
        let block = u64::from(u32::from_le_bytes(*record));
        Ok(Some(Access::new(0, Op::Read, block, SIZE_UNKNOWN)))
    }
}
