//! NUMA residency of the observed memory: the nodes of some pages of each range, as a sample of all of it.

use std::fs;

use tiermem_base::Rng;
use tiermem_sys::numa::{self, Topology};
use tiermem_trace::recording::{JournalSample, Level, NODE_UNKNOWN};

use super::observer::Piece;

const PAGE_BYTES: u64 = 4096;
/// Pages of a stretch that are asked for.
const ASKED: u64 = 8;

/// What was seen, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// The piece of memory.
    pub piece: Piece,
    /// Whether on the program's own node.
    pub level: Level,
    /// The node.
    pub node: u8,
}

impl Located {
    /// Somewhere.
    pub fn unknown(piece: Piece) -> Self {
        Located { piece, level: Level::Unknown, node: NODE_UNKNOWN }
    }

    /// The sample for a recording.
    pub fn sample(self) -> JournalSample {
        let Located { piece: Piece { region, source, op, address, bytes, weight }, level, node } = self;
        JournalSample { region, address, bytes, weight, resident: bytes, source, op, level, node }
    }
}

/// Asks the kernel.
pub(super) struct Whereabouts {
    machine: Topology,
    addresses: Vec<u64>,
    nodes: Vec<i32>,
}

impl Whereabouts {
    /// `None` on machines with all memory on one node.
    pub fn new() -> Option<Self> {
        let machine = Topology::read();
        (machine.with_memory().len() > 1).then(|| Whereabouts {
            machine,
            addresses: Vec::new(),
            nodes: Vec::new(),
        })
    }

    /// Tells where what was seen in a slice lies now, in parts where it lies on several nodes. What belongs to the node on which
    /// the program ran last is local.
    pub fn locate(&mut self, pid: u32, pieces: &[Piece], each: &mut impl FnMut(Located)) {
        self.addresses.clear();
        for piece in pieces {
            self.addresses.extend(asked(piece));
        }
        self.nodes.clear();
        self.nodes.resize(self.addresses.len(), i32::MIN);
        let own = processor(pid).and_then(|cpu| self.machine.node_of_cpu(cpu));
        // Of a program that has ended nothing is known any more.
        let told = numa::nodes_of(pid, &self.addresses, &mut self.nodes).is_ok();
        let mut nodes = self.nodes.as_slice();
        for piece in pieces {
            let (of, rest) = nodes.split_at(asked(piece).count());
            nodes = rest;
            let mut known: Vec<u8> = of.iter().filter_map(|node| u8::try_from(*node).ok()).collect();
            if !told || known.is_empty() {
                each(Located::unknown(*piece));
                continue;
            }
            known.sort_unstable();
            for alike in known.chunk_by(|a, b| a == b) {
                let node = alike[0];
                let weight = piece.weight * alike.len() as f64 / known.len() as f64;
                let level = match own {
                    Some(own) if own == u32::from(node) => Level::Local,
                    Some(_) => Level::Remote,
                    None => Level::Unknown,
                };
                each(Located { piece: Piece { weight, ..*piece }, level, node });
            }
        }
    }
}

/// The pages that are asked for: one in each part of a stretch, wherever in it, as pages may be interleaved between nodes.
fn asked(piece: &Piece) -> impl Iterator<Item = u64> + use<> {
    let (first, pages) = (piece.address / PAGE_BYTES, piece.bytes.div_ceil(PAGE_BYTES).max(1));
    let count = pages.min(ASKED);
    let mut rng = Rng::seeded(first);
    (0..count).map(move |at| {
        let (from, to) = (at * pages / count, (at + 1) * pages / count);
        (first + from + rng.below(to - from)) * PAGE_BYTES
    })
}

/// The processor on which a process ran last.
fn processor(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything; the 37th field behind it is the processor.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiermem_base::Op;

    fn piece(address: u64, bytes: u64) -> Piece {
        Piece { region: 0, source: 0, op: Op::Load, address, bytes, weight: 1.0 }
    }

    #[test]
    fn pages_are_spread_over_a_stretch_and_lie_in_it() {
        for bytes in [1, 4096, 3 * 4096, 64 << 10, 4 << 20, (4 << 20) + 4096] {
            let pages: Vec<u64> = asked(&piece(40960, bytes)).collect();
            assert!((1..=8).contains(&pages.len()), "{bytes}");
            assert!(pages.iter().all(|page| (40960..40960 + bytes).contains(page)), "{bytes} {pages:?}");
            assert!(pages.is_sorted_by(|a, b| a < b), "{bytes} {pages:?}");
            let odd = pages.iter().filter(|page| **page / 4096 % 2 == 1).count();
            assert!(pages.len() < 8 || (1..8).contains(&odd), "{bytes} {pages:?}");
        }
    }

    #[test]
    fn a_process_runs_on_a_processor_that_there_is() {
        let cpu = processor(std::process::id()).unwrap();
        assert!(tiermem_sys::affinity::thread_cores().is_ok_and(|cores| cores.contains(&cpu)));
        assert_eq!(processor(u32::MAX), None);
    }

    #[test]
    fn what_was_seen_is_as_much_as_before() {
        let memory = vec![1_u8; 1 << 20];
        let pieces = [piece(memory.as_ptr().addr() as u64, 1 << 20), piece(4096, 4096)];
        let mut whereabouts =
            Whereabouts { machine: Topology::read(), addresses: Vec::new(), nodes: Vec::new() };
        let mut found = Vec::new();
        whereabouts.locate(std::process::id(), &pieces, &mut |it| found.push(it));
        let weight: f64 = found.iter().map(|it| it.piece.weight).sum();
        assert!((weight - 2.0).abs() < 1e-9, "{found:?}");
        // Nothing is mapped there.
        assert_eq!(found.last().map(|it| it.level), Some(Level::Unknown));
    }
}
