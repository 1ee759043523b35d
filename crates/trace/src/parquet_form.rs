//! The columns of the Parquet form, which its reader and writer agree on.
//!
//! | column | type | what |
//! | --- | --- | --- |
//! | `time_ns` | UINT_64 | nanoseconds since the start of the trace |
//! | `op` | STRING, dictionary | get, set, del, read, write, load, store, scan |
//! | `key` | UINT_64 | the key, or its hash; a byte offset; an address |
//! | `size` | UINT_32 | bytes of the value or of the request |
//! | `tenant` | UINT_32 | client, database or volume |
//! | `key_size` | UINT_16 | bytes of the key's name, 0 if unknown |
//! | `ttl_s` | UINT_32 | seconds to live, 0 for none |
//! | `frame` | UINT_64 | physical frame of 4096 bytes in which the address lies; only in physical traces of memory |
//!
//! The file's metadata says with what seed names became keys ([`KEY_SEED`]) and what the trace was made from ([`SOURCE`]).

use crate::reader::Fields;

/// The schema in Parquet's message form, with the column of frames or without. All columns are required: a reader need not
/// look for nulls.
pub(crate) fn schema(frames: bool) -> String {
    let frame = if frames { "REQUIRED INT64 frame (INTEGER(64,false));" } else { "" };
    format!("{COLUMNS}{frame}}}")
}

/// The columns that every file has.
const COLUMNS: &str = "message tiermem_trace {
    REQUIRED INT64 time_ns (INTEGER(64,false));
    REQUIRED BYTE_ARRAY op (STRING);
    REQUIRED INT64 key (INTEGER(64,false));
    REQUIRED INT32 size (INTEGER(32,false));
    REQUIRED INT32 tenant (INTEGER(32,false));
    REQUIRED INT32 key_size (INTEGER(16,false));
    REQUIRED INT32 ttl_s (INTEGER(32,false));
    ";

/// A column of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Time,
    Op,
    Key,
    Size,
    Tenant,
    KeySize,
    Ttl,
    Frame,
}

impl Column {
    /// All of them in the schema's order. The frame is the last, so that a file may do without it, and it comes behind the
    /// key, which a reader of physical addresses makes of both.
    pub const ALL: [Column; 8] = [
        Column::Time,
        Column::Op,
        Column::Key,
        Column::Size,
        Column::Tenant,
        Column::KeySize,
        Column::Ttl,
        Column::Frame,
    ];

    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Column::Time => "time_ns",
            Column::Op => "op",
            Column::Key => "key",
            Column::Size => "size",
            Column::Tenant => "tenant",
            Column::KeySize => "key_size",
            Column::Ttl => "ttl_s",
            Column::Frame => "frame",
        }
    }

    /// The field of a record that it holds.
    pub const fn field(self) -> Fields {
        match self {
            Column::Time => Fields::TIME,
            Column::Op => Fields::OP,
            // A frame is a part of the physical address.
            Column::Key | Column::Frame => Fields::KEY,
            Column::Size => Fields::SIZE,
            Column::Tenant => Fields::TENANT,
            Column::KeySize => Fields::KEY_SIZE,
            Column::Ttl => Fields::TTL,
        }
    }
}

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: u64 = 4096;

/// Metadata: the seed of xxh3 with which names became keys, in hexadecimal.
pub(crate) const KEY_SEED: &str = "tiermem.key_xxh3_seed";
/// Metadata: what the trace was made from.
pub(crate) const SOURCE: &str = "tiermem.source";
