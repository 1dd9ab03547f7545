// Tests that every instruction set reduces to the bits of a plain recursive evaluation, wherever the memory lies.
#include "trireme/comm/reduce/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "trireme/comm/reduce/reduce_kernels.h"

namespace trireme {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

template <typename T>
constexpr bool kIs16Bit = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// The reference: one element at a time, as the notes in reduce.h say it.

template <typename T>
T extreme(T a, T b, bool least) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) return std::signbit(a) == least ? a : b;
  }
  return (a < b) == least ? a : b;
}

template <typename T>
T combined(ReduceOp op, T a, T b) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(combined(op, to_float(a), to_float(b)));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(combined(op, to_float(a), to_float(b)));
  } else {
    if (op == ReduceOp::kMin || op == ReduceOp::kMax) return extreme(a, b, op == ReduceOp::kMin);
    if constexpr (std::is_integral_v<T>) {
      const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
      return static_cast<T>(op == ReduceOp::kProduct ? x * y : x + y);
    } else {
      return op == ReduceOp::kProduct ? a * b : a + b;
    }
  }
}

template <typename T>
T divided(T sum, size_t divisor) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(to_float(sum) / static_cast<float>(divisor));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(to_float(sum) / static_cast<float>(divisor));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<int64_t>(sum) / static_cast<int64_t>(divisor));
  } else {
    return sum / static_cast<T>(divisor);
  }
}

template <typename T>
T reduced(ReduceOp op, const std::vector<std::vector<T>>& sources, size_t first, size_t n, size_t i) {
  if (n == 1) return sources[first][i];
  size_t split = 1;
  while (split * 2 < n) split *= 2;
  return combined(op, reduced(op, sources, first, split, i), reduced(op, sources, first + split, n - split, i));
}

template <typename T>
std::vector<T> reference(ReduceOp op, const std::vector<std::vector<T>>& sources, size_t count, size_t divisor) {
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    result[i] = reduced(op, sources, 0, sources.size(), i);
    if (op == ReduceOp::kAverage) result[i] = divided(result[i], divisor);
  }
  return result;
}

template <typename T>
bool same(T a, T b) {
  if constexpr (kIs16Bit<T>) {
    if (std::isnan(to_float(a)) && std::isnan(to_float(b))) return true;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  size_t i = 0;
  while (i < a.size() && same(a[i], b[i])) ++i;
  return i;
}

// Values: mostly of like size, so that sums round; sometimes the ones that special rules are for.

template <typename T>
std::vector<T> special_values() {
  if constexpr (std::is_integral_v<T>) {
    using L = std::numeric_limits<T>;
    return {0, 1, 2, 7, static_cast<T>(-1), static_cast<T>(-7), L::min(), L::max(), static_cast<T>(L::max() / 2 + 1)};
  } else if constexpr (std::is_floating_point_v<T>) {
    using L = std::numeric_limits<T>;
    return {0,
            T(-0.0),
            1,
            -1,
            T(1.5),
            T(0.1),
            L::max(),
            -L::max(),
            L::min(),
            L::denorm_min(),
            -L::denorm_min(),
            L::infinity(),
            -L::infinity(),
            L::quiet_NaN()};
  } else {
    std::vector<T> values;
    for (uint16_t bits :
         {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3c01, 0x3f80, 0xbf80, 0x3f81,
          0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xffc1})
      values.push_back(T{bits});
    return values;
  }
}

template <typename T>
std::vector<T> random_values(size_t count, std::mt19937& random) {
  const std::vector<T> special = special_values<T>();
  std::uniform_real_distribution<float> real(-4, 4);
  std::vector<T> values(count);
  for (T& value : values) {
    if (random() % 32 == 0) {
      value = special[random() % special.size()];
    } else if constexpr (std::is_same_v<T, Half>) {
      value = to_half(real(random));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      value = to_bfloat16(real(random));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(real(random)) / 3;
    } else {
      value = static_cast<T>((static_cast<uint64_t>(random()) << 32) | random());
    }
  }
  return values;
}

/// Elements at a chosen distance from a cache line, between bytes that must not change.
template <typename T>
class Placed {
 public:
  Placed(size_t count, size_t skew) : bytes_(count * sizeof(T) + 4 * kMargin, kUntouched), count_(count) {
    const auto line = -reinterpret_cast<uintptr_t>(bytes_.data()) % kMargin;
    start_ = bytes_.data() + line + kMargin + skew;
  }
  Placed(const std::vector<T>& values, size_t skew) : Placed(values.size(), skew) {
    if (count_ > 0) std::memcpy(start_, values.data(), count_ * sizeof(T));
  }
  void* data() { return start_; }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), start_, count_ * sizeof(T));
    return values;
  }
  bool margins_untouched() const {
    for (size_t i = 1; i <= kMargin; ++i)
      if (start_[-static_cast<ptrdiff_t>(i)] != kUntouched || start_[count_ * sizeof(T) + i - 1] != kUntouched)
        return false;
    return true;
  }

 private:
  static constexpr size_t kMargin = 64;
  static constexpr std::byte kUntouched{0xa5};
  std::vector<std::byte> bytes_;
  size_t count_;
  std::byte* start_;
};

