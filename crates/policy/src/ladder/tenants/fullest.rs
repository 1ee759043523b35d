//! The fullest tenants, by bytes relative to their shares: a tournament tree of all tenants.

/// Nodes that a search for the next ones keeps in hand.
const FRONTIER: usize = 64;

/// Tenants by how full they are. Changing one takes O(log n), asking for the fullest O(log n), and nothing is allocated but when
/// tenants come.
#[derive(Clone, Debug, Default)]
pub struct Fullest {
    /// A binary tree of maxima, its root at 1 and the tenants from `leaves` on.
    nodes: Vec<f32>,
    leaves: usize,
}

/// The fullness of a tenant that has nothing: it is never asked to give.
const EMPTY: f32 = -1.0;

impl Fullest {
    /// Sets how full a tenant is; `None`: it has nothing.
    pub fn set(&mut self, tenant: usize, fullness: Option<f32>) {
        if tenant >= self.leaves {
            self.grow(tenant + 1);
        }
        let mut node = self.leaves + tenant;
        self.nodes[node] = fullness.unwrap_or(EMPTY);
        while node > 1 {
            node /= 2;
            let fuller = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
            if self.nodes[node] == fuller {
                return;
            }
            self.nodes[node] = fuller;
        }
    }

    fn grow(&mut self, tenants: usize) {
        let leaves = tenants.next_power_of_two();
        let mut nodes = vec![EMPTY; 2 * leaves];
        nodes[leaves..leaves + self.leaves].copy_from_slice(&self.nodes[self.leaves..]);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        (self.nodes, self.leaves) = (nodes, leaves);
    }

    /// The first of [`Self::first`].
    pub fn top(&self) -> Option<usize> {
        let mut node = 1;
        self.nodes.get(node).filter(|&&fullness| fullness >= 0.0)?;
        while node < self.leaves {
            node = 2 * node + usize::from(self.nodes[2 * node + 1] > self.nodes[2 * node]);
        }
        Some(node - self.leaves)
    }

    /// The fullest tenants, fullest first and among equals the lowest number, as many as `first` has room for; how many there are.
    pub fn first(&self, first: &mut [usize]) -> usize {
        let mut frontier = [(EMPTY, 0usize); FRONTIER];
        let mut open = 0;
        if let Some(&root) = self.nodes.get(1) {
            frontier[0] = (root, 1);
            open = 1;
        }
        let mut found = 0;
        while open > 0 && found < first.len() {
            let goes_before = |at: usize, other: usize| {
                let ((at, node), (other, beside)) = (frontier[at], frontier[other]);
                at > other || (at == other && self.leftmost(node) < self.leftmost(beside))
            };
            let fullest = (1..open).fold(0, |best, at| if goes_before(at, best) { at } else { best });
            let (fullness, node) = frontier[fullest];
            open -= 1;
            frontier[fullest] = frontier[open];
            if fullness < 0.0 {
                break;
            }
            if node >= self.leaves {
                first[found] = node - self.leaves;
                found += 1;
                continue;
            }
            for child in [2 * node, 2 * node + 1] {
                if open < FRONTIER && self.nodes[child] >= 0.0 {
                    frontier[open] = (self.nodes[child], child);
                    open += 1;
                }
            }
        }
        found
    }

    /// The first leaf below a node.
    fn leftmost(&self, mut node: usize) -> usize {
        while node < self.leaves {
            node *= 2;
        }
        node
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<f32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Equally full tenants are in the order of their numbers, whichever way is asked.
        #[test]
        fn equals_sorting(changes in prop::collection::vec((0usize..300, prop::option::of(0u16..50)), 0..400)) {
            let mut fullest = Fullest::default();
            let mut model = vec![None; 300];
            for (tenant, fullness) in changes {
                let fullness = fullness.map(f32::from);
                fullest.set(tenant, fullness);
                model[tenant] = fullness;
                let mut first = [usize::MAX; 4];
                let found = fullest.first(&mut first);
                let mut sorted: Vec<usize> = (0..300).filter(|&tenant| model[tenant].is_some()).collect();
                sorted.sort_by(|&a, &b| model[b].partial_cmp(&model[a]).unwrap().then(a.cmp(&b)));
                prop_assert_eq!(&first[..found], &sorted[..sorted.len().min(4)]);
                prop_assert_eq!(fullest.top(), sorted.first().copied());
            }
        }
    }
}
