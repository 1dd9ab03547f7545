// The k-th largest magnitude is found by three counts of its bits, 11, 10 and 10 of them, each among what the bits
// before have left. Then tiles of 4,096 elements count what they give, their places follow by a sum over all tiles
// before, and each tile writes its own.
#include "trireme/compress/cuda/grid.cuh"
#include "trireme/compress/cuda/sparse_kernels.h"

namespace trireme::gpu {
namespace {

constexpr int kEach = 16;  // neighbours that a thread has in a tile
constexpr size_t kTile = kThreads * kEach;
constexpr size_t kReach = 65536;  // what 16 bits address
constexpr size_t kTilesOfReach = kReach / kTile;
constexpr int kBins = 2048;
constexpr int kScanThreads = 1024;
constexpr uint32_t kInfinity = 0x7f800000u;

/// A round of the search: which bits it counts.
struct Round {
  int shift, bits;
};
constexpr Round kRounds[] = {{20, 11}, {10, 10}, {0, 10}};

/// What a tile takes, and what comes before it.
struct TileCount {
  uint32_t larger, equal;
};

struct Scratch {
  uint32_t* bins;
  uint32_t* wanted;  ///< how many are still to be found among what the bits so far have left
  TileCount* tiles;  ///< of each tile; after the sum: of all before it; one more than there are tiles
};

size_t num_tiles(size_t count) { return (count + kTile - 1) / kTile; }

Scratch scratch_of(void* memory) {
  auto* const words = static_cast<uint32_t*>(memory);
  return {words, words + kBins, reinterpret_cast<TileCount*>(words + kBins + 2)};
}

__device__ uint32_t magnitude(float value) { return __float_as_uint(value) & 0x7fffffffu; }

__device__ uint32_t taken_before(const TileCount& before, uint32_t equal) {
  return before.larger + min(before.equal, equal);
}

__global__ void begin_search(SelectState* state, uint32_t* bins, uint32_t* wanted, uint32_t k) {
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) bins[bin] = 0;
  if (threadIdx.x == 0) {
    *state = {};
    *wanted = k;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_bits(const float* values, size_t count, const SelectState* state, uint32_t* bins, Round round) {
  __shared__ uint32_t own[kBins];
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) own[bin] = 0;
  __syncthreads();
  const uint32_t known = state->least >> (round.shift + round.bits);
  const uint32_t mask = (1u << round.bits) - 1;
  for (size_t i = first_index(); i < count; i += stride()) {
    const uint32_t bits = magnitude(values[i]);
    if (bits >> (round.shift + round.bits) == known) atomicAdd(&own[(bits >> round.shift) & mask], 1u);
  }
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
    if (own[bin] > 0) atomicAdd(&bins[bin], own[bin]);
  }
}

/// Finds the bin that holds the wanted one, counted from the largest, and clears the bins for the next round.
__global__ void __launch_bounds__(kScanThreads)
    choose_bin(SelectState* state, uint32_t* bins, uint32_t* wanted, Round round) {
  __shared__ uint32_t sums[kScanThreads];
  const uint32_t k = *wanted;
  // A thread has two bins, the largest first: bins 2047 − 2t and 2046 − 2t.
  const int upper = kBins - 1 - 2 * static_cast<int>(threadIdx.x);
  const uint32_t first = bins[upper], second = bins[upper - 1];
  sums[threadIdx.x] = first + second;
  __syncthreads();
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    const uint32_t other = static_cast<int>(threadIdx.x) >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  const uint32_t before = sums[threadIdx.x] - first - second;
  bins[upper] = bins[upper - 1] = 0;
  if (before < k && k <= before + first) {
    state->least |= static_cast<uint32_t>(upper) << round.shift;
    *wanted = k - before;
  } else if (before + first < k && k <= before + first + second) {
    state->least |= static_cast<uint32_t>(upper - 1) << round.shift;
    *wanted = k - before - first;
  }
}

__global__ void end_search(SelectState* state, const uint32_t* wanted) { state->equal = *wanted; }

__global__ void __launch_bounds__(kThreads)
    count_tiles(const float* values, size_t count, const SelectState* state, TileCount* tiles) {
  const size_t begin = blockIdx.x * kTile;
  const uint32_t least = state->least;
  uint32_t larger = 0, equal = 0;
  for (int i = 0; i < kEach; ++i) {
    const size_t at = begin + i * kThreads + threadIdx.x;
    if (at >= count) break;
    const uint32_t bits = magnitude(values[at]);
    larger += bits > least ? 1 : 0;
    equal += bits == least ? 1 : 0;
  }
  __shared__ uint32_t sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  __syncthreads();
  larger = __reduce_add_sync(0xffffffffu, larger);
  equal = __reduce_add_sync(0xffffffffu, equal);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&sums[0], larger);
    atomicAdd(&sums[1], equal);
  }
  __syncthreads();
  if (threadIdx.x == 0) tiles[blockIdx.x] = {sums[0], sums[1]};
}

