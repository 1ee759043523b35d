//! Cache keys of a recommendation service: big-endian i64, nothing else. Any bits are a record, so the format is detected by the
//! file's name alone.

use tiermem_base::Access;

use crate::BadRecord;
use crate::reader::core::fixed::FixedFormat;
use crate::reader::core::info::{FormatInfo, Open, open_fixed};
use crate::reader::core::layout::SIZE_UNKNOWN;

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "scarab",
    about: "keys of a recommendation service: big-endian i64",
    file_names: &["scarab"],
    open: Open::Binary { looks: |_| false, open: |path, source| open_fixed::<_, 8>(path, source, Keys) },
};

struct Keys;

impl FixedFormat<8> for Keys {
    fn record(&mut self, record: &[u8; 8]) -> Result<Option<Access>, BadRecord> {
        Ok(Some(Access::get(0, u64::from_be_bytes(*record), SIZE_UNKNOWN)))
    }
}
