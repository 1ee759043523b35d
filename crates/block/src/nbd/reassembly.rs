//! Reassembly of small messages that arrive in pieces.

/// Room that is kept from one message for the next.
const KEPT_BYTES_MAX: usize = 4096;

/// The bytes of one small message, until they are all there.
///
/// It grows with what arrives and not with what was announced, so that a length alone costs nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Gather {
    bytes: Vec<u8>,
}

impl Gather {
    /// Takes from `input` what is missing of `wanted` bytes; whether they are all there now.
    pub(super) fn fill(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.bytes.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        self.bytes.extend_from_slice(taken);
        *input = rest;
        taken.len() == missing
    }

    /// The bytes gathered.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Hands the message out; [`Self::give_back`] returns its room.
    pub(super) fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.bytes)
    }

    /// Keeps the room of a message for the next one, unless it was an unusually large one.
    pub(super) fn give_back(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES_MAX);
        self.bytes = bytes;
    }

    /// Gets ready for the next message.
    pub(super) fn clear(&mut self) {
        let bytes = self.take();
        self.give_back(bytes);
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
