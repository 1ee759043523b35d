//! Simulators that drive the cores of policy over a trace.
#![forbid(unsafe_code)]
