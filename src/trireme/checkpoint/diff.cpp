#include "trireme/checkpoint/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

/// Numbers of a floating type in their order as whole numbers; both zeros are one.
template <typename Bits>
int64_t place_in_order(Bits bits) {
  constexpr Bits kSign = Bits{1} << (sizeof(Bits) * 8 - 1);
  const auto size = static_cast<int64_t>(bits & ~kSign);
  return (bits & kSign) != 0 ? -size : size;
}

uint64_t distance(int64_t a, int64_t b) {
  return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
               : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// `to_double` turns bits of an element into its value.
template <typename Bits, typename ToDouble>
void compare_floats(const TensorView& a, const TensorView& b, TensorDifference& result, ToDouble&& to_double) {
  for (size_t at = 0; at < a.bytes.size(); at += sizeof(Bits)) {
    const Bits x = load<Bits>(a.bytes.data() + at), y = load<Bits>(b.bytes.data() + at);
    if (x == y) continue;
    ++result.num_different;
    const double u = to_double(x), v = to_double(y);
    if (std::isnan(u) || std::isnan(v)) {
      result.num_one_nan += std::isnan(u) != std::isnan(v);
      continue;
    }
    result.largest_ulp = std::max(result.largest_ulp, distance(place_in_order(x), place_in_order(y)));
    result.num_one_infinite += std::isfinite(u) != std::isfinite(v);
    if (std::isfinite(u) && std::isfinite(v)) result.largest = std::max(result.largest, std::fabs(u - v));
  }
}

template <typename T>
void compare_integers(const TensorView& a, const TensorView& b, TensorDifference& result) {
  for (size_t at = 0; at < a.bytes.size(); at += sizeof(T)) {
    const T x = load<T>(a.bytes.data() + at), y = load<T>(b.bytes.data() + at);
    if (x == y) continue;
    ++result.num_different;
    result.largest =
        std::max(result.largest, static_cast<double>(distance(static_cast<int64_t>(x), static_cast<int64_t>(y))));
  }
}

double half_to_double(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
  double value = 0;
  if (exponent == 0x1F) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else {
    value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double bfloat16_to_double(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

TensorDifference diff_tensors(const TensorView& a, const TensorView& b) {
  TensorDifference result{.a = a.info, .b = b.info};
  if (!result.comparable()) return result;
  if (a.bytes.size() != b.bytes.size()) throw UsageError("tensors of one shape have different sizes");
  switch (a.info.type) {
    case DataType::kFloat:
      compare_floats<uint32_t>(a, b, result, [](uint32_t x) { return double{std::bit_cast<float>(x)}; });
      break;
    case DataType::kDouble:
      compare_floats<uint64_t>(a, b, result, [](uint64_t x) { return std::bit_cast<double>(x); });
      break;
    case DataType::kHalf:
      compare_floats<uint16_t>(a, b, result, half_to_double);
      break;
    case DataType::kBFloat16:
      compare_floats<uint16_t>(a, b, result, bfloat16_to_double);
      break;
    case DataType::kInt32:
      compare_integers<int32_t>(a, b, result);
      break;
    case DataType::kInt64:
      compare_integers<int64_t>(a, b, result);
      break;
    case DataType::kUInt8:
      compare_integers<uint8_t>(a, b, result);
      break;
  }
  return result;
}

CheckpointDifference diff_checkpoints(const CheckpointReader& a, const CheckpointReader& b) {
  CheckpointDifference difference;
  std::vector<std::string> common;
  for (const TensorInfo& tensor : a.tensors()) (b.has(tensor.name) ? common : difference.only_a).push_back(tensor.name);
  for (const TensorInfo& tensor : b.tensors()) {
    if (!a.has(tensor.name)) difference.only_b.push_back(tensor.name);
  }
  for (auto* names : {&common, &difference.only_a, &difference.only_b}) std::sort(names->begin(), names->end());
  std::vector<std::byte> x, y;
  for (const std::string& name : common) {
    const TensorInfo &of_a = a.tensor(name), &of_b = b.tensor(name);
    TensorDifference entry{.a = of_a, .b = of_b};
    if (entry.comparable()) {
      x.resize(of_a.num_bytes());
      y.resize(of_b.num_bytes());
      a.read(name, x);
      b.read(name, y);
      entry = diff_tensors({of_a, x}, {of_b, y});
      if (entry.num_different == 0) {
        ++difference.num_equal;
        continue;
      }
    }
    difference.different.push_back(std::move(entry));
  }
  return difference;
}

}  // namespace trireme
