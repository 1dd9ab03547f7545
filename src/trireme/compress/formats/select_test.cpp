// Tests that the chosen elements are exactly the largest, that choices repeat, and that the sparse format keeps them.
#include "trireme/compress/formats/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/formats/sparse_format.h"

namespace trireme {
namespace {

/// By a sort: larger magnitudes first (a NaN before all), then smaller indices.
std::vector<uint32_t> largest_by_sort(const std::vector<float>& values, size_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto bits = [&](uint32_t i) { return std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu; };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return bits(a) > bits(b); });
  order.resize(std::min(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

TEST(SelectLargest, IsExactForOddSizes) {
  for (const size_t count : {1, 2, 17, 1000, 4097, 65536, 200001}) {
    const std::vector<float> values = test_values(count, count);
    for (const double density : {0.0001, 0.01, 0.3, 1.0}) {
      const size_t k = kept_elements(count, density);
      for (const auto* kernels : compress_kernels::available()) {
        ASSERT_EQ(select_largest(*kernels, values, k), largest_by_sort(values, k)) << count << " " << density;
      }
    }
  }
}

TEST(SelectLargest, IsExactWhereASampleMisleads) {
  // Few large values that a stride may miss or meet too often, many equal ones, and nothing but zeros.
  std::vector<float> rare(300000, 0.f), equal(300000, 0.5f), steps(300000), periodic = test_values(300000, 2);
  for (size_t i = 0; i < 50; ++i) rare[i * 5000 + 3] = static_cast<float>(i) - 25;
  for (size_t i = 0; i < steps.size(); ++i) steps[i] = static_cast<float>(i % 3);
  for (size_t i = 0; i < periodic.size(); i += 19) periodic[i] *= 1000;
  for (const auto& values : {rare, equal, steps, periodic, std::vector<float>(300000, 0.f)}) {
    for (const size_t k : {1, 49, 51, 3000, 100001, 299999}) {
      ASSERT_EQ(select_largest(values, k), largest_by_sort(values, k)) << k;
    }
  }
}

TEST(SelectLargest, TakesWhatIsNotFiniteFirst) {
  std::vector<float> values = test_values(5000, 1);
  values[4000] = std::numeric_limits<float>::quiet_NaN();
  values[100] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(select_largest(values, 2), (std::vector<uint32_t>{100, 4000}));
  EXPECT_EQ(select_largest(values, 1), (std::vector<uint32_t>{4000}));
  EXPECT_EQ(select_largest({}, 3), std::vector<uint32_t>{});
}

TEST(SparseFormat, KeepsEveryBitAndHasThePromisedSize) {
  for (const size_t count : {0, 1, 65535, 65536, 65537, 200000}) {
    for (const double density : {0.001, 0.5, 1.0}) {
      const std::vector<float> values = test_values(count, 3);
      const std::vector<uint32_t> indices = select_largest(values, kept_elements(count, density));
      std::vector<float> chosen, expected(count, 0.f), out(count, 0.f);
      for (const uint32_t index : indices) chosen.push_back(expected[index] = values[index]);
      std::vector<uint8_t> wire(sparse_bytes(count, indices.size()));
      encode_sparse(count, indices, chosen, wire);
      EXPECT_EQ(wire.size(), 4 * ((count + 65535) / 65536) + 6 * indices.size());
      add_sparse(wire, out);
      ASSERT_EQ(out, expected) << count << " " << density;
    }
  }
}

TEST(SparseFormat, RefusesWhatDoesNotFit) {
  std::vector<float> out(70000);
  std::vector<uint8_t> wire(sparse_bytes(70000, 2));
  encode_sparse(70000, std::vector<uint32_t>{1, 65999}, std::vector<float>{1, 2}, wire);
  for (size_t cut = 0; cut < wire.size(); ++cut) {
    EXPECT_THROW(add_sparse(std::span(wire).first(cut), out), Error) << cut;
  }
  out.resize(65990);  // the second index lies behind it
  EXPECT_THROW(add_sparse(wire, out), Error);
  for (size_t at = 0; at < 8; ++at) {  // wrong counts
    std::vector<uint8_t> wrong = wire;
    wrong[at] ^= 0x85;
    std::vector<float> room(70000);
    EXPECT_THROW(add_sparse(wrong, room), Error) << at;
  }
}

}  // namespace
}  // namespace trireme
