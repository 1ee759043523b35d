//! Option data, parsed.

use crate::nbd::context::Contexts;
use crate::nbd::fields::Fields;
use crate::nbd::wire::{STRING_BYTES_MAX, info, reply};

/// The error reply to an option, and words for people.
pub(super) type Refused = (u32, &'static str);

const MALFORMED: Refused = (reply::ERR_INVALID, "the option's data are malformed");

/// A string as the protocol has them.
fn string<'a>(fields: &mut Fields<'a>) -> Result<&'a str, Refused> {
    let bytes = fields.string().ok_or(MALFORMED)?;
    if bytes.len() > STRING_BYTES_MAX {
        return Err((reply::ERR_TOO_BIG, "a string is too long"));
    }
    core::str::from_utf8(bytes).map_err(|_| (reply::ERR_INVALID, "a string is not UTF-8"))
}

/// The data of `INFO` and `GO`.
#[derive(Debug)]
pub(super) struct InfoAsked<'a> {
    pub(super) name: &'a str,
    pub(super) canonical_name: bool,
    pub(super) description: bool,
    pub(super) block_size: bool,
}

impl<'a> InfoAsked<'a> {
    pub(super) fn read(data: &'a [u8]) -> Result<Self, Refused> {
        let mut fields = Fields::new(data);
        let name = string(&mut fields)?;
        let count = fields.u16().ok_or(MALFORMED)?;
        let mut asked = InfoAsked { name, canonical_name: false, description: false, block_size: false };
        for _ in 0..count {
            match fields.u16().ok_or(MALFORMED)? {
                info::NAME => asked.canonical_name = true,
                info::DESCRIPTION => asked.description = true,
                info::BLOCK_SIZE => asked.block_size = true,
                // The size is sent anyway, and unknown requests are to be ignored.
                _ => {}
            }
        }
        if fields.rest().is_empty() { Ok(asked) } else { Err(MALFORMED) }
    }
}

/// The data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Debug)]
pub(super) struct MetaAsked<'a> {
    pub(super) name: &'a str,
    count: u32,
    queries: Fields<'a>,
}

impl<'a> MetaAsked<'a> {
    pub(super) fn read(data: &'a [u8]) -> Result<Self, Refused> {
        let mut fields = Fields::new(data);
        let name = string(&mut fields)?;
        let count = fields.u32().ok_or(MALFORMED)?;
        Ok(MetaAsked { name, count, queries: fields })
    }

    /// Those of `offered` that the queries find; to `list` them, no query at all finds all, and wildcards count.
    pub(super) fn contexts(&self, offered: Contexts, list: bool) -> Result<Contexts, Refused> {
        let mut fields = self.queries;
        let mut found = Contexts::none();
        // The count may be anything, but each round needs bytes and they end.
        for _ in 0..self.count {
            let query = string(&mut fields)?;
            let matching = offered.matching(query, list);
            found = found.and(matching.ok_or((reply::ERR_INVALID, "a query without a namespace"))?);
        }
        if !fields.rest().is_empty() {
            return Err(MALFORMED);
        }
        Ok(if list && self.count == 0 { offered } else { found })
    }
}
