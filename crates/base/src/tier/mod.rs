//! One description of tiers, for every engine, simulator and planner. `live/src/config.rs` reads the file that holds it.
//!
//! A tier is described once, in a `[[tier]]` table of a TOML file or as `kind:place=size` on the command line, and each command
//! takes from it what it needs: a store the capacity and the place, a simulator the capacity and the curve, a planner the
//! price. [`TierSpec`] is that description, already free of contradictions: what cannot be said together has no form in it.
//!
//! ```toml
//! [[tier]]
//! name = "cxl"                # the kind's name unless given
//! kind = "emulated"           # dram | numa | dax | emulated | compressed | flash | remote
//! capacity = "2GiB"           # what a simulator reads may be a percentage of the working set: "10%"
//! curve = "a1000-cxl"         # or read_latency, write_latency and bandwidth; else what the kind is usually taken to be
//! bandwidth_share = 1.0       # the part of the device's bandwidth that this process is given
//! price_per_gb = 2.4375       # of 10^9 bytes; or price_each, for all of the tier
//! per = "once"                # once | month | hour
//! currency = "USD"
//! date = "2025-11"
//! source = "the vendor's offer"
//! ```
//!
//! | kind | place | bytes lie in | without a curve it is taken to be |
//! | --- | --- | --- | --- |
//! | `dram` | | the machine's own memory | `local-dram` |
//! | `numa` | `node = 1` | the memory of one NUMA node | `numa-2018` |
//! | `dax` | `path` | a mapped device or file that outlives the process | `numa-2018` |
//! | `emulated` | | the machine's own memory; the curve is charged | `a1000-cxl` |
//! | `compressed` | | the machine's own memory, compressed | nothing: say it |
//! | `flash` | `path` | a file or block device | `nvme-flash` |
//! | `remote` | | another machine's memory or store | `network-store` |
//!
//! The largest size of a tier, and whether it needs a place, depend on the engine that serves it: engines check that themselves,
//! and refuse kinds that they do not serve ([`TierSpec::served_by`]).
//!
//! Money is [`Price`] and nothing else; time is [`crate::latency_curve`] and nothing else.

mod capacity;
mod error;
mod flag;
mod kind;
mod list;
mod price;
mod spec;
#[cfg(test)]
mod tests;
mod toml_table;

pub use capacity::Capacity;
pub use error::TierError;
pub use kind::TierKind;
pub use list::check_list;
pub use price::{Amount, DRAM_USD_PER_GB, FLASH_USD_PER_GB, HOURS_PER_MONTH, Per, Price};
pub use spec::{FlashOptions, Speed, TierLocation, TierSpec};
