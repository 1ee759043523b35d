//! Scan of the log on the device: the chain of batches that the superblock
//! points to, what they announce, and whether the log ends at a valid place.

use std::collections::{BTreeMap, VecDeque};

use tiermem_tier::block::BlockIo;

use super::batch::{self, ALIGN_BYTES, HEADER_BYTES, Header};
use super::io::DeviceReader;
use super::record::{Reader, Record};
use super::ring::{Live, place};
use super::superblock::Superblock;
use super::{JournalError, Layout, Lsn};

/// The log of a cache.
pub struct Scan<'a> {
    layout: &'a Layout,
    uuid: [u8; 16],
    window: DeviceReader,
    /// The chain; never empty.
    pub batches: VecDeque<Live>,
    /// The last seal.
    pub sealed: Lsn,
    /// Announced images: by page, the version and the first record that the version before lacks.
    pub announced: BTreeMap<u32, (u64, u64)>,
    /// The record of a recovery that was not completed.
    pub mend: Option<Lsn>,
}

impl<'a> Scan<'a> {
    /// Follows the chain.
    pub fn new(
        device: &mut dyn BlockIo,
        layout: &'a Layout,
        superblock: &Superblock,
    ) -> Result<Self, JournalError> {
        let mut scan = Scan {
            layout,
            uuid: superblock.uuid,
            window: DeviceReader::new(layout.log_at, layout.log_at + layout.log_bytes),
            batches: VecDeque::new(),
            sealed: Lsn(0),
            announced: BTreeMap::new(),
            mend: None,
        };
        let tail = superblock.tail;
        let not_there = || {
            let at = layout.log_at.saturating_add(tail.at);
            JournalError::damaged(format!("the log does not begin at byte {at}, as the superblock says"))
        };
        let block = ALIGN_BYTES as u64;
        if tail.at >= layout.log_bytes || !tail.at.is_multiple_of(block) {
            return Err(not_there());
        }
        let first = scan
            .batch(device, tail.at)?
            .filter(|(header, sum)| header.sequence == tail.sequence && *sum == tail.header_sum);
        let (header, header_sum) = first.ok_or_else(not_there)?;
        scan.take(device, Live { at: tail.at, header, header_sum })?;
        while let Some(next) = scan.next(device)? {
            scan.take(device, next)?;
        }
        scan.look_behind_the_end(device)?;
        Ok(scan)
    }

    /// The whole batch at this place of the ring, if there is one.
    fn batch(&mut self, device: &mut dyn BlockIo, at: u64) -> Result<Option<(Header, u32)>, JournalError> {
        let reading = JournalError::device("read the log of");
        let bytes = self.window.get(device, at, ALIGN_BYTES).map_err(&reading)?;
        let Some((header, sum)) = Header::read(&self.uuid, bytes) else { return Ok(None) };
        if header.body_bytes as usize > batch::body_bytes_max(self.layout)
            || at + header.batch_bytes() > self.layout.log_bytes
        {
            return Ok(None);
        }
        let bytes = self.window.get(device, at, header.batch_bytes() as usize).map_err(&reading)?;
        let (body, padding) = bytes[HEADER_BYTES..].split_at(header.body_bytes as usize);
        let is_whole =
            batch::body_sum(&self.uuid, body) == header.body_sum && padding.iter().all(|it| *it == 0);
        Ok(is_whole.then_some((header, sum)))
    }

    /// The batch behind the last.
    fn next(&mut self, device: &mut dyn BlockIo) -> Result<Option<Live>, JournalError> {
        let (Some(first), Some(last)) = (self.batches.front().copied(), self.batches.back().copied()) else {
            return Ok(None);
        };
        let (head, log_bytes) = (last.at + last.header.batch_bytes(), self.layout.log_bytes);
        // Right behind it, or at the ring's start where it would not have fitted.
        for at in [head, head.next_multiple_of(log_bytes)] {
            let Some((header, header_sum)) = self.batch(device, at % log_bytes)? else { continue };
            let follows = header.sequence == last.header.sequence + 1
                && header.previous_sum == last.header_sum
                && header.first_lsn == last.header.last_lsn() + 1
                && header.sealed >= last.header.sealed
                && header.sealed < header.first_lsn
                && place(head, header.batch_bytes(), log_bytes) == at
                && at + header.batch_bytes() <= first.at + log_bytes;
            if follows {
                return Ok(Some(Live { at, header, header_sum }));
            }
        }
        Ok(None)
    }

    fn take(&mut self, device: &mut dyn BlockIo, live: Live) -> Result<(), JournalError> {
        self.batches.push_back(live);
        self.sealed = self.sealed.max(Lsn(live.header.sealed));
        if self.mend.is_some_and(|mend| mend <= self.sealed) {
            self.mend = None;
        }
        let (mut announced, mut mend) = (std::mem::take(&mut self.announced), self.mend);
        self.records(device, live, |_, lsn, record| {
            match *record {
                Record::Page { page, version, since } => {
                    announced.insert(page, (version, since));
                }
                Record::Mend => mend = Some(lsn),
                _ => (),
            }
            Ok(())
        })?;
        (self.announced, self.mend) = (announced, mend);
        Ok(())
    }

    /// Visits the records of a batch.
    pub fn records(
        &mut self,
        device: &mut dyn BlockIo,
        live: Live,
        mut each: impl FnMut(&mut dyn BlockIo, Lsn, &Record<'_>) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let (at, header) = (live.at % self.layout.log_bytes, live.header);
        let bytes = self.window.get(device, at, header.batch_bytes() as usize);
        let bytes = bytes.map_err(JournalError::device("read the log of"))?;
        let body = bytes[HEADER_BYTES..].split_at_checked(header.body_bytes as usize);
        let mut reader = Reader::new(body.map_or(&[], |(body, _)| body));
        let odd = || {
            let at = self.layout.log_at + at;
            JournalError::damaged(format!(
                "the batch at byte {at} of the log has records that cannot be read"
            ))
        };
        for lsn in header.first_lsn..=header.last_lsn() {
            each(device, Lsn(lsn), &reader.read().ok_or_else(odd)?)?;
        }
        if reader.left() == 0 { Ok(()) } else { Err(odd()) }
    }

    /// A missing batch may be one with an interrupted write: then no batch behind it can say that it was durable.
    /// Batches of earlier rounds of the ring, and of ends interrupted before, refer to earlier records only.
    fn look_behind_the_end(&mut self, device: &mut dyn BlockIo) -> Result<(), JournalError> {
        let last = self.last_lsn();
        for at in (0..self.layout.log_bytes).step_by(ALIGN_BYTES) {
            let bytes = self.window.get(device, at, ALIGN_BYTES);
            let bytes = bytes.map_err(JournalError::device("read the log of"))?;
            if Header::read(&self.uuid, bytes).is_some_and(|(header, _)| header.sealed > last.0) {
                let at = self.layout.log_at + at;
                return Err(JournalError::damaged(format!(
                    "the log ends with record {}, and the batch at byte {at} says that later ones were durable",
                    last.0
                )));
            }
        }
        Ok(())
    }

    /// The last record.
    pub fn last_lsn(&self) -> Lsn {
        Lsn(self.batches.back().map_or(0, |live| live.header.last_lsn()))
    }

    /// The first record that the log has.
    pub fn first_lsn(&self) -> Lsn {
        Lsn(self.batches.front().map_or(0, |live| live.header.first_lsn))
    }
}
