// What tests of GPU code share: the fixture that skips without a GPU, device memory with guards, random values, and
// comparison with a reference in double precision.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "trireme/gpu/device.h"
#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// Skips where there is no GPU. Has a stream of its own.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!survey().usable()) GTEST_SKIP() << "no GPU: not run";
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  void TearDown() override {
    if (stream_) cudaStreamDestroy(stream_);
  }
  void wait() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  cudaStream_t stream_ = nullptr;
};

inline const char* name_of(Type type) {
  return type == Type::kFloat ? "float" : type == Type::kHalf ? "half" : "bfloat16";
}

inline float rounded(float value, Type type) {
  if (type == Type::kHalf) return __half2float(__float2half_rn(value));
  if (type == Type::kBFloat16) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}

/// The largest relative error of rounding to the type.
inline double rounding_of(Type type) { return type == Type::kFloat ? 0x1p-24 : type == Type::kHalf ? 0x1p-11 : 0x1p-8; }

/// Normally distributed, rounded to the type, the same for the same seed.
inline std::vector<float> random_values(int64_t count, Type type, uint32_t seed, float deviation = 1, float mean = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = rounded(normal(generator), type);
  return values;
}

/// Device memory, at first all bytes 0xFF: NaN in every floating type. It lies between guards of 0xFF; that nothing
/// wrote to them is checked at the end. `shift_bytes` moves its start from a boundary of 256 bytes.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes, size_t shift_bytes = 0) : bytes_(bytes), before_(kGuard + shift_bytes) {
    check(cudaMalloc(&base_, total()), "cudaMalloc");
    poison();
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory(DeviceMemory&& other) noexcept : base_(other.base_), bytes_(other.bytes_), before_(other.before_) {
    other.base_ = nullptr;
  }
  ~DeviceMemory() {
    if (!base_) return;
    std::vector<unsigned char> all(total());
    if (cudaMemcpy(all.data(), base_, total(), cudaMemcpyDefault) == cudaSuccess) {
      size_t written = 0;
      for (size_t i = 0; i < total(); ++i) written += (i < before_ || i >= before_ + bytes_) && all[i] != 0xFF;
      EXPECT_EQ(written, 0u) << "bytes written outside device memory of " << bytes_ << " bytes";
    }
    cudaFree(base_);
  }

  template <typename T = void>
  T* get() const {
    return reinterpret_cast<T*>(static_cast<char*>(base_) + before_);
  }
  size_t bytes() const { return bytes_; }
  /// Done when it returns: the tests' stream would not wait for it.
  void poison() {
    check(cudaMemset(base_, 0xFF, total()), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

 private:
  static constexpr size_t kGuard = 256;
  size_t total() const { return before_ + bytes_ + kGuard; }

  void* base_ = nullptr;
  size_t bytes_, before_;
};

template <typename T>
DeviceMemory to_device(const std::vector<T>& values, size_t shift_bytes = 0) {
  DeviceMemory memory(values.size() * sizeof(T), shift_bytes);
  if (!values.empty()) check(cudaMemcpy(memory.get(), values.data(), memory.bytes(), cudaMemcpyDefault), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // the copy may still be on its way
  return memory;
}

template <typename T>
std::vector<T> to_host(const DeviceMemory& memory) {
  std::vector<T> values(memory.bytes() / sizeof(T));
  if (!values.empty()) check(cudaMemcpy(values.data(), memory.get(), memory.bytes(), cudaMemcpyDefault), "cudaMemcpy");
  return values;
}

/// Floats as elements of `type`, and back.
inline DeviceMemory to_device(const std::vector<float>& values, Type type, size_t shift_bytes = 0) {
  if (type == Type::kFloat) return to_device(values, shift_bytes);
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    bits[i] = type == Type::kHalf ? __half_as_ushort(__float2half_rn(values[i]))
                                  : __bfloat16_as_ushort(__float2bfloat16_rn(values[i]));
  }
  return to_device(bits, shift_bytes);
}
inline std::vector<float> to_host(const DeviceMemory& memory, Type type) {
  if (type == Type::kFloat) return to_host<float>(memory);
  const auto bits = to_host<uint16_t>(memory);
  std::vector<float> values(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    values[i] =
        type == Type::kHalf ? __half2float(__ushort_as_half(bits[i])) : __bfloat162float(__ushort_as_bfloat16(bits[i]));
  }
  return values;
}

/// Every |actual − expected| ≤ relative · |expected| + absolute; NaN is equal to NaN alone. Prints the worst element.
inline void expect_close(const std::vector<float>& actual, const std::vector<double>& expected, double relative,
                         double absolute, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  size_t wrong = 0, worst = 0;
  double most = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(expected[i]) && std::isnan(actual[i]))) continue;
    double times = std::abs(actual[i] - expected[i]) / (relative * std::abs(expected[i]) + absolute);
    if (std::isnan(times)) times = HUGE_VAL;
    if (times <= 1) continue;
    if (wrong++ == 0 || times > most) most = times, worst = i;
  }
  EXPECT_EQ(wrong, 0u) << what << ": of " << actual.size() << " elements; the worst is " << worst << ": "
                       << (actual.empty() ? 0 : actual[worst]) << ", expected "
                       << (actual.empty() ? 0 : expected[worst]) << ", " << most << " times the bound";
}

}  // namespace trireme::gpu
