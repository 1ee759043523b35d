#!/bin/sh
# Fuzzes every target of fuzz/ for FUZZ_SECONDS (60), starting from the corpus in the repository, as many targets at once as there
# are cores. With the name of a target it fuzzes that one. A tool that is missing is a failure. With --check it runs nothing, needs no
# tool, and says whether each target is built and has inputs to begin with.
#
# FUZZ_SANITIZER is `none` unless it is set: what is fuzzed is safe Rust, so that its findings are panics, failed assertions and
# overflows, which need no sanitizer. `address` also watches the unsafe code of other people's crates, and takes twice as long to build.
set -eu
cd "$(dirname "$0")/../fuzz"

seconds=${FUZZ_SECONDS:-60}
# The same for building and for running, or each target would be built again.
flags="--sanitizer ${FUZZ_SANITIZER:-none} --codegen-units 16"

fail() {
    echo "fuzz-smoke: $*" >&2
    exit 1
}

# What a target says is shown if it finds something.
fuzz() {
    # New inputs go to a folder of their own: the corpus holds only what someone chose to keep.
    found=$(mktemp -d)
    trap 'rm -rf "$found"' EXIT
    mkdir "$found/inputs"
    # shellcheck disable=SC2086 # The flags are meant to be split.
    if cargo +nightly fuzz run $flags "$1" "$found/inputs" "corpus/$1" -- -max_total_time="$seconds" -max_len=8192 \
        -print_final_stats=1 >"$found/log" 2>&1; then
        echo "fuzz-smoke: $1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$found/log") inputs in $seconds s"
    else
        tail -n 200 "$found/log" >&2
        fail "$1 has failed"
    fi
}

for file in fuzz_targets/*.rs; do
    name=$(basename "$file" .rs)
    grep -qx "name = \"$name\"" Cargo.toml || fail "fuzz/$file is not built: fuzz/Cargo.toml has no [[bin]] for it"
    [ -n "$(ls "corpus/$name" 2>/dev/null)" ] || fail "there is no fuzz/corpus/$name: a target needs an input or more to begin with"
done
[ "${1:-}" != --check ] || exit 0

cargo +nightly --version >/dev/null 2>&1 || fail "there is no nightly Rust here: rustup toolchain install nightly"
cargo +nightly fuzz --version >/dev/null 2>&1 || fail "there is no cargo-fuzz here: cargo install --locked cargo-fuzz"

if [ $# -gt 0 ]; then
    fuzz "$1"
    exit
fi

# Fuzzed are the versions of dependencies that the programs are built with.
cp ../Cargo.lock Cargo.lock
# shellcheck disable=SC2086
cargo +nightly fuzz build $flags
cargo +nightly fuzz list | FUZZ_SECONDS=$seconds xargs -P "$(nproc)" -n 1 ../scripts/fuzz_smoke.sh
