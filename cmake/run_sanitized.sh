#!/usr/bin/env bash
# Builds the preset asan or tsan, and runs the tests that have everything in one process, where a sanitizer sees it all:
# cmake/run_sanitized.sh PRESET [ctest args…]
set -euo pipefail
preset=$1
shift
cd "$(dirname "$0")/.."
build=build/$preset
mkdir -p "$build"

exec 9>"$build/.lock"
flock 9
if [[ ! -f $build/build.ninja ]]; then
  cmake --preset "$preset" >"$build/configure.log" 2>&1 9>&- || { cat "$build/configure.log"; exit 1; }
fi
ninja -C "$build" --quiet -j "${TRIREME_JOBS:-$(nproc)}" checks 9>&-

# ThreadSanitizer cannot place its shadow memory under some settings of address-space randomisation.
run=()
if [[ $preset == tsan ]] && setarch -R true 2>/dev/null; then run=(setarch -R); fi

export TRIREME_SANITIZED=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/cmake/tsan_suppressions.txt}
"${run[@]}" ctest --test-dir "$build" --no-tests=error --output-on-failure -j "${TRIREME_TEST_JOBS:-2}" \
  -L '^(unit|sanitize)$' -LE '^slow$' "$@" 9>&-
