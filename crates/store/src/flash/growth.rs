//! Growth of the device under the shards that use it: how one of them takes what it was given.

use tiermem_policy::log::CannotGrow;
use tiermem_policy::shard::Shard;

use super::{Flash, FlashError};

/// Bytes of the device that all shards take.
pub fn device_bytes(flash: &Flash) -> u64 {
    flash.growths.capacity_bytes()
}

/// Has the device grow by whole segments, so that all shards together take at most `capacity_bytes`. Each of them must be
/// asked. What lies there stays. The growth is as durable as what will lie in it. Waits for the device.
///
/// # Errors
/// When it cannot, and has what it had.
pub fn grow(flash: &mut Flash, shard: &mut Shard, capacity_bytes: u64) -> Result<(), FlashError> {
    flash.growths.segments_to(capacity_bytes)?;
    grow_with_others(flash, shard, capacity_bytes)
}

/// The same at the start, where the device keeps what it has if it is to have less. What other regions were given before the
/// process died comes to this one too.
///
/// # Errors
/// As for [`grow`].
pub fn grow_at_start(flash: &mut Flash, shard: &mut Shard, capacity_bytes: u64) -> Result<(), FlashError> {
    match flash.growths.segments_to(capacity_bytes) {
        Ok(_) | Err(CannotGrow::Smaller(_)) => grow_with_others(flash, shard, capacity_bytes),
        Err(error) => Err(error.into()),
    }
}

fn grow_with_others(flash: &mut Flash, shard: &mut Shard, capacity_bytes: u64) -> Result<(), FlashError> {
    let requests = &mut flash.requests;
    let growths = flash.shared_growths.grow(&flash.growths, capacity_bytes, |bytes| requests.grow(bytes))?;
    let has = flash.growths.given().len();
    if growths.given().len() == has {
        return Ok(());
    }
    // No item may lie there before a restart would look there.
    flash.restart.grow(&growths, &mut flash.requests)?;
    flash.layout = flash.layout.with_growths(&growths, flash.restart.superblock().shard);
    shard.device().grow(growths.given()[has..].iter().sum());
    flash.growths = growths;
    Ok(())
}
