//! libCacheSim's oracleGeneral: 24 bytes per record, with the number of the next request for the same key.
//!
//! The next access needs the future, so the records go to a temporary file first, and a second pass from its end writes the
//! next accesses. Memory holds one number per distinct key and one block of records. Fields and numbering are those of
//! the reader; the last request for a key has -1.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use tiermem_base::Access;

use super::output::{Output, named_beside, write_error};
use super::{Writer, without_columns};
use crate::TraceError;
use crate::optional::OptionalColumns;

const RECORD_BYTES: usize = 24;
/// Records that the second pass turns at once.
const BLOCK_RECORDS: u64 = 64 << 10;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

pub(super) struct OracleGeneralWriter {
    output: Output,
    /// The records without their next accesses; gone when the writer is.
    first_pass: BufWriter<File>,
    records: u64,
}

impl OracleGeneralWriter {
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let first_pass = named_beside(path).map_err(write_error(path))?.into_file();
        Ok(OracleGeneralWriter {
            output: Output::create(path)?,
            first_pass: BufWriter::with_capacity(256 << 10, first_pass),
            records: 0,
        })
    }

    fn put(&mut self, record: &Access) -> io::Result<()> {
        let time_s = u32::try_from(record.time_ns / NANOS_PER_SECOND).map_err(|_| {
            let reason = "oracleGeneral has no room for times of 2^32 seconds after the start and more";
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        })?;
        let mut bytes = [0; RECORD_BYTES];
        bytes[..4].copy_from_slice(&time_s.to_le_bytes());
        bytes[4..12].copy_from_slice(&record.key.to_le_bytes());
        bytes[12..16].copy_from_slice(&record.size.to_le_bytes());
        self.records += 1;
        self.first_pass.write_all(&bytes)
    }

    /// Goes through the records from the last to the first, a block at a time, and puts the next accesses in.
    fn number(&mut self) -> io::Result<()> {
        self.first_pass.flush()?;
        let file = self.first_pass.get_mut();
        let mut next_of: HashMap<[u8; 8], u64> = HashMap::new();
        let mut end = self.records;
        let mut block = Vec::new();
        while end > 0 {
            let start = end.saturating_sub(BLOCK_RECORDS);
            block.resize((end - start) as usize * RECORD_BYTES, 0);
            file.seek(SeekFrom::Start(start * RECORD_BYTES as u64))?;
            file.read_exact(&mut block)?;
            let (records, _) = block.as_chunks_mut::<RECORD_BYTES>();
            for (number, record) in (start + 1..=end).rev().zip(records.iter_mut().rev()) {
                let mut key = [0; 8];
                key.copy_from_slice(&record[4..12]);
                let next = next_of.insert(key, number).map_or(-1, u64::cast_signed);
                record[16..].copy_from_slice(&next.to_le_bytes());
            }
            file.seek(SeekFrom::Start(start * RECORD_BYTES as u64))?;
            file.write_all(&block)?;
            end = start;
        }
        file.seek(SeekFrom::Start(0))?;
        io::copy(file, &mut self.output)?;
        Ok(())
    }
}

impl Writer for OracleGeneralWriter {
    fn write(&mut self, records: &[Access]) -> Result<(), TraceError> {
        let path = self.output.path().to_owned();
        records.iter().try_for_each(|record| self.put(record)).map_err(write_error(&path))
    }

    fn write_with(&mut self, records: &[Access], columns: &OptionalColumns) -> Result<(), TraceError> {
        without_columns(self.output.path(), columns)?;
        self.write(records)
    }

    fn finish(mut self: Box<Self>) -> Result<(), TraceError> {
        self.number().map_err(write_error(self.output.path()))?;
        self.output.finish()
    }
}
