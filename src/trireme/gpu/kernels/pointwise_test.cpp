// Activations, rotary positions, sums over columns and conversions against references in double precision.
#include "trireme/gpu/kernels/pointwise.h"

#include <cmath>
#include <string>

#include "trireme/base/philox.h"
#include "trireme/gpu/gpu_test_util.h"

namespace trireme::gpu {
namespace {

constexpr Type kTypes[] = {Type::kFloat, Type::kHalf, Type::kBFloat16};

class PointwiseTest : public GpuTest {};

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }
double gelu_gate(double x) { return sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }
double gelu_slope(double x) {
  const double s = gelu_gate(x);
  return s + x * s * (1 - s) * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
/// Of the result's rounding and of the arithmetic before it: the fast exponential in 2-byte types.
double bound_of(Type type) { return type == Type::kFloat ? 2e-6 : 1.02 * rounding_of(type); }
double least_of(Type type) { return type == Type::kHalf ? 6e-8 : 1e-7; }  // half's numbers end at 2^-24

TEST_F(PointwiseTest, DropoutHasTheMaskOfTheCpu) {
  const Philox numbers(7, "layers.3.mlp", 41);
  for (const Type type : kTypes) {
    for (const uint64_t first : {0, 1, 6, 4099}) {
      for (const int64_t count : {1, 3, 8, 4097, 100003}) {
        SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(count) + " from " + std::to_string(first));
        const auto x = random_values(count, type, 1, 3);
        DropoutMask mask;
        mask.key[0] = numbers.key()[0];
        mask.key[1] = numbers.key()[1];
        mask.step = numbers.step();
        mask.first = first;
        mask.p = 0.25f;
        mask.kept = 4.f / 3;
        const DeviceMemory from = to_device(x, type), to(from.bytes());
        dropout(from.get(), to.get(), count, mask, type, stream_);
        wait();
        const auto y = to_host(to, type);
        size_t dropped = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const bool drops = numbers.uniform(first + i) < mask.p;
          dropped += drops;
          ASSERT_NEAR(y[i], drops ? 0 : x[i] * 4 / 3, 2.1 * rounding_of(type) * std::abs(x[i]) * 4 / 3 + 1e-7) << i;
        }
        if (count > 4000) {
          EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(count), 0.25, 0.03);
        }
      }
    }
  }
}

TEST_F(PointwiseTest, Gelu) {
  for (const Type type : kTypes) {
    for (const int64_t count : {1, 7, 8, 4096, 8191, 100003}) {
      for (const size_t shift : {0, 1}) {
        SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(count) + " shift " + std::to_string(shift));
        const auto x = random_values(count, type, 1, 3), gradient = random_values(count, type, 2);
        std::vector<double> y, dx;
        for (size_t i = 0; i < x.size(); ++i) {
          y.push_back(x[i] * gelu_gate(x[i]));
          dx.push_back(gradient[i] * gelu_slope(x[i]));
        }
        const size_t bytes = shift * size_of(type);
        const DeviceMemory from = to_device(x, type, bytes), dy = to_device(gradient, type, bytes),
                           to(from.bytes(), bytes), back(from.bytes(), bytes);
        gelu(from.get(), to.get(), count, type, stream_);
        gelu_backward(from.get(), dy.get(), back.get(), count, type, stream_);
        gelu(from.get(), from.get(), count, type, stream_);
        wait();
        expect_close(to_host(to, type), y, bound_of(type), least_of(type), "y");
        expect_close(to_host(from, type), y, bound_of(type), least_of(type), "y in place");
        expect_close(to_host(back, type), dx, bound_of(type), 2e-6, "dx");
      }
    }
  }
}

TEST_F(PointwiseTest, GeluOfGreatNumbers) {
  const std::vector<float> x{-60000, -100, -20, 0, 20, 100, 60000, INFINITY, NAN};
  const DeviceMemory from = to_device(x, Type::kFloat), to(from.bytes());
  gelu(from.get(), to.get(), static_cast<int64_t>(x.size()), Type::kFloat, stream_);
  wait();
  expect_close(to_host<float>(to), {0, 0, 0, 0, 20, 100, 60000, INFINITY, NAN}, 1e-7, 1e-30, "y");
}

TEST_F(PointwiseTest, Swiglu) {
  struct Shape {
    int64_t rows, width, stride;
    size_t up;  ///< where up starts, behind gate
  };
  for (const Type type : kTypes) {
    for (const Shape s : {Shape{1, 1, 2, 1},
                          {3, 7, 15, 7},
                          {5, 64, 128, 64},
                          {130, 344, 688, 344},
                          {33, 101, 202, 101},
                          {17, 2048, 4112, 2056}}) {
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(s.rows) + " x " + std::to_string(s.width));
      const SwigluShape shape{s.rows, s.width, s.stride, type};
      const auto both = random_values(s.rows * s.stride, type, 1, 2);
      const auto gradient = random_values(s.rows * s.width, type, 2);
      std::vector<double> y, d_both(both.size(), NAN);  // what lies between the rows stays as it was
      for (int64_t i = 0; i < s.rows; ++i) {
        for (int64_t j = 0; j < s.width; ++j) {
          const auto at = static_cast<size_t>(i * s.stride + j), g = static_cast<size_t>(i * s.width + j);
          const double gate = both[at], up = both[at + s.up], sig = sigmoid(gate);
          y.push_back(gate * sig * up);
          d_both[at] = gradient[g] * up * sig * (1 + gate * (1 - sig));
          d_both[at + s.up] = gradient[g] * gate * sig;
        }
      }
      const DeviceMemory from = to_device(both, type), dy = to_device(gradient, type), to(dy.bytes()),
                         d_from(from.bytes());
      const auto up_of = [&](const DeviceMemory& m) { return m.get<char>() + s.up * size_of(type); };
      swiglu(shape, from.get(), up_of(from), to.get(), stream_);
      swiglu_backward(shape, from.get(), up_of(from), dy.get(), d_from.get(), up_of(d_from), stream_);
      wait();
      expect_close(to_host(to, type), y, bound_of(type), least_of(type), "y");
      expect_close(to_host(d_from, type), d_both, bound_of(type), 4e-6, "gradients");
    }
  }
}

