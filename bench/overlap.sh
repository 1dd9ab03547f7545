#!/usr/bin/env bash
# Runs bench_overlap on two hosts (network namespaces) with 1 Gbit/s between them: bench/overlap.sh [BUILD] [MIB] [REPEATS]
# Needs root. At least 80 % of the communication should be hidden.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
mib=${2:-8}
repeats=${3:-100}
program=$(realpath "$build/bin/bench_overlap")
rate=${TRIREME_OVERLAP_RATE:-1gbit}

if [[ $(id -u) -ne 0 ]]; then
  echo "skipped: network namespaces need root"
  exit 0
fi
a=trireme-overlap-$$-a
b=trireme-overlap-$$-b
clean_up() {
  for host in "$a" "$b"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "$host" 2>/dev/null || true
  done
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

ip netns add "$a"
ip netns add "$b"
ip link add cable netns "$a" type veth peer name cable netns "$b"
number=1
for host in "$a" "$b"; do
  ip -n "$host" addr add "10.77.0.$number/24" dev cable
  ip -n "$host" link set cable up
  ip -n "$host" link set lo up
  if ! tc -n "$host" qdisc add dev cable root tbf rate "$rate" burst 256kb latency 50ms; then
    echo "skipped: this kernel cannot shape traffic (no sch_tbf)"
    exit 0
  fi
  number=$((number + 1))
done

rank=0
pids=()
for host in "$a" "$b"; do
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29171 \
    TRIREME_TOKEN=$a timeout -k 5 300 ip netns exec "$host" "$program" "$mib" "$repeats" &
  pids+=($!)
  rank=$((rank + 1))
done
status=0
for pid in "${pids[@]}"; do
  wait "$pid" || status=$?
done
exit $status
