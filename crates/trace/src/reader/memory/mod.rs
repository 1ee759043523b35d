//! Traces of memory references. The key is the address.

pub(in crate::reader) mod lackey;
pub(super) mod mqsim_cxl;
pub(super) mod perf_faults;
pub(super) mod spec;