TEST_F(PointwiseTest, Rotary) {
  struct Shape {
    int64_t rows, seq, heads, head_dim, stride;
  };
  for (const Type type : kTypes) {
    for (const Shape s :
         {Shape{6, 3, 2, 2, 4}, {10, 5, 3, 6, 25}, {64, 16, 4, 64, 768}, {50, 25, 3, 128, 400}, {513, 3, 1, 16, 16}}) {
      SCOPED_TRACE(std::string(name_of(type)) + " rows " + std::to_string(s.rows) + " of " +
                   std::to_string(s.head_dim));
      const int64_t half = s.head_dim / 2;
      std::vector<float> cosine, sine;
      for (int64_t i = 0; i < s.seq * half; ++i) {
        const double angle = static_cast<double>(i / half) * std::pow(10000.0, -static_cast<double>(i % half) / half);
        cosine.push_back(static_cast<float>(std::cos(angle))), sine.push_back(static_cast<float>(std::sin(angle)));
      }
      const auto x = random_values(s.rows * s.stride, type, 3);
      const DeviceMemory cosines = to_device(cosine), sines = to_device(sine);
      for (const bool back : {false, true}) {
        std::vector<double> expected(x.begin(), x.end());
        for (int64_t row = 0; row < s.rows; ++row) {
          for (int64_t k = 0; k < s.heads * half; ++k) {
            const auto low = static_cast<size_t>(row * s.stride + k / half * s.head_dim + k % half);
            const auto high = low + static_cast<size_t>(half);
            const auto angle = static_cast<size_t>(row % s.seq * half + k % half);
            const double c = cosine[angle], n = back ? -sine[angle] : sine[angle];
            expected[low] = x[low] * c - x[high] * n;
            expected[high] = x[high] * c + x[low] * n;
          }
        }
        const DeviceMemory data = to_device(x, type);
        rotate({s.rows, s.seq, s.heads, s.head_dim, s.stride, type}, data.get(), cosines.get<float>(),
               sines.get<float>(), back, stream_);
        wait();
        expect_close(to_host(data, type), expected, 1.01 * rounding_of(type), 1e-6, back ? "back" : "forth");
      }
    }
  }
}

TEST_F(PointwiseTest, ColumnSums) {
  struct Shape {
    int64_t rows, width;
    size_t shift;
  };
  for (const Type type : kTypes) {
    for (const Shape s : {Shape{0, 5, 0},
                          {1, 1, 0},
                          {3, 8, 0},
                          {1000, 33, 0},
                          {4097, 768, 0},
                          {4097, 768, 1},
                          {70, 50257, 0},
                          {129, 3072, 0},
                          {70000, 16, 0}}) {
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(s.rows) + " x " + std::to_string(s.width));
      const auto x = random_values(s.rows * s.width, type, 4);
      const auto width = static_cast<size_t>(s.width);
      std::vector<double> expected(width), sizes(width);
      for (size_t i = 0; i < x.size(); ++i) expected[i % width] += x[i], sizes[i % width] += std::abs(x[i]);
      const DeviceMemory from = to_device(x, type, s.shift * size_of(type)), sums(width * 4), again(width * 4),
                         scratch(column_sums_scratch(s.rows, s.width));
      column_sums(from.get(), s.rows, s.width, type, sums.get<float>(), scratch.get(), stream_);
      column_sums(from.get(), s.rows, s.width, type, again.get<float>(), scratch.get(), stream_);
      wait();
      const auto actual = to_host<float>(sums);
      EXPECT_EQ(actual, to_host<float>(again));
      for (size_t j = 0; j < width; ++j) {
        ASSERT_NEAR(actual[j], expected[j], 1e-6 * sizes[j]) << "column " << j;
      }
    }
  }
}

TEST_F(PointwiseTest, Convert) {
  for (const Type from_type : kTypes) {
    for (const Type to_type : kTypes) {
      for (const int64_t count : {1, 5, 1024, 50003}) {
        for (const size_t shift : {0, 1}) {
          SCOPED_TRACE(std::string(name_of(from_type)) + " to " + name_of(to_type) + " " + std::to_string(count));
          const auto x = random_values(count, from_type, 5, 10);
          std::vector<float> expected;
          for (const float value : x) expected.push_back(rounded(value, to_type));
          const DeviceMemory from = to_device(x, from_type, shift * size_of(from_type)),
                             to(x.size() * size_of(to_type), shift * size_of(to_type));
          convert(from.get(), from_type, to.get(), to_type, count, stream_);
          wait();
          EXPECT_EQ(to_host(to, to_type), expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::gpu
