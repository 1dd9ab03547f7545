#!/usr/bin/env bash
# How long a build takes from nothing: a fresh clone of this tree, without ccache. Downloads are not counted: packages and
# pinned parts must be here already (any ./trireme train brings them).
#
#   bench/build.sh [--tests] [FOLDER]     --tests also times `./trireme test`; FOLDER: where to clone to (default: a new one)
#
# Prints a table in Markdown: wall-clock and CPU seconds of each call, and the compiler calls that it made.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
tests=
[[ ${1-} != --tests ]] || { tests=1; shift; }
clone=${1:-$(mktemp -d)/trireme}
git clone --quiet "$root" "$clone"
cd "$clone"
export CCACHE_DISABLE=1
log=build/release/.ninja_log

steps() { [[ ! -f $log ]] || grep -c '\.o	' "$log" || true; }

row() {  # WHAT COMMAND…
  local what=$1 before after seconds
  shift
  before=$(steps)
  seconds=$({ TIMEFORMAT='%R %U %S'; time "$@" >"$clone.out" 2>"$clone.err"; } 2>&1) || { cat "$clone.err" >&2; exit 1; }
  after=$(steps)
  awk -v what="$what" -v steps="$((${after:-0} - ${before:-0}))" \
    '{ printf "| %s | %d | %d | %d |\n", what, $1, $2 + $3, steps }' <<<"$seconds"
}

echo "| what | seconds | CPU seconds | compiler calls |"
echo "| --- | ---: | ---: | ---: |"
row '`./trireme simulate`, from nothing' ./trireme simulate --model gpt2-124m
row '`./trireme train`, to the first step' ./trireme train --train.steps=1
row 'nothing to build' ./trireme --help
echo "// measured by bench/build.sh" >>src/trireme/train/trainer.cpp
row 'one edit in `train/`, to the first step' ./trireme train --train.steps=1
echo "// measured by bench/build.sh" >>src/trireme/base/error.h
row 'one edit of the header that all include' ./trireme train --train.steps=1
git checkout --quiet src
[[ -z $tests ]] || row '`./trireme test`' ./trireme test

echo
echo "the longest compiler calls, in seconds:"
awk -F'\t' '/\.o\t/ { printf "%6.1f  %s\n", ($2 - $1) / 1000, $4 }' "$log" | sort -rn | head -n 8 |
  sed -E 's#CMakeFiles/##; s#\.dir/(Unity/unity_)?#: #; s#_cxx\.cxx\.o##'