/// Where buffer i of a call lies, in bytes from a cache line. The destinations come first.
struct Placement {
  const char* name;
  size_t num_destinations;
  bool in_place;
  size_t (*skew)(size_t i, size_t element_size);
};
constexpr Placement kPlacements[] = {
    {"aligned", 1, false, [](size_t, size_t) -> size_t { return 0; }},
    {"at different elements", 2, false, [](size_t i, size_t size) { return (3 * i + 1) * size % 64; }},
    {"alike at an element", 2, false, [](size_t, size_t size) { return 3 * size; }},
    {"second on a line only", 3, false, [](size_t i, size_t size) { return i == 1 ? size : i % 2; }},
    {"at odd bytes", 1, false, [](size_t i, size_t) { return (2 * i + 1) % 64; }},
    {"in place", 2, true, [](size_t i, size_t size) { return i * size % 64; }},
};

template <typename T>
void check_call(const kernels::Kernels& table, ReduceOp op, const std::vector<std::vector<T>>& inputs, size_t count,
                size_t divisor, Stores stores, const Placement& placement, const std::vector<T>& expected) {
  std::vector<Placed<T>> memory;
  const size_t n = inputs.size();
  memory.reserve(placement.num_destinations + n);
  for (size_t d = 0; d < placement.num_destinations; ++d) memory.emplace_back(count, placement.skew(d, sizeof(T)));
  for (size_t s = 0; s < n; ++s) {
    const std::vector<T> values(inputs[s].begin(), inputs[s].begin() + static_cast<ptrdiff_t>(count));
    memory.emplace_back(values, placement.skew(placement.num_destinations + s, sizeof(T)));
  }
  std::vector<void*> destinations;
  std::vector<const void*> sources;
  for (size_t s = 0; s < n; ++s) sources.push_back(memory[placement.num_destinations + s].data());
  std::vector<size_t> written;
  for (size_t d = 0; d < placement.num_destinations; ++d) {
    written.push_back(placement.in_place ? placement.num_destinations + (d == 0 ? n - 1 : 0) : d);
    destinations.push_back(memory[written.back()].data());
  }
  kernels::reduce_tree(table, op, DataTypeOf<T>::value, sources, destinations, count, divisor, stores);
  for (size_t index : written) {
    const size_t at = first_difference(memory[index].values(), expected);
    ASSERT_EQ(at, expected.size()) << table.name << " " << name_of(op) << " of " << n << " "
                                   << name_of(DataTypeOf<T>::value) << ", element " << at << " of " << count << ", "
                                   << placement.name << ", stores " << static_cast<int>(stores);
  }
  for (const Placed<T>& each : memory) ASSERT_TRUE(each.margins_untouched()) << placement.name;
}

template <typename T>
class ReduceTree : public testing::Test {};
using AllTypes = testing::Types<float, double, Half, BFloat16, int32_t, int64_t, uint8_t>;

