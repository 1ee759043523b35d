//! Page reads: pages of the table that are not in memory, read while the engine works.

use tiermem_tier::block::{AlignedBuffer, BlockError, Request};

use super::PAGE_READ_TOKEN;
use super::page::PAGE_BYTES;
use super::table::Table;

/// Pages that are read at a time.
const READS_MAX: usize = 64;

/// Pages being read, and pages just read.
#[derive(Debug, Default)]
pub struct PageReads {
    in_flight: usize,
    done: u64,
}

impl PageReads {
    /// Submits reads of the pages that are needed.
    pub fn submit(&mut self, table: &mut Table, out: &mut Vec<Request>) {
        while self.in_flight < READS_MAX
            && let Some(page) = table.next_wanted()
        {
            if table.is_here(page) {
                continue;
            }
            self.in_flight += 1;
            let (token, at) = (PAGE_READ_TOKEN | u64::from(page), table.image_at(page));
            out.push(Request::read(token, at, AlignedBuffer::zeroed(PAGE_BYTES)));
        }
    }

    /// A page was read, or not: then the table has lost it.
    ///
    /// # Errors
    /// Why there is no page. No image of it can be written any more.
    pub fn complete(
        &mut self,
        table: &mut Table,
        uuid: &[u8; 16],
        token: u64,
        (image, result): (&[u8], Result<(), BlockError>),
    ) -> Result<(), String> {
        let page = (token & !PAGE_READ_TOKEN) as u32;
        self.in_flight -= 1;
        self.done += 1;
        let taken = match result {
            Ok(()) => {
                let taken = table.arrived(page, image, uuid);
                taken.map_err(|illegal| format!("the cache's metadata are damaged: {}", illegal.0))
            }
            Err(error) => Err(format!("the cache's metadata cannot be read: {error}")),
        };
        taken.inspect_err(|_| table.lose(page))
    }

    /// Pages that were read.
    pub fn done(&self) -> u64 {
        self.done
    }
}