/// Inclusive sums over the threads of a group, in place.
template <int kCount>
__device__ void scan(TileCount (&sums)[kCount]) {
  for (int distance = 1; distance < kCount; distance *= 2) {
    const bool has = static_cast<int>(threadIdx.x) >= distance;
    const TileCount other = has ? sums[threadIdx.x - distance] : TileCount{0, 0};
    __syncthreads();
    sums[threadIdx.x].larger += other.larger;
    sums[threadIdx.x].equal += other.equal;
    __syncthreads();
  }
}

/// One group goes over all tiles.
__global__ void __launch_bounds__(kScanThreads) sum_tiles(TileCount* tiles, size_t num_tiles) {
  __shared__ TileCount sums[kScanThreads];
  TileCount before{0, 0};
  for (size_t at = 0; at < num_tiles; at += kScanThreads) {
    const size_t own = at + threadIdx.x;
    const TileCount here = own < num_tiles ? tiles[own] : TileCount{0, 0};
    sums[threadIdx.x] = here;
    __syncthreads();
    scan(sums);
    const TileCount mine = sums[threadIdx.x], all = sums[kScanThreads - 1];
    if (own < num_tiles) {
      tiles[own] = {before.larger + mine.larger - here.larger, before.equal + mine.equal - here.equal};
    }
    before.larger += all.larger;
    before.equal += all.equal;
    __syncthreads();
  }
  if (threadIdx.x == 0) tiles[num_tiles] = before;
}

__device__ void store_halves(uint8_t* to, uint32_t word) {  // messages have even addresses only
  auto* const halves = reinterpret_cast<uint16_t*>(to);
  halves[0] = static_cast<uint16_t>(word);
  halves[1] = static_cast<uint16_t>(word >> 16);
}