struct TypeNames {
  template <typename T>
  static std::string GetName(int) {
    return std::string(name_of(DataTypeOf<T>::value));
  }
};
TYPED_TEST_SUITE(ReduceTree, AllTypes, TypeNames);

TYPED_TEST(ReduceTree, EqualsThePlainRecursion) {
  using T = TypeParam;
  std::mt19937 random(1);
  for (size_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
    std::vector<std::vector<T>> inputs;
    for (size_t s = 0; s < n; ++s) inputs.push_back(random_values<T>(4097, random));
    for (ReduceOp op : kOps) {
      const size_t divisor = n % 2 == 0 ? n : n + 2;
      const std::vector<T> all = reference(op, inputs, 4097, divisor);
      for (size_t count : {0, 1, 7, 63, 64, 65, 1000, 4097}) {
        const std::vector<T> expected(all.begin(), all.begin() + static_cast<ptrdiff_t>(count));
        for (const kernels::Kernels* table : kernels::available())
          for (Stores stores : {Stores::kCached, Stores::kStreaming})
            for (const Placement& placement : kPlacements) {
              check_call(*table, op, inputs, count, divisor, stores, placement, expected);
              if (this->HasFatalFailure()) return;
            }
      }
    }
  }
}

TYPED_TEST(ReduceTree, ManySources) {
  using T = TypeParam;
  std::mt19937 random(2);
  for (size_t n : {127, 1000, 1025}) {
    std::vector<std::vector<T>> inputs;
    for (size_t s = 0; s < n; ++s) inputs.push_back(random_values<T>(99, random));
    for (ReduceOp op : {ReduceOp::kAverage, ReduceOp::kMax}) {
      const std::vector<T> expected = reference(op, inputs, 99, n);
      for (const kernels::Kernels* table : kernels::available()) {
        check_call(*table, op, inputs, 99, n, Stores::kCached, kPlacements[1], expected);
        if (this->HasFatalFailure()) return;
      }
    }
  }
}

/// Calls `check` with the values and with all their rotations: over all calls, every pair meets.
template <typename T, typename Check>
void for_all_pairs(const std::vector<T>& values, Check check) {
  for (size_t turn = 0; turn < values.size(); ++turn) {
    std::vector<T> partners(values.size());
    for (size_t i = 0; i < values.size(); ++i) partners[i] = values[(i + turn) % values.size()];
    check(values, partners);
  }
}

TYPED_TEST(ReduceTree, CombiningIsCommutative) {
  using T = TypeParam;
  for (const kernels::Kernels* table : kernels::available())
    for (ReduceOp op : kOps)
      for_all_pairs(special_values<T>(), [&](const std::vector<T>& a, const std::vector<T>& b) {
        std::vector<T> expected(a.size()), ab(a.size()), ba(a.size());
        for (size_t i = 0; i < a.size(); ++i) expected[i] = combined(op, a[i], b[i]);
        const void *a_first[] = {a.data(), b.data()}, *b_first[] = {b.data(), a.data()};
        void *to_ab[] = {ab.data()}, *to_ba[] = {ba.data()};
        const DataType type = DataTypeOf<T>::value;
        kernels::reduce_tree(*table, op, type, a_first, to_ab, a.size(), 1, Stores::kCached);
        kernels::reduce_tree(*table, op, type, b_first, to_ba, a.size(), 1, Stores::kCached);
        EXPECT_EQ(first_difference(ab, ba), a.size()) << table->name << " " << name_of(op);
        EXPECT_EQ(first_difference(ab, expected), a.size()) << table->name << " " << name_of(op);
      });
}

