//! Export: what a server offers.

use super::context::Contexts;
use super::rules::Rules;
use super::sizes::BlockSizes;
use super::wire::TransmissionFlags;

/// A volume that clients may ask for by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name, at most [`super::wire::STRING_BYTES_MAX`] bytes.
    pub name: String,
    /// Words for people, at most as long; may be empty.
    pub description: String,
    /// Bytes that can be addressed.
    pub size_bytes: u64,
    /// Whether writes fail.
    pub read_only: bool,
    /// Its features. [`Export::flags_for`] adds and removes those that follow from the rest.
    pub features: TransmissionFlags,
    /// Sizes of requests; must be valid.
    pub block: BlockSizes,
    /// Metadata contexts that can be queried.
    pub contexts: Contexts,
}

impl Export {
    /// An export with a name and a size that can be read and written, and nothing else.
    pub fn new(name: impl Into<String>, size_bytes: u64) -> Self {
        Export {
            name: name.into(),
            description: String::new(),
            size_bytes,
            read_only: false,
            features: TransmissionFlags::none(),
            block: BlockSizes::default(),
            contexts: Contexts::none(),
        }
    }

    /// The transmission flags of a session.
    pub fn flags_for(&self, structured: bool) -> TransmissionFlags {
        let mut flags = self.features.with(TransmissionFlags::HAS_FLAGS);
        if self.read_only || flags.contains(TransmissionFlags::READ_ONLY) {
            flags = flags
                .with(TransmissionFlags::READ_ONLY)
                .without(TransmissionFlags::SEND_TRIM)
                .without(TransmissionFlags::SEND_WRITE_ZEROES);
        }
        if !flags.contains(TransmissionFlags::SEND_WRITE_ZEROES) {
            flags = flags.without(TransmissionFlags::SEND_FAST_ZERO);
        }
        if structured { flags } else { flags.without(TransmissionFlags::SEND_DF) }
    }

    /// Rules of a session's requests.
    pub fn rules_for(&self, structured: bool, contexts: Contexts) -> Rules {
        Rules {
            size_bytes: self.size_bytes,
            flags: self.flags_for(structured),
            block: self.block,
            structured,
            contexts: !contexts.is_empty(),
        }
    }

    /// Which of `exports` a client means by `name`. The empty name also means the only export there is.
    pub(super) fn find(exports: &[Export], name: &str) -> Option<usize> {
        exports
            .iter()
            .position(|export| export.name == name)
            .or_else(|| (name.is_empty() && exports.len() == 1).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_follow_from_what_the_export_is() {
        let all = TransmissionFlags::from_bits(0xffff).without(TransmissionFlags::READ_ONLY);
        let mut export = Export { features: all, ..Export::new("a", 10) };
        assert_eq!(export.flags_for(true), all);
        assert_eq!(export.flags_for(false), all.without(TransmissionFlags::SEND_DF));
        export.read_only = true;
        let flags = export.flags_for(true);
        assert!(flags.contains(TransmissionFlags::READ_ONLY.with(TransmissionFlags::SEND_FLUSH)));
        for flag in [
            TransmissionFlags::SEND_TRIM,
            TransmissionFlags::SEND_WRITE_ZEROES,
            TransmissionFlags::SEND_FAST_ZERO,
        ] {
            assert!(!flags.contains(flag));
        }
        let plain = Export { features: TransmissionFlags::SEND_FAST_ZERO, ..Export::new("", 0) };
        assert_eq!(plain.flags_for(true), TransmissionFlags::HAS_FLAGS);
    }

    #[test]
    fn the_empty_name_means_the_default_export() {
        let named = |names: &[&str]| names.iter().map(|name| Export::new(*name, 1)).collect::<Vec<_>>();
        assert_eq!(Export::find(&named(&["a", "b"]), "b"), Some(1));
        assert_eq!(Export::find(&named(&["a", ""]), ""), Some(1));
        assert_eq!(Export::find(&named(&["a"]), ""), Some(0));
        assert_eq!(Export::find(&named(&["a", "b"]), ""), None);
        assert_eq!(Export::find(&[], ""), None);
    }
}
