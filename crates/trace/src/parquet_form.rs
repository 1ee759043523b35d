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
//!
//! The file's metadata says with what seed names became keys ([`KEY_SEED`]) and what the trace was made from ([`SOURCE`]).

use crate::reader::Fields;

/// The schema in Parquet's message form. All columns are required: a reader need not look for nulls.
pub(crate) const SCHEMA: &str = "message tiermem_trace {
    REQUIRED INT64 time_ns (INTEGER(64,false));
    REQUIRED BYTE_ARRAY op (STRING);
    REQUIRED INT64 key (INTEGER(64,false));
    REQUIRED INT32 size (INTEGER(32,false));
    REQUIRED INT32 tenant (INTEGER(32,false));
    REQUIRED INT32 key_size (INTEGER(16,false));
    REQUIRED INT32 ttl_s (INTEGER(32,false));
}";

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
}

impl Column {
    /// All of them in the schema's order.
    pub const ALL: [Column; 7] =
        [Column::Time, Column::Op, Column::Key, Column::Size, Column::Tenant, Column::KeySize, Column::Ttl];

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
        }
    }

    /// The field of a record that it holds.
    pub const fn field(self) -> Fields {
        match self {
            Column::Time => Fields::TIME,
            Column::Op => Fields::OP,
            Column::Key => Fields::KEY,
            Column::Size => Fields::SIZE,
            Column::Tenant => Fields::TENANT,
            Column::KeySize => Fields::KEY_SIZE,
            Column::Ttl => Fields::TTL,
        }
    }
}

/// Metadata: the seed of xxh3 with which names became keys, in hexadecimal.
pub(crate) const KEY_SEED: &str = "tiermem.key_xxh3_seed";
/// Metadata: what the trace was made from.
pub(crate) const SOURCE: &str = "tiermem.source";
