//! Formatting: makes a cache on a device that is empty, or that may be overwritten.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tiermem_tier::block::{AlignedBuffer, BlockIo, Request};

use super::batch::{self, Header};
use super::io;
use super::page::{self, PAGE_BYTES};
use super::superblock::{Superblock, SuperblockState, Tail};
use super::{JournalError, Layout, LayoutConfig};

/// Bytes at the front of a device that must be zeros for it to be empty:
/// file systems, partitions and volume managers have their marks there.
const FRONT_BYTES: u64 = 1 << 20;
/// Bytes that must be zeros at its end, where some formats have their marks.
const END_BYTES: u64 = 128 << 10;
/// Name of foreign contents in errors.
const STRANGER: &str = "something that is not a block cache";

/// Makes an empty cache on a device. With `force` it does so over any contents, which are lost.
///
/// # Errors
/// Invalid sizes; a device that is not empty; a device that fails.
pub fn format(device: &mut dyn BlockIo, config: &LayoutConfig, force: bool) -> Result<Layout, JournalError> {
    let layout = Layout::plan(device.capacity_bytes(), config)?;
    if !force {
        refuse_what_is_there(device)?;
    }
    // Until the end the device says that it is being formatted, so that it can be again.
    let superblocks = |block: AlignedBuffer, epoch| Request::write(epoch, Superblock::at(epoch), block);
    let unfinished = || {
        let mut block = AlignedBuffer::zeroed(PAGE_BYTES);
        Superblock::write_unfinished(&mut block);
        block
    };
    io::write(device, vec![superblocks(unfinished(), 0), superblocks(unfinished(), 1)])?;
    io::sync(device)?;
    let uuid = (u128::from(super::random()) << 64 | u128::from(super::random())).to_le_bytes();
    write_table(device, &layout, &uuid)?;
    let tail = write_first_batch(device, &layout, &uuid)?;
    io::sync(device)?;
    let first = Superblock::new(&layout, uuid, tail);
    let second = Superblock { epoch: first.epoch + 1, ..first.clone() };
    for superblock in [first, second] {
        let mut block = AlignedBuffer::zeroed(PAGE_BYTES);
        superblock.write(&mut block);
        io::write(device, vec![superblocks(block, superblock.epoch)])?;
        io::sync(device)?;
    }
    Ok(layout)
}

/// Identity of the cache on a device, if there is one that can be recognized.
pub fn cache_on(device: &mut dyn BlockIo) -> Option<u128> {
    let front = io::read(device, 0, 2 * PAGE_BYTES).ok()?;
    let (superblock, _) = Superblock::choose(&front[..PAGE_BYTES], &front[PAGE_BYTES..]).ok()?;
    Some(u128::from_le_bytes(superblock.uuid))
}

/// Refuses a file with foreign contents, and a cache that was shortened, before anything is changed: [`format()`] and
/// [`open()`](super::open) do so too, but by then the caller may have changed the file's length. A file that cannot be read is left to the
/// code that opens it.
///
/// # Errors
/// [`JournalError::Occupied`], [`JournalError::Shrunk`].
pub fn refuse_stranger(path: &Path) -> Result<(), JournalError> {
    let mut front = Vec::new();
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    if metadata.is_some()
        && let Ok(file) = File::open(path)
    {
        let _ = file.take(FRONT_BYTES).read_to_end(&mut front);
    }
    let is_empty = front.iter().all(|byte| *byte == 0);
    front.resize(front.len().max(2 * PAGE_BYTES), 0);
    let copies = [0, 1].map(|copy| Superblock::read(&front[copy * PAGE_BYTES..(copy + 1) * PAGE_BYTES]));
    if !is_empty
        && copies.iter().all(|found| matches!(found, SuperblockState::Nothing | SuperblockState::Stranger))
    {
        return Err(JournalError::Occupied { what: STRANGER.to_owned() });
    }
    let ends = copies.iter().filter_map(|found| match found {
        SuperblockState::Sound(superblock) => superblock.end(),
        _ => None,
    });
    match (ends.max(), metadata.map(|metadata| metadata.len())) {
        (Some(wanted_bytes), Some(device_bytes)) if device_bytes < wanted_bytes => {
            Err(JournalError::Shrunk { device_bytes, wanted_bytes })
        }
        _ => Ok(()),
    }
}

fn refuse_what_is_there(device: &mut dyn BlockIo) -> Result<(), JournalError> {
    let reading = JournalError::device("read");
    let device_bytes = device.capacity_bytes();
    let front = io::read(device, 0, FRONT_BYTES.min(device_bytes) as usize).map_err(&reading)?;
    let occupied = |what: &str| Err(JournalError::Occupied { what: what.to_owned() });
    match [0, 1].map(|copy| Superblock::read(&front[copy * PAGE_BYTES..(copy + 1) * PAGE_BYTES])) {
        [SuperblockState::Unfinished, SuperblockState::Unfinished | SuperblockState::Nothing]
        | [SuperblockState::Nothing, SuperblockState::Unfinished] => {
            return Ok(());
        }
        [
            SuperblockState::Nothing | SuperblockState::Stranger,
            SuperblockState::Nothing | SuperblockState::Stranger,
        ] => (),
        _ => return occupied("a block cache, perhaps with data that its backing stores do not have"),
    }
    let end_bytes = END_BYTES.min(device_bytes);
    let end = io::read(device, device_bytes - end_bytes, end_bytes as usize).map_err(&reading)?;
    if front.iter().chain(end.iter()).any(|byte| *byte != 0) {
        return occupied(STRANGER);
    }
    Ok(())
}

/// Both places of each page get an image, so that from then on a place without one is damage.
fn write_table(device: &mut dyn BlockIo, layout: &Layout, uuid: &[u8; 16]) -> Result<(), JournalError> {
    let per_write = io::LARGE_BYTES / (2 * PAGE_BYTES);
    for first in (0..layout.pages).step_by(per_write) {
        let pages = per_write.min((layout.pages - first) as usize);
        let mut buffer = AlignedBuffer::zeroed(pages * 2 * PAGE_BYTES);
        for (at, image) in buffer.chunks_exact_mut(PAGE_BYTES).enumerate() {
            page::seal(image, uuid, first + at as u32 / 2, at as u64 % 2);
        }
        io::write(device, vec![Request::write(0, layout.page_at(first, 0), buffer)])?;
    }
    Ok(())
}

/// The log always has a batch with which it begins.
fn write_first_batch(
    device: &mut dyn BlockIo,
    layout: &Layout,
    uuid: &[u8; 16],
) -> Result<Tail, JournalError> {
    let header = Header {
        sequence: 1,
        first_lsn: 1,
        sealed: 0,
        session: 0,
        records: 0,
        body_bytes: 0,
        body_sum: batch::body_sum(uuid, &[]),
        previous_sum: 0,
    };
    let mut buffer = AlignedBuffer::zeroed(batch::ALIGN_BYTES);
    let header_sum = header.write(uuid, &mut buffer);
    io::write(device, vec![Request::write(0, layout.log_at, buffer)])?;
    Ok(Tail { at: 0, sequence: 1, header_sum })
}