__global__ void __launch_bounds__(kThreads)
    write_tiles(float* values, float* also, size_t count, size_t num_taken, size_t tiles_count, SelectState* state,
                const TileCount* tiles, uint8_t* message) {
  const size_t tile = blockIdx.x, begin = tile * kTile + threadIdx.x * kEach;
  const uint32_t least = state->least, equal = state->equal;
  const size_t reaches = (count + kReach - 1) / kReach;
  if (tile % kTilesOfReach == 0 && threadIdx.x == 0) {
    const size_t end = min(tile + kTilesOfReach, tiles_count);
    store_halves(message + tile / kTilesOfReach * 4,
                 taken_before(tiles[end], equal) - taken_before(tiles[tile], equal));
  }
  __shared__ TileCount sums[kThreads];
  TileCount here{0, 0};
  float own[kEach];
  for (int i = 0; i < kEach; ++i) {
    own[i] = begin + i < count ? values[begin + i] : 0.f;
    if (begin + i >= count) continue;
    const uint32_t bits = magnitude(own[i]);
    here.larger += bits > least ? 1 : 0;
    here.equal += bits == least ? 1 : 0;
  }
  sums[threadIdx.x] = here;
  __syncthreads();
  scan(sums);
  TileCount before = tiles[tile];
  before.larger += sums[threadIdx.x].larger - here.larger;
  before.equal += sums[threadIdx.x].equal - here.equal;
  uint8_t* const places = message + 4 * reaches;
  uint8_t* const taken = places + 2 * num_taken;
  for (int i = 0; i < kEach && begin + i < count; ++i) {
    const uint32_t bits = magnitude(own[i]);
    const bool is_equal = bits == least;
    if (bits > least || (is_equal && before.equal < equal)) {
      const size_t at = taken_before(before, equal);
      reinterpret_cast<uint16_t*>(places)[at] = static_cast<uint16_t>((begin + i) % kReach);
      store_halves(taken + 4 * at, __float_as_uint(own[i]));
      values[begin + i] = 0;
      if (also != nullptr) also[begin + i] = 0;
      if (bits >= kInfinity) state->not_finite = 1;
    }
    before.larger += bits > least ? 1 : 0;
    before.equal += is_equal ? 1 : 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    clear_not_finite(float* values, float* also, size_t count, const SelectState* state) {
  if (state->not_finite == 0) return;
  for (size_t i = first_index(); i < count; i += stride()) {
    if (magnitude(values[i]) >= kInfinity) values[i] = 0;
    if (also != nullptr && magnitude(also[i]) >= kInfinity) also[i] = 0;
  }
}

/// A group of threads for each reach; indices of one message do not repeat.
__global__ void __launch_bounds__(kThreads)
    add_reach(const uint8_t* message, size_t num_taken, float* out, size_t count) {
  const size_t reaches = gridDim.x, reach = blockIdx.x;
  const auto count_of = [&](size_t i) {
    const auto* const halves = reinterpret_cast<const uint16_t*>(message + 4 * i);
    return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
  };
  __shared__ unsigned long long before;
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  unsigned long long own = 0;
  for (size_t i = threadIdx.x; i < reach; i += kThreads) own += count_of(i);
  atomicAdd(&before, own);
  __syncthreads();
  const auto* const places = reinterpret_cast<const uint16_t*>(message + 4 * reaches);
  const auto* const values = places + num_taken;
  const size_t end = min(static_cast<size_t>(before) + count_of(reach), num_taken);
  for (size_t i = before + threadIdx.x; i < end; i += kThreads) {
    const size_t index = reach * kReach + places[i];
    const uint32_t bits = values[2 * i] | static_cast<uint32_t>(values[2 * i + 1]) << 16;
    if (index < count) out[index] += __uint_as_float(bits);
  }
}

}  // namespace

size_t select_scratch(size_t count) {
  return (kBins + 2) * sizeof(uint32_t) + (num_tiles(count) + 1) * sizeof(TileCount);
}

void find_largest(const float* values, size_t count, size_t k, SelectState* state, void* scratch, Stream stream) {
  const Scratch s = scratch_of(scratch);
  begin_search<<<1, kScanThreads, 0, stream>>>(state, s.bins, s.wanted, static_cast<uint32_t>(k));
  for (const Round& round : kRounds) {
    count_bits<<<groups_over(count), kThreads, 0, stream>>>(values, count, state, s.bins, round);
    choose_bin<<<1, kScanThreads, 0, stream>>>(state, s.bins, s.wanted, round);
  }
  end_search<<<1, 1, 0, stream>>>(state, s.wanted);
  check_launch("find_largest");
}

void count_taken(const float* values, size_t count, SelectState* state, void* scratch, Stream stream) {
  const Scratch s = scratch_of(scratch);
  count_tiles<<<static_cast<unsigned>(num_tiles(count)), kThreads, 0, stream>>>(values, count, state, s.tiles);
  sum_tiles<<<1, kScanThreads, 0, stream>>>(s.tiles, num_tiles(count));
  check_launch("count_taken");
}

void take_counted(float* values, float* also, size_t count, size_t num_taken, SelectState* state, void* scratch,
                  uint8_t* message, Stream stream) {
  const Scratch s = scratch_of(scratch);
  write_tiles<<<static_cast<unsigned>(num_tiles(count)), kThreads, 0, stream>>>(
      values, also, count, num_taken, num_tiles(count), state, s.tiles, message);
  clear_not_finite<<<groups_over(count), kThreads, 0, stream>>>(values, also, count, state);
  check_launch("take_counted");
}

void add_sparse(const uint8_t* message, size_t num_taken, float* out, size_t count, Stream stream) {
  if (count == 0) return;
  const auto reaches = static_cast<unsigned>((count + kReach - 1) / kReach);
  add_reach<<<reaches, kThreads, 0, stream>>>(message, num_taken, out, count);
  check_launch("add_sparse");
}

}  // namespace trireme::gpu
