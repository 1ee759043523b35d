//! Meta's key-value traces for CacheLib: `key,op,size,op_count,key_size[,ttl]` with that header, or the later
//! `op_time,key,key_size,op,op_count,size,cache_hits,ttl[,usecase,sub_usecase]`.
//!
//! The header says the columns; without one they are those of the first form. Each line stands for `op_count` records.
//! `GET_LEASE` and `SET_LEASE` are gets and sets, as CacheBench replays them; a time to live of 0 is none. The traces and
//! their fields: cachelib.org, "Evaluating SSD hardware for Facebook workloads".

use crate::BadRecord;
use crate::reader::core::info::{FormatInfo, Open};
use crate::reader::core::layout::{Column, Columns, Delimiter, Header, Layout};
use crate::reader::core::lines::{LineFormat, LineOut};
use crate::reader::csv::from_header;

pub(crate) const INFO: FormatInfo = FormatInfo {
    name: "cachelib",
    about: "Meta CacheLib kv: key, op, size, op_count, key_size, ... by its header; op_count records per line",
    file_names: &["kvcache_traces"],
    open: Open::TextIf(
        |_| Box::new(CacheLib { columns: None }),
        |lines| lines.first().is_some_and(|line| is_header(line)),
    ),
};

const DEFAULT: &[Column] = &[Column::AnyKey, Column::AnyOp, Column::Size(1), Column::Count, Column::KeySize];

struct CacheLib {
    columns: Option<Columns>,
}

/// Only these traces count operations, and without that the guess would take other people's columns for these.
fn is_header(line: &[u8]) -> bool {
    memchr::memmem::find(line, b"op_count").is_some()
}

impl LineFormat for CacheLib {
    fn line(&mut self, number: u64, line: &[u8], out: &mut LineOut<'_>) -> Result<(), BadRecord> {
        if let Some(columns) = &mut self.columns {
            return columns.line(number, line, out);
        }
        if is_header(line) {
            self.columns = Some(from_header(line, Delimiter::Byte(b','))?);
            out.note();
            return Ok(());
        }
        let columns = DEFAULT.into();
        let layout = Layout { columns, header: Header::None, more_columns: true, size: 0, ..Layout::PLAIN };
        let mut columns = Columns::new(layout);
        columns.line(number, line, out)?;
        self.columns = Some(columns);
        Ok(())
    }

    fn steps_back(&self) -> u64 {
        self.columns.as_ref().map_or(0, LineFormat::steps_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::core::lines::tests::read_with;
    use tiermem_base::{Access, Op};

    fn read(text: &str) -> Vec<Result<Access, String>> {
        read_with(Box::new(CacheLib { columns: None }), text.as_bytes())
    }

    #[test]
    fn a_line_stands_for_as_many_records_as_it_counts() {
        let get = Access { key_size: 79, ..Access::get(0, 177_706_276, 9) };
        let set = Access { key_size: 40, ..Access::new(0, Op::Set, 1_668_757_755, 82) };
        let lines = "177706276,GET,9,3,79\n1668757755,SET_LEASE,82,1,40\n";
        let wanted = [Ok(get), Ok(get), Ok(get), Ok(set)];
        assert_eq!(read(&format!("key,op,size,op_count,key_size\n{lines}")), wanted);
        assert_eq!(read(lines), wanted);
    }

    #[test]
    fn later_headers_put_the_columns_elsewhere() {
        let text = "op_time,key,key_size,op,op_count,size,cache_hits,ttl\n\
                    564726470,798057486,83,GET,1,62,1,0\n564726471,7,5,SET,1,4,0,3600\n";
        let get = Access { key_size: 83, ..Access::get(0, 798_057_486, 62) };
        let set = Access { key_size: 5, ttl_s: 3600, ..Access::new(1_000_000_000, Op::Set, 7, 4) };
        assert_eq!(read(text), [Ok(get), Ok(set)]);
    }

    #[test]
    fn a_count_of_billions_costs_no_memory() {
        let format = Box::new(CacheLib { columns: None });
        let path = std::path::Path::new("t.csv");
        let mut lines =
            crate::reader::core::lines::Lines::new(path, &b"1,GET,9,18446744073709551615,79\n"[..], format);
        let mut records = Vec::new();
        crate::trace::Records::read(&mut lines, &mut records, 1000).unwrap();
        assert_eq!(records.len(), 1000);
    }

    #[test]
    fn unknown_operations_are_broken_lines() {
        assert!(read("7,SAT,9,1,79\n")[0].as_ref().unwrap_err().contains("no operation \"SAT\""));
    }
}