TYPED_TEST(ReduceTree, CombineAndFinishMakeTheSameTree) {
  using T = TypeParam;
  std::mt19937 random(3);
  const std::vector<T> a = random_values<T>(1001, random), b = random_values<T>(1001, random);
  for (ReduceOp op : kOps)
    for (size_t divisor : {1, 2, 3}) {
      const std::vector<T> expected = reference<T>(op, {a, b}, a.size(), divisor);
      std::vector<T> left = a, right = b, apart(a.size());
      const DataType type = DataTypeOf<T>::value;
      combine(op, type, apart.data(), a.data(), b.data(), a.size());
      combine(op, type, left.data(), left.data(), b.data(), a.size());
      combine(op, type, right.data(), a.data(), right.data(), a.size());
      for (std::vector<T>* each : {&apart, &left, &right}) {
        finish(op, type, each->data(), each->size(), divisor);
        EXPECT_EQ(first_difference(*each, expected), expected.size()) << name_of(op) << " over " << divisor;
      }
    }
  combine(ReduceOp::kSum, DataTypeOf<T>::value, nullptr, nullptr, nullptr, 0);
  finish(ReduceOp::kAverage, DataTypeOf<T>::value, nullptr, 0, 3);
}

TEST(Reduce, TheLeftPartIsTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(tree_split(2), 1u);
  EXPECT_EQ(tree_split(3), 2u);
  EXPECT_EQ(tree_split(4), 2u);
  EXPECT_EQ(tree_split(5), 4u);
  EXPECT_EQ(tree_split(6), 4u);
  EXPECT_EQ(tree_split(8), 4u);
  EXPECT_EQ(tree_split(9), 8u);
  EXPECT_EQ(tree_split(1000), 512u);
  EXPECT_EQ(tree_split(1025), 1024u);
}

TEST(Reduce, SixAreAddedAsTheNoteSays) {
  const float x[] = {1e8f, 3, -1e8f, 5, 0.25f, 7};
  std::vector<const void*> sources;
  for (const float& each : x) sources.push_back(&each);
  float sum = 0;
  void* destinations[] = {&sum};
  reduce_tree(ReduceOp::kSum, DataType::kFloat, sources, destinations, 1);
  EXPECT_EQ(sum, ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]));
  EXPECT_NE(sum, ((((x[0] + x[1]) + x[2]) + x[3]) + x[4]) + x[5]);
}

TEST(Reduce, IntegerAveragesTruncateTowardZero) {
  int32_t small[] = {7, -7, std::numeric_limits<int32_t>::min(), 1};
  finish(ReduceOp::kAverage, DataType::kInt32, small, 4, 2);
  EXPECT_EQ(small[0], 3);
  EXPECT_EQ(small[1], -3);
  small[2] = std::numeric_limits<int32_t>::min();
  finish(ReduceOp::kAverage, DataType::kInt32, small, 4, size_t{1} << 31);
  EXPECT_EQ(small[2], -1);
  EXPECT_EQ(small[0], 0);
  uint8_t bytes[] = {255, 9};
  finish(ReduceOp::kAverage, DataType::kUInt8, bytes, 2, 256);
  EXPECT_EQ(bytes[0], 0);
  int64_t large[] = {std::numeric_limits<int64_t>::min()};
  finish(ReduceOp::kAverage, DataType::kInt64, large, 1, 3);
  EXPECT_EQ(large[0], std::numeric_limits<int64_t>::min() / 3);
}

TEST(Reduce, NoDestinationsAndNoElementsAreFine) {
  const float x = 1;
  const void* sources[] = {&x, &x, &x};
  reduce_tree(ReduceOp::kSum, DataType::kFloat, sources, {}, 1);
  const void* none[] = {nullptr, nullptr};
  void* nowhere[] = {nullptr};
  reduce_tree(ReduceOp::kSum, DataType::kFloat, none, nowhere, 0, 1, Stores::kStreaming);
  copy_bytes(nullptr, nullptr, 0);
  copy_bytes(nullptr, nullptr, 0, Stores::kStreaming);
}

TEST(Reduce, CopiesAnyBytesFromAnywhereToAnywhere) {
  std::mt19937 random(4);
  for (const kernels::Kernels* table : kernels::available())
    for (Stores stores : {Stores::kCached, Stores::kStreaming})
      for (size_t count : {0, 1, 31, 63, 64, 65, 127, 128, 200, 1000, 100001})
        for (size_t skew : {0, 1, 32, 63}) {
          const std::vector<uint8_t> values = random_values<uint8_t>(count, random);
          Placed<uint8_t> in(values, (skew * 7) % 64), out(count, skew);
          kernels::copy_bytes(*table, out.data(), in.data(), count, stores);
          ASSERT_EQ(out.values(), values) << table->name << " " << count << " at " << skew;
          ASSERT_TRUE(out.margins_untouched());
        }
}

