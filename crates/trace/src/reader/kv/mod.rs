//! Traces of caches and key-value stores.

pub(super) mod adaptsize;
pub(super) mod cachelib;
pub(super) mod keys;
pub(super) mod libcachesim_csv;
pub(super) mod memcached_watch;
pub(super) mod oracle_general;
pub(super) mod redis_commands;
pub(super) mod redis_monitor;
pub(super) mod scarab;
pub(super) mod twitter;
pub(super) mod twitter_text;
