#!/bin/sh
# Installs what this machine lacks, and says nothing when it lacks nothing.
#
#   scripts/bootstrap.sh run     to build and use tiermem: a C compiler, cargo, redis-cli
#   scripts/bootstrap.sh test    to test it also: rustfmt and clippy, Redis's tools, Python with pytest, redis-py
#                                and moto, twemproxy, fio, qemu-utils, libnbd's tools, nbdkit; Maven where there is a JDK;
#                                a nightly Rust and cargo-fuzz for the fuzz targets, cargo-deny for licences and advisories
#
# Packages are installed with apt where there is apt; elsewhere the script says what is needed and stops. With
# CI=1 it also installs Chromium and Prometheus, which are large: without them the tests of the live page and of the dashboard are skipped.
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
rust_min=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
python_check='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))'

say() { printf '%s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Whether version $1 is at least version $2.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# ---- Packages

packages=
need() { packages="$packages $1"; }

is_root() { [ "$(id -u)" -eq 0 ]; }
can_install() { have apt-get && { is_root || have sudo; }; }
as_root() { if is_root; then "$@"; else sudo "$@"; fi; }

install_packages() {
    [ -n "$packages" ] || return 0
    have apt-get || fail "Please install, in your system's words for it:$packages"
    can_install || fail "Only root can install packages, and there is no sudo here. As root, please run:
  apt-get update && apt-get install$packages"
    say "Installing:$packages"
    update_package_lists
    # shellcheck disable=SC2086 # The list is meant to be split.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages >/dev/null
}

lists_are_new=
update_package_lists() {
    if [ -z "$lists_are_new" ] && can_install; then
        as_root apt-get update -qq
        lists_are_new=yes
    fi
}

# The version of a package that apt would install; nothing where there is none.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: \([0-9][0-9.]*\).*/\1/p'; }

# ---- What it takes to build

want_compiler() {
    # The header shows that the C library's development files are there too.
    if ! have cc || ! echo '#include <stdlib.h>' | cc -E - >/dev/null 2>&1; then
        need gcc
        need libc6-dev
    fi
}

# How to come by a newer Rust.
hint="With rustup (https://rustup.rs) it is: rustup toolchain install stable"

want_cargo() {
    # Cargo asks its registry through TLS.
    if have apt-get && [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then need ca-certificates; fi
    if have rustup; then
        # rustup may be set up not to install by itself what rust-toolchain.toml asks for.
        cargo --version >/dev/null 2>&1 || rustup toolchain install stable --profile minimal
        if [ "$purpose" = test ] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
            rustup component add rustfmt clippy
        fi
    elif ! have cargo; then
        have apt-get || fail "cargo is missing: Rust $rust_min or newer is needed. $hint${packages:+
Please install also:$packages}"
        update_package_lists
        # Debian keeps a newer Rust beside its own, for web browsers.
        for name in cargo cargo-web; do
            version=$(candidate "$name")
            if [ "$name" = cargo ]; then
                # Until 1.75, Debian counted cargo's versions in another way than Rust's: as 0.x.
                case $version in 0.*) version=0 ;; esac
            fi
            if at_least "${version:-0}" "$rust_min"; then
                need "$name"
                [ "$purpose" = run ] || need "rustfmt${name#cargo}"
                return
            fi
        done
        fail "Rust $rust_min or newer is needed, and this system's packages have none. $hint"
    fi
}

check_cargo() {
    version=$(rustc --version 2>/dev/null | cut -d ' ' -f 2)
    at_least "${version:-0}" "$rust_min" && return
    if at_least "$(candidate cargo-web)" "$rust_min"; then hint="$hint
On this system also: apt-get install cargo-web"; fi
    fail "Rust $rust_min or newer is needed, and here is ${version:-none}. $hint"
}

want_redis_cli() {
    have redis-cli && return
    if can_install; then need redis-tools
    else say "There is no redis-cli here: install Redis's tools (Debian: redis-tools) to talk to the store from a terminal."
    fi
}

# ---- What it takes to test

