#!/usr/bin/env bash
# Every collective under mpirun: (a) meeting over MPI and moving data by shared memory, (b) all data over MPI as well.
set -uo pipefail
bin=${TRIREME_BIN_DIR:?run by ctest}
if ! command -v mpirun >/dev/null; then
  echo "skipped: no mpirun here (Debian: apt-get install openmpi-bin)"
  exit 0
fi
if [[ ! -e $bin/../lib/libtrireme_mpi.so ]]; then
  echo "skipped: this build has no MPI (TRIREME_MPI is off, or there are no MPI headers)"
  exit 0
fi

# RANKS PROGRAM …, with the variables of the caller
under_mpirun() {
  timeout -k 5 100 mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$@" </dev/null 2>&1
}

failures=0
# WHAT TEXT: $output has the text, $? was 0
expect() {
  local status=$?
  if [[ $status -eq 0 && $output == *"$2"* ]]; then
    echo "passed: $1"
  else
    echo "FAILED: $1: exit code $status, and no \"$2\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

for ranks in 2 3 4; do
  output=$(under_mpirun "$ranks" "$bin/collectives_program" short)
  expect "$ranks ranks, shared memory" "all right: $ranks ranks over shared memory"
  output=$(TRIREME_TRANSPORT=mpi under_mpirun "$ranks" "$bin/collectives_program" short)
  expect "$ranks ranks, mpi" "all right: $ranks ranks over mpi"
done

for ranks in 3 4; do
  output=$(timeout -k 5 100 "$bin/trireme" launch --nproc-per-node "$ranks" -- "$bin/checksum_program" 2>&1)
  expect "$ranks ranks, without mpi" "checksum "
  checksum=$(grep -o 'checksum [0-9a-f]*' <<<"$output")
  for transport in mpi tcp; do
    output=$(TRIREME_TRANSPORT=$transport under_mpirun "$ranks" "$bin/checksum_program")
    expect "$ranks ranks, the same bits over $transport" "$checksum of $ranks ranks over $transport"
  done
done

# Ranks that another launcher started cannot meet over MPI: they are told so, and do not run alone side by side.
output=$(TRIREME_TRANSPORT=mpi timeout -k 5 60 "$bin/trireme" launch --nproc-per-node 2 -- "$bin/checksum_program" 2>&1)
status=$?
[[ $status -ne 0 ]]
expect "the mpi transport without mpirun" "mpirun"

exit $((failures > 0))
