// Reductions and copies on the GPU have the bits of comm/reduce/reduce.h, for all types, numbers of sources and
// alignments.
#include "trireme/comm/cuda/ordered_sum.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "trireme/comm/reduce/reduce.h"
#include "trireme/gpu/device.h"

namespace trireme::gpu {
namespace {

class OrderedSum : public testing::Test {
 protected:
  void SetUp() override {
    if (!survey().usable()) GTEST_SKIP() << "no GPU: not run";
    check(cudaMalloc(reinterpret_cast<void**>(&memory_), kBytes), "cudaMalloc");
  }
  void TearDown() override {
    if (memory_ != nullptr) cudaFree(memory_);
  }

  static constexpr size_t kBytes = size_t{64} << 20;
  std::byte* memory_ = nullptr;
};

constexpr DataType kTypes[] = {DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBFloat16,
                               DataType::kInt32, DataType::kInt64,  DataType::kUInt8};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

bool is_floating(DataType type) { return static_cast<int>(type) <= static_cast<int>(DataType::kBFloat16); }

float special(uint32_t draw) {
  constexpr float kValues[] = {0.0f, -0.0f, INFINITY, -INFINITY, 1e-42f, -3e-41f, 1e-7f, 60000.0f};
  return draw % 9 == 8 ? std::numeric_limits<float>::quiet_NaN() : kValues[draw % 9];
}

/// Random numbers, with a few special ones among them.
std::vector<std::byte> draw(size_t count, DataType type, std::mt19937& random) {
  std::vector<std::byte> data(count * size_of(type));
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = random();
    const float value = bits % 37 == 0 ? special(bits / 37)
                                       : std::ldexp(static_cast<float>(static_cast<int32_t>(random())),
                                                    -31 + static_cast<int>(bits % 8));
    std::byte* at = data.data() + i * size_of(type);
    const auto put = [&](auto number) { std::memcpy(at, &number, sizeof number); };
    if (type == DataType::kFloat) put(value);
    if (type == DataType::kDouble) put(static_cast<double>(value) * 1.0000000123);
    if (type == DataType::kHalf) put(to_half(value));
    if (type == DataType::kBFloat16) put(to_bfloat16(value));
    if (type == DataType::kInt32) put(static_cast<int32_t>(bits));
    if (type == DataType::kInt64) put(static_cast<int64_t>(bits) * -77777777777);
    if (type == DataType::kUInt8) put(static_cast<uint8_t>(bits >> 8));
  }
  return data;
}

bool is_nan(const std::byte* at, DataType type) {
  float f = 0;
  double d = 0;
  Half h{};
  BFloat16 b{};
  if (type == DataType::kFloat) std::memcpy(&f, at, 4);
  if (type == DataType::kDouble) std::memcpy(&d, at, 8);
  if (type == DataType::kHalf) std::memcpy(&h, at, 2), f = to_float(h);
  if (type == DataType::kBFloat16) std::memcpy(&b, at, 2), f = to_float(b);
  return std::isnan(f) || std::isnan(d);
}

/// The first element that differs, or -1. The payload of a NaN is not defined.
long first_difference(const std::vector<std::byte>& a, const std::byte* b, DataType type) {
  const size_t width = size_of(type);
  for (size_t i = 0; i < a.size(); i += width) {
    if (std::memcmp(&a[i], b + i, width) == 0) continue;
    if (is_floating(type) && is_nan(&a[i], type) && is_nan(b + i, type)) continue;
    return static_cast<long>(i / width);
  }
  return -1;
}

TEST_F(OrderedSum, HasTheBitsOfTheHost) {
  std::mt19937 random(7);
  int cases = 0;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 27, 64}) {
        const size_t width = size_of(type);
        const size_t count = std::vector<size_t>{1, 5, 31, 1000, 4099}[random() % 5];
        // 0: all at multiples of 16; 1: alike, but between; 2: each somewhere else.
        const int layout = cases % 3;
        const size_t stride = (count * width + 64 + 15) / 16 * 16;
        const auto at = [&](size_t slot) {
          const size_t skew = layout == 0 ? 0 : layout == 1 ? width % 16 : slot % 5 * width;
          return memory_ + slot * stride + skew;
        };
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const void*> host_sources, sources;
        for (size_t s = 0; s < n; ++s) {
          inputs.push_back(draw(count, type, random));
          check(cudaMemcpy(at(s), inputs[s].data(), inputs[s].size(), cudaMemcpyHostToDevice), "cudaMemcpy");
          sources.push_back(at(s));
        }
        for (const auto& input : inputs) host_sources.push_back(input.data());
        std::vector<std::byte> wanted(count * width);
        void* const host_out[] = {wanted.data()};
        const ReduceOp host_op = n == 1 ? ReduceOp::kSum : op;
        reduce_tree(host_op, type, host_sources, host_out, count, n);
        // One destination is a source, one is elsewhere.
        void* const destinations[] = {at(n - 1), at(n)};
        check(cudaMemset(memory_ + n * stride, 0xFF, stride), "cudaMemset");
        const CombineJob job{sources, destinations, count};
        enqueue_combine(nullptr, host_op, type, std::span(&job, 1), n);
        for (void* destination : destinations) {
          std::vector<std::byte> got(count * width + 8);
          check(cudaMemcpy(got.data(), destination, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
          const long element = first_difference(wanted, got.data(), type);
          ASSERT_EQ(element, -1) << name_of(op) << " of " << n << " x " << count << " " << name_of(type) << ", layout "
                                 << layout;
          if (destination != destinations[1]) continue;
          for (size_t i = count * width; i < got.size(); ++i) ASSERT_EQ(got[i], std::byte{0xFF}) << "written too far";
        }
        ++cases;
      }
    }
  }
}

TEST_F(OrderedSum, DoesManyJobsInFewLaunches) {
  std::mt19937 random(9);
  // 150 copies of many lengths, more than a table holds, and each between two addresses.
  constexpr size_t kJobs = 150, kStride = 8192;
  const std::vector<std::byte> input = draw(kJobs * kStride, DataType::kUInt8, random);
  check(cudaMemcpy(memory_, input.data(), input.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  std::byte* const out = memory_ + kBytes / 2;
  check(cudaMemset(out, 0xFF, kJobs * kStride), "cudaMemset");
  std::vector<const void*> sources(kJobs);
  std::vector<void*> destinations(kJobs);
  std::vector<CombineJob> jobs;
  std::vector<std::byte> wanted(kJobs * kStride, std::byte{0xFF});
  for (size_t j = 0; j < kJobs; ++j) {
    const size_t count = j * 53 % 8000, from = j * kStride + j % 7, to = j * kStride + j % 5;
    sources[j] = memory_ + from;
    destinations[j] = out + to;
    jobs.push_back({std::span(&sources[j], 1), std::span(&destinations[j], 1), count});
    std::memcpy(&wanted[to], &input[from], count);
  }
  enqueue_combine(nullptr, ReduceOp::kSum, DataType::kUInt8, jobs);
  std::vector<std::byte> got(wanted.size());
  check(cudaMemcpy(got.data(), out, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  EXPECT_EQ(first_difference(wanted, got.data(), DataType::kUInt8), -1);
}

}  // namespace
}  // namespace trireme::gpu
