#!/bin/sh
# Formatting, clippy, lists of mutations, fuzz targets, licences and advisories. A tool that is not installed is passed over, and that is
# said: distributions package cargo without clippy. In CI (CI=1) nothing may be passed over.
set -eu
cd "$(dirname "$0")/.."

# Says what is not checked and what would help; in CI that is a failure.
skip() {
    echo "lint: $1" >&2
    if [ -n "${CI:-}" ]; then exit 1; fi
}

if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --all --check
else
    skip "formatting is not checked, as there is no rustfmt here (rustup component add rustfmt)"
fi

if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
else
    skip "clippy is not run, as it does not come with this cargo, $(cargo --version) (rustup component add clippy)"
fi

# A list whose changes can no longer be made would test nothing, and hours would pass before anybody saw it.
if python3 -c 'import tomllib' 2>/dev/null; then
    python3 scripts/mutations.py --check scripts/mutations/*.toml
else
    skip "lists of mutations are not checked, as there is no Python 3.11 here"
fi

# Fuzzing itself is the last that CI does: what it would lack is said now.
scripts/fuzz_smoke.sh --check

# Licences are also held by a test (tests/tests/licences.rs). Advisories are kept by others and come over the
# network, so that without one the rest can still be checked.
if cargo deny --version >/dev/null 2>&1; then
    cargo deny --log-level error check licenses bans sources
    if cargo deny --log-level off fetch db; then
        cargo deny --log-level error check --disable-fetch advisories
    else
        # Not a matter of this machine's tools: the network may not reach it, also in CI.
        echo "lint: advisories are not checked, as their database cannot be fetched" >&2
    fi
else
    skip "licences, sources and advisories are not checked, as there is no cargo-deny here (cargo install --locked cargo-deny)"
fi
