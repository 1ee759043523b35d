//! Frames of a journal as bytes.

use tiermem_base::Op;

use super::{FRAME_HEADER_BYTES, HEADER_BYTES, JournalSample, MAGIC, SAMPLE_BYTES, VERSION};
use crate::recording::Level;

/// The first bytes of a file.
pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sum = crc32fast::hash(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Whether a file that begins so is a journal of this version.
///
/// # Errors
/// If it is one of another version, or its header is damaged.
pub(super) fn check_header(bytes: &[u8; HEADER_BYTES]) -> Result<(), String> {
    if *bytes == header() {
        return Ok(());
    }
    let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if version != VERSION && crc32fast::hash(&bytes[..12]).to_le_bytes() == bytes[12..] {
        return Err(format!("this is a journal of version {version}; this program reads version {VERSION}"));
    }
    Err("the beginning of this journal is damaged".to_owned())
}

/// A frame: `body` has its kind and content. `None` if it is too long for one.
pub(super) fn frame(body: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(body.len()).ok()?.to_le_bytes();
    let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + body.len());
    frame.extend(length);
    frame.extend(checksum(length, body).to_le_bytes());
    frame.extend(body);
    Some(frame)
}

/// The checksum of a frame's length and body.
pub(super) fn checksum(length: [u8; 4], body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&length);
    sum.update(body);
    sum.finalize()
}

/// Appends a sample.
pub(super) fn put_sample(sample: &JournalSample, bytes: &mut Vec<u8>) {
    bytes.extend(sample.region.to_le_bytes());
    bytes.extend([sample.source, sample.op.code(), sample.level as u8, sample.node]);
    bytes.extend(sample.address.to_le_bytes());
    bytes.extend(sample.bytes.to_le_bytes());
    bytes.extend(sample.resident.to_le_bytes());
    bytes.extend(sample.weight.to_le_bytes());
}

/// A sample; `None` if a code is unknown, or it makes no sense.
pub(super) fn sample(bytes: &[u8; SAMPLE_BYTES]) -> Option<JournalSample> {
    let (words, _) = bytes.as_chunks::<8>();
    let [_, source, op, level, node] = [0, 4, 5, 6, 7].map(|at| words[0][at]);
    let sample = JournalSample {
        region: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        source,
        op: Op::from_code(op)?,
        level: *Level::ALL.get(usize::from(level))?,
        node,
        address: u64::from_le_bytes(words[1]),
        bytes: u64::from_le_bytes(words[2]),
        resident: u64::from_le_bytes(words[3]),
        weight: f64::from_le_bytes(words[4]),
    };
    let is_sane = sample.weight.is_finite()
        && sample.weight >= 0.0
        && sample.bytes > 0
        && sample.resident <= sample.bytes
        && sample.address.checked_add(sample.bytes).is_some();
    is_sane.then_some(sample)
}
