//! Reading of table pages that are not in memory, at the start, when nothing else is in flight.

use tiermem_tier::block::BlockIo;

use super::io::{self, DeviceReader};
use super::page::PAGE_BYTES;
use super::record::Record;
use super::table::Table;
use super::{JournalError, Layout, Lsn};

/// Images of pages that are not in memory, read one after another.
pub(super) struct Images<'a> {
    device: &'a mut dyn BlockIo,
    window: DeviceReader,
    table_at: u64,
    uuid: [u8; 16],
}

impl<'a> Images<'a> {
    pub(super) fn new(device: &'a mut dyn BlockIo, layout: &Layout, uuid: &[u8; 16]) -> Self {
        let window = DeviceReader::new(layout.table_at, layout.data_at);
        Images { device, window, table_at: layout.table_at, uuid: *uuid }
    }

    /// Reads the image that a page has on the device.
    pub(super) fn read(&mut self, table: &Table, page: u32, image: &mut [u8]) -> Result<(), JournalError> {
        let bytes = self.window.get(self.device, table.image_at(page) - self.table_at, PAGE_BYTES);
        image.copy_from_slice(bytes.map_err(JournalError::device("read the table of"))?);
        table.recognise(page, image, &self.uuid).map_err(|illegal| JournalError::damaged(illegal.0))
    }
}

/// Has a page in memory.
pub(super) fn fetch(
    device: &mut dyn BlockIo,
    table: &mut Table,
    uuid: &[u8; 16],
    page: u32,
) -> Result<(), JournalError> {
    if table.is_here(page) {
        return Ok(());
    }
    let image = io::read(device, table.image_at(page), PAGE_BYTES);
    let image = image.map_err(JournalError::device("read the table of"))?;
    table.arrived(page, &image, uuid).map_err(|illegal| JournalError::damaged(illegal.0))
}

/// Has all pages in memory that a record writes into.
pub(super) fn fetch_for(
    device: &mut dyn BlockIo,
    table: &mut Table,
    uuid: &[u8; 16],
    lsn: Lsn,
    record: &Record<'_>,
) -> Result<(), JournalError> {
    table.make_room();
    let missing: Vec<u32> = table.missing_for(lsn, record).collect();
    missing.into_iter().try_for_each(|page| fetch(device, table, uuid, page))
}
