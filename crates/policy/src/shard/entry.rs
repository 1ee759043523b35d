//! Entry: the description of an item that comes into memory.

/// An item that is to have a place.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The hash of its key.
    pub hash: u64,
    /// Its bytes, as [`super::Items::bytes`] will tell them.
    pub bytes: u64,
    /// When it expires, in Unix milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Its tenant; without meaning where tenants are not told apart.
    pub tenant: u16,
    /// Whether nothing is known of its use yet, so that [admission](crate::ladder::Admission) judges it by what became of others. An
    /// item that was here before, as one of a snapshot was, enters the fast tier: the order of the snapshot says where it belongs.
    pub is_newcomer: bool,
}
