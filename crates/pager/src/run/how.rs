//! Ways of paging a program.

use std::fmt;

/// By what a program is paged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the kernel alone: a limit and swap.
    Swap,
    /// By the kernel, which is told what leaves and what comes.
    Kernel,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskedHow {
    /// [`How::Kernel`] where that can be had, else [`How::Swap`].
    #[default]
    Auto,
    /// [`How::Swap`].
    Swap,
    /// [`How::Kernel`].
    Kernel,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            How::Swap => "swap",
            How::Kernel => "kernel",
        })
    }
}
