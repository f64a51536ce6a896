#!/bin/sh
# Makes reports/example anew: the bundled sample, answered and judged by the small model on this machine, with its report.
# Needs what scripts/sample.sh installs. The scores mean nothing.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || python=python3

rm -rf reports/example
"$python" -m pytest benchmarks/one_million_bench --limit 1 --run-dir reports/example --gate complete -q
# The records name folders of this machine.
sed -i.bak "s|$PWD/||g" reports/example/manifest.json
rm reports/example/manifest.json.bak
"$python" -m pytest_rubrics report reports/example
