//! Next uses: when each key or frame of a trace is used next. Belady's bounds read the future from them.

/// There is no next use.
pub(crate) const NEVER: u32 = u32::MAX;

/// For each of `count` accesses the number of the next one to the same thing, and for each of `things` the number of its first;
/// 4 bytes each. The accesses come from the last to the first, each as what it is to and whether it deletes: a deletion is no use,
/// and what is deleted before its next use has none.
///
/// # Panics
/// When there are 2^32 - 1 accesses or more, other than `count`, or one to something beyond `things`.
pub(crate) fn next_uses(
    (count, things): (usize, usize),
    backward: impl Iterator<Item = (u32, bool)>,
) -> (Vec<u32>, Vec<u32>) {
    assert!(count < NEVER as usize, "accesses have numbers of 32 bits");
    let mut next = vec![NEVER; count];
    let mut coming = vec![NEVER; things];
    let mut at = count;
    for (thing, deletes) in backward {
        at -= 1;
        let coming = &mut coming[thing as usize];
        next[at] = *coming;
        *coming = if deletes { NEVER } else { at as u32 };
    }
    assert_eq!(at, 0, "as many accesses as were announced");
    (next, coming)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_ends_what_is_waited_for() {
        let accesses = [(0, false), (1, false), (0, false), (1, true), (1, false), (0, true)];
        let (next, first) = next_uses((accesses.len(), 3), accesses.into_iter().rev());
        assert_eq!(next, [2, NEVER, NEVER, 4, NEVER, NEVER]);
        assert_eq!(first, [0, 1, NEVER]);
        assert_eq!(next_uses((0, 0), std::iter::empty()), (vec![], vec![]));
    }
}
