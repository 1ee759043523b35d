//! Numbers of the protocol: magics, codes, flags, limits (`doc/proto.md`, section "Values").

/// Opens the server's greeting: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Opens every option, and follows the greeting of newstyle: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Opens every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Opens every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Opens a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Opens each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of the greeting: two magics and the handshake flags.
pub const GREETING_BYTES: usize = 18;
/// Bytes in front of an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes in front of the data of a reply to an option.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Bytes of a request in front of a write's payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply in front of a read's payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes in front of a chunk's payload.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zeroes behind the answer to `EXPORT_NAME`, unless both sides left them out.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// The longest string: names, descriptions, queries, messages (section "Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// A payload of up to 32 MiB is no attack, however little was announced (section "Size constraints").
pub const PAYLOAD_BYTES_PORTABLE: u32 = 32 << 20;
/// The most extents in one chunk of a block status (section "Structured reply types").
pub const EXTENTS_MAX: u32 = 1 << 20;

/// In the handshake and the client flags: fixed newstyle is spoken.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// In the handshake and the client flags: no zeroes behind the answer to `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// In a chunk's flags: the last one of its reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// In an extent's flags of `base:allocation`: nothing is allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// In an extent's flags of `base:allocation`: reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// Options that a client sends before transmission (section "Option types").
pub mod option {
    /// Choose an export; the only way to report an error is to hang up.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Name all exports.
    pub const LIST: u32 = 3;
    /// Go over to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name an export's metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies of a server to an option (section "Option reply types").
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERROR_BIT: u32 = 1 << 31;
    /// The option is not known.
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    /// The option is forbidden here.
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    /// The option makes no sense as it was sent.
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    /// The server's platform lacks something.
    pub const ERR_PLATFORM: u32 = ERROR_BIT + 4;
    /// Only over TLS.
    pub const ERR_TLS_REQD: u32 = ERROR_BIT + 5;
    /// The export does not exist.
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    /// The server is going down.
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    /// The client must ask for block sizes first.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR_BIT + 8;
    /// The option or its answer is too large.
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
}

/// Pieces of information about an export (section "Option reply types", `NBD_REP_INFO`).
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// Words for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum and preferred block, maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of chunks (section "Structured reply types").
pub mod chunk {
    /// Nothing but the end of the reply.
    pub const NONE: u16 = 0;
    /// Data of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// Zeroes of a read.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in every error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// The request failed.
    pub const ERROR: u16 = ERROR_BIT + 1;
    /// The request failed at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// A set of flags of 16 bits.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident { $($(#[$flag_doc:meta])* $flag:ident = $bit:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u16);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = $name(1 << $bit);)*

            /// No flag.
            pub const fn none() -> Self {
                $name(0)
            }

            /// The flags with these bits set, unknown ones kept.
            pub const fn from_bits(bits: u16) -> Self {
                $name(bits)
            }

            /// As they go over the wire.
            pub const fn bits(self) -> u16 {
                self.0
            }

            /// Whether all of `flags` are set.
            pub const fn contains(self, flags: Self) -> bool {
                self.0 & flags.0 == flags.0
            }

            /// These and `flags`.
            #[must_use]
            pub const fn with(self, flags: Self) -> Self {
                $name(self.0 | flags.0)
            }

            /// These but for `flags`.
            #[must_use]
            pub const fn without(self, flags: Self) -> Self {
                $name(self.0 & !flags.0)
            }
        }
    };
}

flags! {
    /// What an export can do (section "Transmission flags").
    TransmissionFlags {
        /// Always set.
        HAS_FLAGS = 0;
        /// Writes fail.
        READ_ONLY = 1;
        /// `FLUSH` is understood.
        SEND_FLUSH = 2;
        /// [`CommandFlags::FUA`] is understood.
        SEND_FUA = 3;
        /// Seeks cost.
        ROTATIONAL = 4;
        /// `TRIM` is understood.
        SEND_TRIM = 5;
        /// `WRITE_ZEROES` is understood.
        SEND_WRITE_ZEROES = 6;
        /// [`CommandFlags::DF`] is understood; only with structured replies.
        SEND_DF = 7;
        /// All connections see one state, and a flush on one covers all.
        CAN_MULTI_CONN = 8;
        /// `CACHE` is understood.
        SEND_CACHE = 10;
        /// [`CommandFlags::FAST_ZERO`] is understood.
        SEND_FAST_ZERO = 11;
    }
}

flags! {
    /// How a request is meant (section "Command flags").
    CommandFlags {
        /// Reply only when what was written is durable.
        FUA = 0;
        /// Zeroes are to be allocated.
        NO_HOLE = 1;
        /// A read's data come in one chunk.
        DF = 2;
        /// One extent per context is enough.
        REQ_ONE = 3;
        /// Zeroes only if that is faster than writing them.
        FAST_ZERO = 4;
    }
}
