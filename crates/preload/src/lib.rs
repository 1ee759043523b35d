//! Preloaded library (`LD_PRELOAD`) of a program that `tiermem record` observes or `tiermem run` places: it starts the
//! agent ([`tiermem_sys::agent`]) before the program begins. Without the agent's environment variable it does nothing.

/// Runs when the library has been loaded, after the C library is ready and before `main`.
extern "C" fn loaded() {
    tiermem_sys::agent::start();
}

// SAFETY: the loader calls the function in this section with C's calling convention, once, and nothing else reads it.
#[unsafe(link_section = ".init_array")]
#[used]
static LOADED: extern "C" fn() = loaded;
