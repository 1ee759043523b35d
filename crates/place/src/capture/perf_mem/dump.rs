//! Dump lines of `perf mem -D report`: one sample each, `PID, TID, IP, ADDR, LOCAL
//! WEIGHT, DSRC, SYMBOL`, separated by blanks or by the separator given to `-x`.
//!
//! With blanks perf prints the very first line in another way than the rest, its address with a stray `016` before
//! it: `0x01655d000002000` is 0x55d000002000 (perf 3.10 to 6.17 at least). Other addresses have no leading zeros.

use tiermem_base::Op;

use super::data_src::decode;
use super::line::{Parsed, Reason, Seen, decimal, hexadecimal, mode_of, process};

/// The first line.
const HEADER: &[u8] = b"# PID, TID, IP, ADDR, ";
const HEADER_END: &[u8] = b"LOCAL WEIGHT, DSRC, SYMBOL";
/// Columns that may stand between the address and the weight.
const EXTRA: [&[u8]; 3] = [b"PHYS ADDR, ", b"DATA PAGE SIZE, ", b"CODE PAGE SIZE, "];

/// How many columns stand between the address and the weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    extra: usize,
}

/// The columns that a header names; `None` if the line is none.
pub(super) fn columns(line: &[u8]) -> Option<Result<Columns, Reason>> {
    let mut rest = line.strip_prefix(HEADER)?;
    let mut extra = 0;
    while let Some(behind) = EXTRA.iter().find_map(|name| rest.strip_prefix(*name)) {
        extra += 1;
        rest = behind;
    }
    let is_known = rest.trim_ascii_end() == HEADER_END;
    Some(is_known.then_some(Columns { extra }).ok_or("it names columns that are not known"))
}

/// Reads one line.
pub(super) fn parse(line: &[u8], of: Columns) -> Result<Parsed, Reason> {
    if matches!(line, [] | [b'#', ..]) {
        return match columns(line) {
            Some(Ok(columns)) if columns == of => Ok(Parsed::Nothing),
            Some(Ok(_)) => Err("from here on there are other columns than above"),
            Some(Err(reason)) => Err(reason),
            None => Ok(Parsed::Nothing),
        };
    }
    let mut fields = Fields::new(line);
    let pid = process(fields.next("it ends before the process")?).ok_or("its process is no number")?;
    process(fields.next("it ends before the thread")?).ok_or("its thread is no number")?;
    let ip =
        number(fields.next("it ends before the instruction")?).ok_or("its instruction is not like 0x55d0")?;
    let address = fields.next("it ends before the address")?;
    let address = match address.strip_prefix(b"0x016") {
        Some(rest) if fields.separator == b' ' => hexadecimal(rest),
        _ => number(address),
    };
    let address = address.ok_or("its address is not like 0x7f3a00001000")?;
    for _ in 0..of.extra {
        fields.next("it ends before the weight")?;
    }
    let cycles = decimal(fields.next("it ends before the weight")?).ok_or("its weight is no number")?;
    let bits = number(fields.next("it ends before the data source")?)
        .ok_or("its data source is not like 0x68100142")?;
    let (op, answer) = decode(bits);
    let (op, mode) = (op.unwrap_or(Op::Load), mode_of(ip));
    Ok(Parsed::Sample(Seen { pid: Some(pid), time_ns: None, address, op, answer, mode, cycles }))
}

fn number(text: &[u8]) -> Option<u64> {
    hexadecimal(text.strip_prefix(b"0x")?)
}

/// The fields of a line. What follows the process's digits separates them all.
struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    fn new(line: &'a [u8]) -> Self {
        let line = line.trim_ascii_start();
        let separator = line.iter().copied().find(|byte| !byte.is_ascii_digit()).unwrap_or(b' ');
        Fields { rest: Some(line), separator }
    }

    fn next(&mut self, missing: Reason) -> Result<&'a [u8], Reason> {
        let mut rest = self.rest.ok_or(missing)?;
        if self.separator == b' ' {
            rest = rest.trim_ascii_start();
        }
        let (field, behind) = match memchr::memchr(self.separator, rest) {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        self.rest = behind;
        if field.is_empty() { Err(missing) } else { Ok(field) }
    }
}
