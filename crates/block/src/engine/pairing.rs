//! Pairing of the cache with its stores: what a start does in which order, so that after a crash at any moment the next one finds a pair
//! that fits, and a pair that does not is refused. The protocol and its reasons are in [`tiermem_policy::extents::pairing`].

use std::fmt::Write;

use tiermem_base::Bytes;
use tiermem_policy::extents::pairing::{
    CacheSays, Found, Kept, Label, Mark, Marks, Refusal, StoreSays, judge,
};
use tiermem_policy::extents::{Mode, UNIT_BYTES, Volume, forget_volume};
use tiermem_tier::backing::{Backing, BackingError, Identity, StoreLabel};

use super::config::{EngineError, VolumeConfig};
use super::pairing_state::Pairing;
use super::shared::Shared;
use super::volume::VolumeState;
use crate::journal::{self, Journal, VolumeInfo};

impl VolumeState {
    /// Makes the store keep that this cache writes it, and whether it may lack something.
    pub(super) fn set_label(&mut self, may_lack: bool) -> Result<(), BackingError> {
        let Some(mark) = self.pairing.own else { return Ok(()) };
        let label = Label { mark, may_lack };
        if self.pairing.label == Some(label) {
            return Ok(());
        }
        self.backing.set_label(&label.to_string())?;
        self.pairing.label = Some(label);
        Ok(())
    }

    /// What the log says of the volume from now on.
    fn info(&mut self, name: &str, is_settled: bool) -> VolumeInfo {
        let Identity { which, version } = self.backing.identity();
        VolumeInfo {
            number: self.number.0,
            name: name.to_owned(),
            size_bytes: self.backing.size_bytes(),
            state: match is_settled {
                true => journal::VolumeState::Settled { which, version },
                false => journal::VolumeState::Writing { which },
            },
            marks: Some(self.pairing.marks),
        }
    }
}

impl Shared {
    /// Takes a volume up: finds its number, judges whether cache and store are a pair, and notes what is about to be done to the store.
    pub fn take_up(
        &mut self,
        config: &VolumeConfig,
        backing: &mut dyn Backing,
    ) -> Result<(Volume, Pairing), EngineError> {
        let number = self.number_of(&config.name)?;
        let size_bytes = backing.size_bytes();
        let limit = Volume::bytes_max(self.extents.geometry().piece_bytes());
        if size_bytes > limit {
            return Err(EngineError::VolumeSize { name: config.name.clone(), size_bytes, limit });
        }
        let label = backing.label();
        let label = label
            .map_err(|error| EngineError::Label { name: config.name.clone(), why: error.to_string() })?;
        let store = match &label {
            StoreLabel::NotKept => StoreSays::Unknown,
            StoreLabel::Absent => StoreSays::Nothing,
            StoreLabel::Text(text) => text.parse().map_or(StoreSays::Unreadable, StoreSays::Label),
        };
        let now = backing.identity();
        let known =
            self.log.journal().and_then(|log| log.volumes().find(|it| it.number == number.0)).cloned();
        let is_read_only = config.read_only || backing.is_read_only();
        let found = self.find(config, number, known.as_ref(), (store, size_bytes, &now, is_read_only));
        let kept = judge(&found).map_err(|refusal| {
            let words = (cache_words(known.as_ref()), store_words(&label, store, size_bytes, &now));
            self.refused(config, number, refusal, words)
        })?;
        self.keep(config, number, kept, known.is_some());

        let seen = known.as_ref().and_then(|known| known.marks);
        let mut pairing =
            Pairing { was_dirty: found.is_dirty && kept != Kept::Nothing, ..Pairing::default() };
        if is_read_only {
            // What the log knows of the store's label stays so, if it is still true.
            pairing.marks = seen.filter(|_| kept == Kept::All).unwrap_or(Marks::seen(store));
        } else {
            let before = [store.mark(), seen.and_then(|marks| marks.own)].into_iter().flatten();
            let own = Mark::next(self.cache.id, before, journal::random());
            (pairing.own, pairing.marks) = (Some(own), Marks::beginning(own, store));
        }
        let Identity { which, version } = now;
        let state = match is_read_only {
            true => journal::VolumeState::Settled { which, version },
            false => journal::VolumeState::Writing { which },
        };
        let (name, marks) = (config.name.clone(), Some(pairing.marks));
        self.log.note_volume(&VolumeInfo { number: number.0, name, size_bytes, state, marks });
        Ok((number, pairing))
    }

