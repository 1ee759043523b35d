//! Traces of block devices. The key is the byte offset where the format knows it, and the block's number where it
//! does not; the tenant is the volume.

pub(super) mod alibaba;
pub(super) mod arc;
pub(super) mod cloudphysics;
pub(super) mod lirs;
pub(super) mod mqsim;
pub(super) mod msr;
pub(super) mod msr_slice;
pub(super) mod systor;
pub(super) mod tencent;
pub(super) mod vscsi;

use tiermem_base::Op;

/// Bytes of the sector that device traces count in.
const SECTOR_BYTES: u64 = 512;
/// Reads and writes by their first letters.
const LETTERS: &[(&str, Op)] = &[("R", Op::Read), ("W", Op::Write)];
/// 0 reads, 1 writes.
const ONE_WRITES: &[(&str, Op)] = &[("0", Op::Read), ("1", Op::Write)];
/// 1 reads, 0 writes, as DiskSim has it.
const ONE_READS: &[(&str, Op)] = &[("1", Op::Read), ("0", Op::Write)];
