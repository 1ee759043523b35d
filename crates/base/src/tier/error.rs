//! Errors of a tier's description: which key, and what is wrong with it.

/// A tier that cannot be as it is described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tier {tier:?}: {key}: {problem}")]
pub struct TierError {
    /// The tier's name, or what was written for it.
    pub tier: String,
    /// The key that is wrong, as in a `[[tier]]` table.
    pub key: &'static str,
    /// The problem, and how to mend it.
    pub problem: String,
}

impl TierError {
    /// An error of this key.
    pub fn new(tier: impl Into<String>, key: &'static str, problem: impl Into<String>) -> Self {
        TierError { tier: tier.into(), key, problem: problem.into() }
    }
}
