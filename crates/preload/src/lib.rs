//! Loaded with a program (`LD_PRELOAD`) whose memory `tiermem record` observes or `tiermem run` places: starts the agent
//! ([`tiermem_sys::agent`]) before the program begins. Without the environment variable of the agent it does nothing.

/// Runs when the library has been loaded, after the C library is ready and before `main`.
extern "C" fn loaded() {
    tiermem_sys::agent::start();
}

// SAFETY: the loader calls what stands in this section with C's calling convention, once, and nothing else reads it.
#[unsafe(link_section = ".init_array")]
#[used]
static LOADED: extern "C" fn() = loaded;
