//! Metadata contexts: what can be queried about a volume's extents (section "Metadata querying").

/// A metadata context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// `base:allocation`: holes and zeroes ([`super::wire::STATE_HOLE`], [`super::wire::STATE_ZERO`]).
    Allocation,
    /// `tiermem:cache`: what is cached here; flags as [`Context::CACHED`] and [`Context::DIRTY`].
    Cache,
}

impl Context {
    /// All that are known.
    pub const ALL: [Context; 2] = [Context::Allocation, Context::Cache];
    /// In an extent's flags of `tiermem:cache`: it is cached.
    pub const CACHED: u32 = 1 << 0;
    /// In an extent's flags of `tiermem:cache`: the backing store does not have it yet.
    pub const DIRTY: u32 = 1 << 1;

    /// Its name: a namespace, a colon, a leaf.
    pub fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Cache => "tiermem:cache",
        }
    }

    /// Its number in a session's chunks.
    pub fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Cache => 2,
        }
    }

    fn bit(self) -> u8 {
        match self {
            Context::Allocation => 1 << 0,
            Context::Cache => 1 << 1,
        }
    }
}

/// A set of metadata contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contexts(u8);

impl Contexts {
    /// None.
    pub const fn none() -> Self {
        Contexts(0)
    }

    /// All that are known.
    pub fn all() -> Self {
        Context::ALL.into_iter().fold(Contexts::none(), Contexts::with)
    }

    /// These and `context`.
    #[must_use]
    pub fn with(self, context: Context) -> Self {
        Contexts(self.0 | context.bit())
    }

    /// These and `others`.
    #[must_use]
    pub(super) fn and(self, others: Self) -> Self {
        Contexts(self.0 | others.0)
    }

    /// Whether `context` is one of them.
    pub fn contains(self, context: Context) -> bool {
        self.0 & context.bit() != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One after the other, always in the same order.
    pub fn iter(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |context| self.contains(*context))
    }

    /// The contexts of the set that `query` names, or, where `wildcards` count, those of the namespace that it
    /// names. `None` when `query` lacks the colon that ends a namespace. A foreign namespace matches nothing.
    pub(super) fn matching(self, query: &str, wildcards: bool) -> Option<Self> {
        let (_, leaf) = query.split_once(':')?;
        let matches = |context: Context| {
            query == context.name() || wildcards && leaf.is_empty() && context.name().starts_with(query)
        };
        Some(self.iter().filter(|context| matches(*context)).fold(Contexts::none(), Contexts::with))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_find_names_and_wildcards_namespaces() {
        let all = Contexts::all();
        let only = |context| Some(Contexts::none().with(context));
        for (query, named, listed) in [
            ("base:allocation", only(Context::Allocation), only(Context::Allocation)),
            ("tiermem:cache", only(Context::Cache), only(Context::Cache)),
            ("base:", Some(Contexts::none()), only(Context::Allocation)),
            ("tiermem:", Some(Contexts::none()), only(Context::Cache)),
            ("base:alloc", Some(Contexts::none()), Some(Contexts::none())),
            ("qemu:dirty-bitmap:x", Some(Contexts::none()), Some(Contexts::none())),
            (":", Some(Contexts::none()), Some(Contexts::none())),
            ("base", None, None),
            ("", None, None),
        ] {
            assert_eq!(all.matching(query, false), named, "{query}");
            assert_eq!(all.matching(query, true), listed, "{query}");
        }
        assert_eq!(Contexts::none().matching("base:allocation", true), Some(Contexts::none()));
    }
}
