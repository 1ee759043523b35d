//! The only room with raw system calls.