// Conversions.

double exact_value(Half half) {
  const int exponent = (half.bits >> 10) & 31, fraction = half.bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Conversion, EveryHalfThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    if ((bits & 0x7fff) > 0x7c00) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_EQ(to_half(value).bits, bits | 0x0200) << "quiet, with its payload";
      continue;
    }
    ASSERT_EQ(to_half(value).bits, bits);
    if ((bits & 0x7fff) == 0x7c00) {
      ASSERT_TRUE(std::isinf(value));
    } else {
      ASSERT_EQ(static_cast<double>(value), exact_value(half));
    }
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0);
  }
}

TEST(Conversion, EveryBFloat16ThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_float(BFloat16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    ASSERT_EQ(to_bfloat16(value).bits, std::isnan(value) ? bits | 0x0040 : bits);
  }
}

/// Around the middle of two neighbours: below it goes down, above it goes up, and on it to the even one.
template <typename T>
void check_middle(T low, T high, float middle, T (*round)(float)) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float sign : {1.0f, -1.0f}) {
    const uint16_t sign_bit = sign < 0 ? 0x8000 : 0;
    ASSERT_EQ(round(sign * std::nextafter(middle, 0.0f)).bits, low.bits | sign_bit);
    ASSERT_EQ(round(sign * std::nextafter(middle, infinity)).bits, high.bits | sign_bit);
    ASSERT_EQ(round(sign * middle).bits, ((low.bits & 1) == 0 ? low.bits : high.bits) | sign_bit);
  }
}

TEST(Conversion, HalvesRoundToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const Half low{bits}, high{static_cast<uint16_t>(bits + 1)};
    const double above = bits == 0x7bff ? 65536 : exact_value(high);
    check_middle<Half>(low, high, static_cast<float>((exact_value(low) + above) / 2), to_half);
    if (HasFatalFailure()) FAIL() << bits;
  }
  EXPECT_EQ(to_half(1e30f).bits, 0x7c00);
  EXPECT_EQ(to_half(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(to_half(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TEST(Conversion, BFloat16sRoundToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const BFloat16 low{static_cast<uint16_t>(bits)}, high{static_cast<uint16_t>(bits + 1)};
    check_middle<BFloat16>(low, high, std::bit_cast<float>((bits << 16) | 0x8000u), to_bfloat16);
    if (HasFatalFailure()) FAIL() << bits;
  }
}

TEST(Conversion, ANaNStaysANaN) {
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7f801000u}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(to_float(to_half(nan)))) << bits;
    EXPECT_TRUE(std::isnan(to_float(to_bfloat16(nan)))) << bits;
  }
}

/// The hardware converts like the software, for all halves and a result of every size.
TEST(Conversion, EveryInstructionSetConvertsHalvesAlike) {
  std::vector<Half> all(65536), partners(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  for (size_t turn : {0u, 1u, 0x0c01u, 0x3c00u, 0x7bffu, 0x8001u}) {
    for (size_t i = 0; i < all.size(); ++i) partners[i] = all[(i * 7 + turn) % all.size()];
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kAverage}) {
      const std::vector<Half> expected = reference<Half>(op, {all, partners}, all.size(), 3);
      for (const kernels::Kernels* table : kernels::available()) {
        std::vector<Half> result(all.size());
        const void* sources[] = {all.data(), partners.data()};
        void* destinations[] = {result.data()};
        kernels::reduce_tree(*table, op, DataType::kHalf, sources, destinations, all.size(), 3, Stores::kCached);
        ASSERT_EQ(first_difference(result, expected), all.size()) << table->name << " " << name_of(op);
      }
    }
  }
}

}  // namespace
}  // namespace trireme
