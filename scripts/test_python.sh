#!/bin/sh
# Builds the Python package as a developer would and checks it: lints, types, stubs, tests. It has an environment of its
# own in target/python, apart from whatever is installed here. Arguments go to pytest.
set -eu
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-$PWD/target}
environment=$target/python
wanted=python/requirements-test.txt
python_check='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))'

find_python() {
    for name in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
        if "$name" -c "$python_check" >/dev/null 2>&1; then
            echo "$name"
            return
        fi
    done
}

if ! cmp -s "$wanted" "$environment/made-from"; then
    python=$(find_python)
    if [ -z "$python" ]; then
        echo "python: the package is not tested, as there is no Python 3.10 or newer with venv here"
        exit 0
    fi
    echo "Installing what the package's tests need into $environment"
    rm -rf "$environment"
    "$python" -m venv "$environment"
    "$environment/bin/python" -m pip install -q --disable-pip-version-check -r "$wanted"
    cp "$wanted" "$environment/made-from"
fi

PATH=$environment/bin:$PATH
VIRTUAL_ENV=$environment
export PATH VIRTUAL_ENV
# The command, whose figures the tests compare with, and the module; both unoptimised, which is quick to build.
cargo build --quiet --locked -p tiermem-cli
cd python
maturin develop --quiet --locked --profile dev
ruff check --quiet .
ruff format --quiet --check .
mypy tiermem
python -m mypy.stubtest tiermem._native
TIERMEM="$target/debug/tiermem" python -m pytest "$@"
