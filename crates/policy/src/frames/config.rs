//! Configuration of the frames machine, set when it is made.

/// Tiers that a frame can lie in, at least and at most.
pub const TIERS_MIN: usize = 2;
/// See [`TIERS_MIN`].
pub const TIERS_MAX: usize = 4;
/// Owners that frames can have: their numbers have 16 bits.
pub const OWNERS_MAX: u32 = 1 << 16;
/// An owner that may fill a tier.
pub const NO_QUOTA: u32 = u32::MAX;

/// Configuration of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// Its capacity.
    pub frames: u32,
    /// Whether a program uses frames here without a fault: DRAM, another NUMA node. Compressed memory and flash are not.
    pub in_place: bool,
    /// Whether a frame that is fetched from here leaves a clean copy, so that its demotion needs no write. A copy takes otherwise
    /// unused room, and is given up first.
    pub keeps_copies: bool,
    /// Free frames below which [`super::Frames::step`] begins to demote; 0: it never begins.
    pub low: u32,
    /// Free frames at which it stops, at least `low`.
    pub high: u32,
}

impl TierConfig {
    /// A tier of memory without watermarks.
    pub fn memory(frames: u32) -> Self {
        TierConfig { frames, in_place: true, keeps_copies: false, low: 0, high: 0 }
    }

    /// A tier whose frames must be fetched to be used, and which keeps their copies.
    pub fn storage(frames: u32) -> Self {
        TierConfig { frames, in_place: false, keeps_copies: true, low: 0, high: 0 }
    }
}

/// Where a frame comes that is needed, or fetched ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// To the first tier, whose coldest frame goes to the next one where it is full. A frame that is used a second time in a
    /// slower tier in place is a candidate for promotion.
    #[default]
    First,
    /// To the first tier in place that has room; where none has, to the last one in place, whose coldest frame leaves. So frames
    /// leave memory from that tier alone. Frames of neighbouring tiers in place change places by how often they are used, see the
    /// module's documentation.
    Spill,
}

/// How references are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum References {
    /// Each use: the order hears of it at once.
    Told,
    /// By bits that are sampled now and then: a bit is kept for each frame, and the order hears of it when it names the frame
    /// as a victim, which is spared that once.
    Sampled,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Two to four, fastest first; those in place before the others.
    pub tiers: Vec<TierConfig>,
    /// Owners have numbers below this, at most [`OWNERS_MAX`].
    pub owners: u32,
    /// Whether each owner has an order of its own, which quotas need. Else all share one.
    pub apart: bool,
    /// Where a frame comes that is needed.
    pub arrival: Arrival,
    /// How references are told.
    pub references: References,
    /// Whether the machine hears of each write. Otherwise no frame is known to be clean: a frame with a copy is compared with it
    /// on its way out, by the driver that moves it.
    pub writes_told: bool,
    /// Moves under way at once. A quarter is kept for demands.
    pub moves_max: u32,
    /// Frames that can be pinned at once.
    pub pinned_max: u32,
    /// Frames that can wait to be promoted.
    pub candidates: u32,
    /// Size of a frame.
    pub frame_bytes: u32,
}

impl Config {
    /// These tiers, one owner, every reference and write told, frames of 4 KiB.
    pub fn of(tiers: &[TierConfig]) -> Self {
        Config {
            tiers: tiers.to_vec(),
            owners: 1,
            apart: false,
            arrival: Arrival::First,
            references: References::Told,
            writes_told: true,
            moves_max: 64,
            pinned_max: u32::MAX,
            candidates: 1024,
            frame_bytes: 4096,
        }
    }

    /// Checks all that the machine relies on.
    pub fn check(&self) -> Result<(), ConfigError> {
        let tiers = self.tiers.len();
        if !(TIERS_MIN..=TIERS_MAX).contains(&tiers) {
            return Err(ConfigError::Tiers { tiers });
        }
        if self.owners == 0 || self.owners > OWNERS_MAX {
            return Err(ConfigError::Owners { owners: self.owners });
        }
        if self.apart && self.arrival == Arrival::Spill {
            return Err(ConfigError::SpillApart);
        }
        if self.arrival == Arrival::Spill && self.tiers.iter().all(|tier| tier.in_place) {
            return Err(ConfigError::SpillNowhere);
        }
        for (tier, config) in self.tiers.iter().enumerate() {
            let above_in_place = tier == 0 || self.tiers[tier - 1].in_place;
            let problem = if config.frames == 0 {
                "holds no frame"
            } else if tier == 0 && !config.in_place {
                "is the fastest, so its frames must be in place"
            } else if config.in_place && !above_in_place {
                "is in place, but the tier above it is not"
            } else if config.in_place && config.keeps_copies {
                "is in place: a frame there is used, and no copy"
            } else if config.low > config.high || config.high >= config.frames {
                "needs watermarks with low <= high < its frames"
            } else if tier + 1 == tiers && config.high > 0 {
                "is the last: nothing is demoted from it, so it has no watermarks"
            } else {
                continue;
            };
            return Err(ConfigError::Tier { tier, problem });
        }
        Ok(())
    }
}

/// Why a configuration cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Too few or too many tiers.
    #[error("{tiers} tiers: frames lie in {TIERS_MIN} to {TIERS_MAX}")]
    Tiers {
        /// How many were given.
        tiers: usize,
    },
    /// Too few or too many owners.
    #[error("{owners} owners: there are 1 to {OWNERS_MAX}")]
    Owners {
        /// How many were given.
        owners: u32,
    },
    /// One tier is not possible.
    #[error("tier {tier} {problem}")]
    Tier {
        /// The tier, from 0.
        tier: usize,
        /// The reason.
        problem: &'static str,
    },
    /// Frames spill, whoever owns them.
    #[error(
        "owners have orders apart, but frames change places whoever owns them: let owners share one order"
    )]
    SpillApart,
    /// Frames leave the last tier of memory for a slower one.
    #[error("all tiers are memory, and frames that leave it have no place: add a tier below, such as flash")]
    SpillNowhere,
    /// Quotas need orders apart.
    #[error("owners share one order, so they have no quotas: set `apart`")]
    Together,
    /// There is no such owner or tier.
    #[error("there is no owner {owner} or no tier {tier}")]
    Unknown {
        /// The owner asked for.
        owner: u16,
        /// The tier asked for.
        tier: u8,
    },
}
