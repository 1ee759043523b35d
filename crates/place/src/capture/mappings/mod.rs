//! Mappings of a program: read from the kernel and told by it, who made them, and which belong together as regions with names.

pub(super) mod mapping_news;
pub mod maps;
pub(super) mod naming;
pub(super) mod origins;
pub(crate) mod regions;