want_browser() {
    if [ -n "${CI:-}" ] && can_install && ! have chromium; then need chromium; fi
}

# The tests of what stands around the store and the block cache are skipped without these.
want_companions() {
    can_install || return 0
    have nutcracker || need nutcracker
    have openssl || need openssl
    have valgrind || need valgrind
    # Clients and stores of the block cache.
    have fio || need fio
    { have nbdcopy && have nbdinfo; } || need libnbd-bin
    { have qemu-img && have qemu-io; } || need qemu-utils
    have nbdkit || need nbdkit
    if have javac && ! have mvn; then need maven; fi
}

# The test of the dashboard asks a Prometheus. Debian's package would also run it as a service, so it is only unpacked. It is large.
unpack_prometheus() {
    { [ -n "${CI:-}" ] && have apt-get && ! have prometheus && [ ! -x "$target/tools/prometheus" ]; } || return 0
    update_package_lists
    mkdir -p "$target/tools/prometheus.d"
    tools=$(cd "$target/tools" && pwd)
    (cd "$tools/prometheus.d" && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb &&
        ln -sf "$PWD/usr/bin/prometheus" ..) >/dev/null 2>&1 ||
        say "There is no Prometheus: the test of the dashboard is skipped."
}

# What fuzzing and the check of dependencies need beside the stable Rust. Only `make fuzz-smoke` and `make lint` ask for it, and
# they say what is missing: so a machine without rustup or without a registry can still run all other tests.
want_cargo_tools() {
    if have rustup && ! cargo +nightly --version >/dev/null 2>&1; then
        say "Installing a nightly Rust, which fuzzing needs"
        rustup toolchain install nightly --profile minimal || say "There is no nightly Rust: fuzzing needs it."
    fi
    if cargo +nightly --version >/dev/null 2>&1; then want_cargo_tool fuzz; fi
    want_cargo_tool deny
}

# A tool of cargo's own registry. It is built once in a machine's life and runs for seconds, so nothing is optimised.
want_cargo_tool() {
    cargo "$1" --version >/dev/null 2>&1 && return
    say "Installing cargo-$1"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=256 \
        CARGO_PROFILE_RELEASE_DEBUG=false cargo install --quiet --locked "cargo-$1" ||
        say "cargo-$1 could not be installed (cargo install --locked cargo-$1)."
}

# The first Python that is new enough and can make a virtual environment: one that stands first in PATH may not.
find_python() {
    for name in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do
        if "$name" -c "$python_check" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
}

want_python() {
    [ -n "$(find_python)" ] && return
    if have apt-get; then need python3-venv
    else fail "Python 3.9 or newer with its module venv is needed."
    fi
}

# pytest with workers, redis-py and a server of S3 in the versions that the tests were written for, apart from whatever is installed here.
make_environment() {
    environment=$target/e2e-python
    wanted=tests/e2e/requirements.txt
    if "$environment/bin/python" -c 'import pytest, xdist, redis, moto, flask' 2>/dev/null && cmp -s "$wanted" "$environment/made-from"; then
        return
    fi
    say "Installing pytest, redis-py and moto into $environment"
    python=$(find_python)
    [ -n "$python" ] || fail "Python 3.9 or newer with its module venv is needed."
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install -q --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$environment/made-from"
}

# The tests that compare with a real Redis start one. Debian's package of it would also run it as a service; its
# tools hold the same program under the name redis-check-rdb, which looks at the name that it is called by.
link_redis_server() {
    if ! have redis-server && have redis-check-rdb; then
        mkdir -p "$target/tools"
        ln -sf "$(command -v redis-check-rdb)" "$target/tools/redis-server"
    fi
}

purpose=${1:-}
case $purpose in
    run) ;;
    test) want_python; want_browser; want_companions ;;
    *) fail "usage: $0 run|test" ;;
esac
want_compiler
want_cargo
want_redis_cli
install_packages
check_cargo
if [ "$purpose" = test ]; then
    make_environment
    link_redis_server
    unpack_prometheus
    want_cargo_tools
fi
