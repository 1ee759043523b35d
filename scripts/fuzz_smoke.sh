#!/bin/sh
# Fuzzes the parser of requests, the trace readers, hashes, the flash tier's region, NBD, texts of perf and the journal of a
# cache device for FUZZ_SECONDS (60) each, starting from the corpus in the repository.
set -eu
cd "$(dirname "$0")/../fuzz"

skip() {
    echo "fuzz-smoke: skipped, $1"
    exit 0
}
cargo +nightly --version >/dev/null 2>&1 || skip "as there is no nightly toolchain here (rustup toolchain install nightly)"
cargo +nightly fuzz --version >/dev/null 2>&1 || skip "as there is no cargo-fuzz here (cargo install cargo-fuzz)"

# New inputs go to a folder of their own: the corpus holds only what someone chose to keep.
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
for target in resp trace hash flash snapshot nbd block_journal perf_mem; do
    mkdir "$found/$target"
    cargo +nightly fuzz run "$target" "$found/$target" "corpus/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-60}" -max_len=8192 -verbosity=0
done
