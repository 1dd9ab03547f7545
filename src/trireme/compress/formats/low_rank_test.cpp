// Tests that thin products are right, the same from every instruction set, and that columns become orthonormal.
#include "trireme/compress/formats/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/formats/kernels.h"

namespace trireme {
namespace {

using compress_kernels::Store;

TEST(LowRank, ProductsAreRightAndTheSameFromEveryInstructionSet) {
  const auto tables = compress_kernels::available();
  for (const size_t rows : {1, 3, 4, 17, 70}) {
    for (const size_t columns : {1, 15, 16, 33, 1030}) {
      for (const size_t rank : {1, 2, 3, 4, 7, 9}) {
        const std::vector<float> m = test_values(rows * columns, 1), q = test_values(rank * columns, 2),
                                 p = test_values(rows * rank, 3);
        std::vector<float> first_p, first_q, first_out;
        for (const auto* kernels : tables) {
          std::vector<float> mq(rows * rank), mp(columns * rank), out = m;
          kernels->project(m.data(), rows, columns, q.data(), rank, mq.data());
          kernels->project_back(m.data(), rows, columns, p.data(), rank, mp.data());
          kernels->expand(p.data(), q.data(), rows, columns, rank, Store::kSubtract, out.data());
          if (first_p.empty()) {
            first_p = mq;
            first_q = mp;
            first_out = out;
            std::vector<float> set(rows * columns), added(rows * columns);
            kernels->expand(p.data(), q.data(), rows, columns, rank, Store::kSet, set.data());
            kernels->expand(p.data(), q.data(), rows, columns, rank, Store::kAdd, added.data());
            for (size_t i = 0; i < rows; ++i) {
              for (size_t k = 0; k < rank; ++k) {
                double sum = 0;
                for (size_t j = 0; j < columns; ++j)
                  sum += static_cast<double>(m[i * columns + j]) * q[k * columns + j];
                ASSERT_NEAR(mq[i * rank + k], sum, 1e-5);
              }
              for (size_t j = 0; j < columns; ++j) {
                double sum = 0;
                for (size_t k = 0; k < rank; ++k) sum += static_cast<double>(p[i * rank + k]) * q[k * columns + j];
                ASSERT_NEAR(set[i * columns + j], sum, 1e-6);
                ASSERT_NEAR(added[i * columns + j], sum, 1e-6);
                ASSERT_NEAR(out[i * columns + j], m[i * columns + j] - sum, 1e-6);
              }
            }
            for (size_t k = 0; k < rank; ++k) {
              for (size_t j = 0; j < columns; ++j) {
                double sum = 0;
                for (size_t i = 0; i < rows; ++i) sum += static_cast<double>(m[i * columns + j]) * p[i * rank + k];
                ASSERT_NEAR(mp[k * columns + j], sum, 1e-5);
              }
            }
          }
          ASSERT_EQ(bits_of(mq), bits_of(first_p)) << kernels->name;
          ASSERT_EQ(bits_of(mp), bits_of(first_q)) << kernels->name;
          ASSERT_EQ(bits_of(out), bits_of(first_out)) << kernels->name;
        }
      }
    }
  }
}

TEST(LowRank, ColumnsBecomeOrthonormal) {
  constexpr size_t kRows = 701, kRank = 6;
  std::vector<float> p = test_values(kRows * kRank, 4);
  for (size_t i = 0; i < kRows; ++i) {
    p[i * kRank + 2] = 3 * p[i * kRank] - p[i * kRank + 1];  // depends on the two before it
    p[i * kRank + 3] = 0;
    p[i * kRank + 5] = p[i * kRank + 4] + 1e-4f * p[i * kRank + 5];  // nearly parallel
  }
  LowRank shape{.rank = kRank};
  shape.add(0, kRows, 1);
  make_orthonormal(shape, p);
  for (size_t a = 0; a < kRank; ++a) {
    for (size_t b = 0; b < kRank; ++b) {
      double dot = 0;
      for (size_t i = 0; i < kRows; ++i) dot += static_cast<double>(p[i * kRank + a]) * p[i * kRank + b];
      EXPECT_NEAR(dot, a == b && a != 2 && a != 3 ? 1 : 0, 1e-6) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace trireme
