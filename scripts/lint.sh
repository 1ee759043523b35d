#!/bin/sh
# Formatting, clippy, licences and advisories. A tool that is not installed is passed over, and that is said:
# distributions package cargo without clippy.
set -eu
cd "$(dirname "$0")/.."

if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --all --check
else
    echo "lint: formatting is not checked, as there is no rustfmt here"
fi

if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
else
    echo "lint: clippy is not run, as it does not come with this cargo ($(cargo --version))"
fi

# Licences are also held by a test (tests/tests/licences.rs); advisories only here.
if cargo deny --version >/dev/null 2>&1; then
    cargo deny --log-level warn check
else
    echo "lint: advisories are not checked, as there is no cargo-deny here (cargo install cargo-deny)"
fi
