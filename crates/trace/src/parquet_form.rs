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
//! | `frame` | UINT_64 | optional: the physical frame of 4096 bytes in which the address lies |
//! | `node` | UINT_8 | optional: the memory node where the page lies, 255 if that is not known |
//! | `level` | UINT_8 | optional: where the access was answered, 0 unknown, 1 cache, 2 local memory, 3 remote memory |
//! | `pc` | UINT_64 | optional: the address of the instruction |
//!
//! An optional column is there for all records or not at all: there are no nulls.
//!
//! The file's metadata says with what seed names became keys ([`KEY_SEED`]) and what the trace was made from ([`SOURCE`]).

use crate::optional::{OptionalColumn, OptionalSet};
use crate::reader::Fields;

/// The schema in Parquet's message form, with these of the optional columns. All columns are required: a reader need not look
/// for nulls.
pub(crate) fn schema(optional: OptionalSet) -> String {
    let line = |column: OptionalColumn| match column.max() {
        u64::MAX => format!("REQUIRED INT64 {} (INTEGER(64,false));\n", column.name()),
        _ => format!("REQUIRED INT32 {} (INTEGER(8,false));\n", column.name()),
    };
    let lines: String = optional.columns().map(line).collect();
    format!("{COLUMNS}{lines}}}")
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
    Optional(OptionalColumn),
}

impl Column {
    /// All columns in the schema's order. Optional ones are the last. The frame follows the key: a reader of physical addresses
    /// combines the two.
    pub const ALL: [Column; 11] = [
        Column::Time,
        Column::Op,
        Column::Key,
        Column::Size,
        Column::Tenant,
        Column::KeySize,
        Column::Ttl,
        Column::Optional(OptionalColumn::Frame),
        Column::Optional(OptionalColumn::Node),
        Column::Optional(OptionalColumn::Level),
        Column::Optional(OptionalColumn::Pc),
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
            Column::Optional(column) => column.name(),
        }
    }

    /// The field of a record that it holds; that of an optional column is none but the key, which always is read.
    pub const fn field(self) -> Fields {
        match self {
            Column::Time => Fields::TIME,
            Column::Op => Fields::OP,
            Column::Key | Column::Optional(_) => Fields::KEY,
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