    fn find(
        &self,
        config: &VolumeConfig,
        number: Volume,
        known: Option<&VolumeInfo>,
        (store, size_bytes, now, is_read_only): (StoreSays, u64, &Identity, bool),
    ) -> Found {
        let (mut is_dirty, mut is_beyond) = (false, false);
        self.extents.visit_dirty(|owner, part| {
            is_dirty |= owner == number;
            is_beyond |=
                owner == number && part.offset + part.bytes > size_bytes.next_multiple_of(UNIT_BYTES);
        });
        let is_other = |one: &Option<String>, other: &Option<String>, may_be_same: fn(&str, &str) -> bool| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| !may_be_same(one, other))
        };
        let is_same = known.is_none_or(|known| {
            known.size_bytes == size_bytes
                && match &known.state {
                    journal::VolumeState::Writing { which } => {
                        !is_other(which, &now.which, Identity::may_be_same)
                    }
                    journal::VolumeState::Settled { which, version } => {
                        !is_other(which, &now.which, Identity::may_be_same)
                            && !is_other(version, &now.version, |one, other| one == other)
                    }
                    journal::VolumeState::Removed => false,
                }
        });
        let names = |info: &VolumeInfo| {
            info.marks.is_some_and(|marks| marks.own == store.mark() || marks.before == Some(store.mark()))
        };
        let mut volumes = self.log.journal().into_iter().flat_map(Journal::volumes);
        Found {
            cache: match known {
                None => CacheSays::Nothing,
                Some(VolumeInfo { marks: None, .. }) => CacheSays::Unmarked,
                Some(VolumeInfo { marks: Some(marks), .. }) => CacheSays::Marks(*marks),
            },
            store,
            is_same,
            is_dirty,
            is_beyond,
            is_renamed: store.mark().is_some() && volumes.any(names),
            discarded: self.cache.discarded,
            writes: !is_read_only,
            accepted: config.accepted,
        }
    }

    fn refused(
        &self,
        config: &VolumeConfig,
        number: Volume,
        refusal: Refusal,
        (cache, store): (String, String),
    ) -> EngineError {
        let mut dirty_bytes = 0;
        self.extents.visit_dirty(|owner, part| dirty_bytes += if owner == number { part.bytes } else { 0 });
        let (name, dirty) = (config.name.clone(), Bytes(dirty_bytes));
        match refusal {
            Refusal::Dirty => EngineError::WrongStore { name, dirty, cache, store },
            Refusal::Beyond => EngineError::ShortStore { name, dirty, cache, store },
            Refusal::Lacks => EngineError::WrongCache { name, id: self.cache.id, cache, store },
        }
    }

    /// Forgets what of a volume does not stay.
    fn keep(&mut self, config: &VolumeConfig, number: Volume, kept: Kept, was_known: bool) {
        if kept == Kept::All {
            return;
        }
        let parts = forget_volume(&mut self.extents, number, kept == Kept::Dirty);
        self.write_order.note_dropped(&mut self.log, number, &parts);
        self.write_order.note_map(&mut self.log, &mut self.extents);
        if was_known {
            let still = if kept == Kept::Dirty { "what is dirty" } else { "nothing of it" };
            tracing::warn!(
                export = config.name,
                "the image was changed by somebody else: {still} stays cached"
            );
        }
    }

    /// Gives the stores of all volumes their labels; call it when all that the log was told is durable.
    pub fn label_stores(&mut self) {
        let Shared { volumes, log, .. } = self;
        for at in 0..volumes.len() {
            let name = volumes.name(at).to_owned();
            let volume = &mut volumes[at];
            let Some(own) = volume.pairing.own else { continue };
            // A cache in memory has nothing that anybody could bring back.
            let may_lack = log.is_kept() && (volume.mode == Mode::WriteBack || volume.pairing.was_dirty);
            match volume.set_label(may_lack) {
                Ok(()) => {
                    volume.pairing.marks = Marks::confirmed(own);
                    let info = volume.info(&name, false);
                    log.note_volume(&info);
                }
                Err(error) => tracing::warn!(
                    export = name,
                    %error,
                    "the store keeps no record of this cache: a start with a wrong one will not be noticed"
                ),
            }
        }
    }

    /// Notes that the store of the volume at a place has everything, and is left alone.
    pub fn settle(&mut self, at: usize) {
        let name = self.volumes.name(at).to_owned();
        let volume = &mut self.volumes[at];
        // The label first: it is a change of the store, of which the log is to know.
        if volume.pairing.label.is_some()
            && let Err(error) = volume.set_label(false)
        {
            tracing::warn!(export = name, %error, "the store's record still says that it may lack something");
        }
        let info = volume.info(&name, true);
        self.log.note_volume(&info);
    }
}

fn which(identity: Option<&str>) -> &str {
    identity.unwrap_or("a store that cannot say which it is")
}

fn cache_words(known: Option<&VolumeInfo>) -> String {
    let Some(known) = known else { return "knows no export of this name".to_owned() };
    let of = match &known.state {
        journal::VolumeState::Writing { which } | journal::VolumeState::Settled { which, .. } => {
            which.as_deref()
        }
        journal::VolumeState::Removed => None,
    };
    let mut words = format!("knows {} of {} bytes", which(of), known.size_bytes);
    if let Some(mark) = known.marks.and_then(|marks| marks.own.or(marks.before.flatten())) {
        let _ = write!(words, ", written by {mark}");
    }
    words
}

fn store_words(label: &StoreLabel, says: StoreSays, size_bytes: u64, now: &Identity) -> String {
    let record = match (label, says) {
        (_, StoreSays::Label(label)) => format!("written by {}", label.mark),
        (StoreLabel::Text(text), _) => {
            format!("with a record that this version cannot read ({})", text.escape_debug())
        }
        (StoreLabel::Absent, _) => "with no record of a cache".to_owned(),
        (StoreLabel::NotKept, _) => "which keeps no record of a cache".to_owned(),
    };
    format!("{} of {size_bytes} bytes, {record}", which(now.which.as_deref()))
}
