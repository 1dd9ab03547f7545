#!/usr/bin/env bash
# Installs the build into a new folder, moves that folder, then configures, builds and runs a project outside the tree
# on it. Nothing that is installed may name a folder of the build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

cmake --install "$TRIREME_BUILD_DIR" --prefix "$place/first" >"$place/log" || { cat "$place/log"; exit 1; }
mv "$place/first" "$place/installed"
source=$(cd "$here/../.." && pwd)
for folder in "$place/first" "$TRIREME_BUILD_DIR" "$source/src"; do
  if grep -rlF --exclude-dir=libtorch -- "$folder" "$place/installed"; then
    echo "these installed files name the folder $folder"
    exit 1
  fi
done
headers=$(find "$place/installed/include" -name '*.h' | wc -l)
if ((headers > 150)) || find "$place/installed/include" -name '*test*' | grep .; then
  echo "$headers headers are installed: more than the public ones"
  exit 1
fi

cmake -S "$here/outside" -B "$place/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_PREFIX_PATH=$place/installed" "-DEXAMPLES=$source/examples" >"$place/log" || { cat "$place/log"; exit 1; }
cmake --build "$place/build" >"$place/log" || { cat "$place/log"; exit 1; }

cd "$place"
env -u RANK -u WORLD_SIZE "$place/build/outside" | tee "$place/said"
grep -q 'rank 0 of 1: 1 2 3 4' "$place/said"
if [[ -e $place/installed/lib/libtrireme_torch.so ]]; then
  OMP_NUM_THREADS=1 env -u RANK -u WORLD_SIZE "$place/build/outside_loop" | tee "$place/said"
  grep -q 'the loop has learnt' "$place/said"
  env -u RANK -u WORLD_SIZE "$place/build/outside_resume" | tee "$place/said"
  grep -q 'the same bits' "$place/said"
  env -u RANK -u WORLD_SIZE "$place/build/outside_own_model" | tee "$place/said"
  grep -q 'step 100  loss 0.0' "$place/said"
fi
"$place/installed/bin/trireme" --help >/dev/null
