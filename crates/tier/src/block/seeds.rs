//! The seeds that a test in virtual time runs with.

/// Runs a test with each seed below 200, or below what `TIERMEM_SEEDS` says; or with the one that `TIERMEM_SEED` names. The seed of a run
/// that fails is printed.
///
/// # Panics
/// As `run` does, and when a variable is no number.
pub fn for_each_seed(run: impl Fn(u64)) {
    let number =
        |name| std::env::var(name).ok().map(|it| it.parse().unwrap_or_else(|_| panic!("{name} is a number")));
    let seeds = match number("TIERMEM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIERMEM_SEEDS").unwrap_or(200),
    };
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(|| run(seed));
        if let Err(cause) = std::panic::catch_unwind(run) {
            eprintln!("this was seed {seed}: TIERMEM_SEED={seed} runs it alone");
            std::panic::resume_unwind(cause);
        }
    }
}
