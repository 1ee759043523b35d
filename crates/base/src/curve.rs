//! Latency-bandwidth curves of memory devices.
