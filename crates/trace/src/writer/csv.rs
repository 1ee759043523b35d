//! Writer of tiermem's own csv: all fields of a record in a line, under a header.

use std::io::Write;
use std::path::Path;

use tiermem_base::Access;

use super::output::{Output, write_error};
use super::{Writer, without_columns};
use crate::TraceError;
use crate::optional::OptionalColumns;

const HEADER: &str = "time_ns,op,key,size,tenant,key_size,ttl_s\n";

pub(super) struct CsvWriter {
    output: Output,
}

impl CsvWriter {
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let mut output = Output::create(path)?;
        output.write_all(HEADER.as_bytes()).map_err(write_error(path))?;
        Ok(CsvWriter { output })
    }
}

impl Writer for CsvWriter {
    fn write(&mut self, records: &[Access]) -> Result<(), TraceError> {
        for it in records {
            let (op, key_size) = (it.op.name(), it.key_size);
            writeln!(
                self.output,
                "{},{op},{},{},{},{key_size},{}",
                it.time_ns, it.key, it.size, it.tenant, it.ttl_s
            )
            .map_err(write_error(self.output.path()))?;
        }
        Ok(())
    }

    fn write_with(&mut self, records: &[Access], columns: &OptionalColumns) -> Result<(), TraceError> {
        without_columns(self.output.path(), columns)?;
        self.write(records)
    }

    fn finish(self: Box<Self>) -> Result<(), TraceError> {
        self.output.finish()
    }
}
