//! Set of the shards that keys lie in: none, one or several.

/// None, one or several shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardSet {
    /// None.
    #[default]
    Empty,
    /// This one.
    One(usize),
    /// Several.
    Several,
}

/// There are several where one was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several;

impl ShardSet {
    /// Adds a shard.
    pub fn add(&mut self, shard: usize) {
        *self = match *self {
            ShardSet::Empty => ShardSet::One(shard),
            ShardSet::One(one) if one == shard => *self,
            _ => ShardSet::Several,
        };
    }

    /// The one, if there is any.
    pub fn only(self) -> Result<Option<usize>, Several> {
        match self {
            ShardSet::Empty => Ok(None),
            ShardSet::One(shard) => Ok(Some(shard)),
            ShardSet::Several => Err(Several),
        }
    }
}
