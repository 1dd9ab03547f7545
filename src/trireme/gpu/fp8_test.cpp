// 8-bit copies of matrices and their products: exact bits of the copies, products against sums in double.
#include "trireme/gpu/fp8.h"

#include <cuda_fp8.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/gpu/gpu_test_util.h"
#include "trireme/gpu/kernels/norm.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/matmul_fp8.h"

namespace trireme::gpu {
namespace {

__nv_fp8_interpretation_t interpretation(Fp8 type) { return type == Fp8::kE4M3 ? __NV_E4M3 : __NV_E5M2; }

uint8_t to_fp8(float value, Fp8 type) {
  if (!std::isfinite(value)) value = NAN;
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, interpretation(type));
}

double value_of(uint8_t bits, Fp8 type) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, interpretation(type))));
}

bool is_nan(uint8_t bits, Fp8 type) { return type == Fp8::kE4M3 ? (bits & 0x7F) == 0x7F : (bits & 0x7F) > 0x7C; }

std::vector<uint8_t> transposed(const std::vector<uint8_t>& x, size_t rows, size_t cols) {
  std::vector<uint8_t> y(x.size());
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) y[j * rows + i] = x[i * cols + j];
  }
  return y;
}

class Fp8Test : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && !has_fp8(survey().devices[0])) GTEST_SKIP() << "the GPU has no products in 8 bits: not run";
  }

  static DeviceMemory new_scale(Fp8 type, float scale = 1) {
    Fp8Scale state;
    state.largest = largest_of(type);
    state.scale = scale;
    state.inverse = 1 / scale;
    return to_device(std::vector<Fp8Scale>{state});
  }

  static Fp8Scale read(const DeviceMemory& state) { return to_host<Fp8Scale>(state)[0]; }

  static void settle() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
};

/// A matrix on the device in 8 bits, with the values that the bits mean.
struct Quantised {
  Quantised(const std::vector<float>& values, int64_t rows, int64_t cols, Fp8 type_, cudaStream_t stream)
      : type(type_), memory(static_cast<size_t>(rows * cols)), scale(sizeof(Fp8Scale)) {
    Fp8Scale state;
    state.largest = largest_of(type);
    check(cudaMemcpy(scale.get(), &state, sizeof state, cudaMemcpyDefault), "cudaMemcpy");
    const auto from = to_device(values, Type::kBFloat16);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    measure(from.get(), rows * cols, scale.get<Fp8Scale>(), stream);
    update_scales(scale.get<Fp8Scale>(), 1, stream);
    quantise(from.get(), rows, cols, type, scale.get<Fp8Scale>(), memory.get(), nullptr, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const double inverse = to_host<Fp8Scale>(scale)[0].inverse;
    for (const uint8_t bits : to_host<uint8_t>(memory)) meant.push_back(value_of(bits, type) * inverse);
  }
  Fp8Operand operand() const { return {memory.get(), type, scale.get<Fp8Scale>()}; }

  Fp8 type;
  DeviceMemory memory, scale;
  std::vector<double> meant;
};

constexpr std::pair<int64_t, int64_t> kSizes[] = {{128, 128}, {16, 16}, {16, 272}, {400, 48}, {256, 1040}, {1936, 144}};

TEST_F(Fp8Test, CopiesHaveTheBitsOfRoundingToNearest) {
  for (const Fp8 type : {Fp8::kE4M3, Fp8::kE5M2}) {
    for (const auto& [rows, cols] : kSizes) {
      const std::string what = fmt::format("[{}, {}], type {}", rows, cols, static_cast<int>(type));
      const float scale = 16;
      auto x = random_values(rows * cols, Type::kBFloat16, 7, 2);
      x[1] = 1e30f, x[2] = -1e30f, x[3] = 0, x[4] = 1e-30f, x[17] = 3e38f;
      const auto from = to_device(x, Type::kBFloat16);
      const auto state = new_scale(type, scale);
      const DeviceMemory out(x.size()), turned(x.size()), only_turned(x.size()), only_out(x.size());
      settle();
      quantise(from.get(), rows, cols, type, state.get<Fp8Scale>(), out.get(), turned.get(), stream_);
      quantise(from.get(), rows, cols, type, state.get<Fp8Scale>(), nullptr, only_turned.get(), stream_);
      quantise(from.get(), rows, cols, type, state.get<Fp8Scale>(), only_out.get(), nullptr, stream_);
      wait();
      std::vector<uint8_t> expected(x.size());
      float amax = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = rounded(x[i], Type::kBFloat16);
        expected[i] = to_fp8(std::min(std::max(x[i] * scale, -1e38f), 1e38f), type);
        amax = std::max(amax, std::abs(x[i]));
      }
      const auto written = to_host<uint8_t>(out);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(written[i], expected[i]) << what << ", element " << i << " of value " << x[i];
      }
      EXPECT_EQ(to_host<uint8_t>(turned), transposed(expected, rows, cols)) << what;
      EXPECT_EQ(to_host<uint8_t>(only_turned), transposed(expected, rows, cols)) << what;
      EXPECT_EQ(to_host<uint8_t>(only_out), expected) << what;
      EXPECT_EQ(read(state).amax, __builtin_bit_cast(uint32_t, amax)) << what;
    }
  }
}

/// Within what sums of floats lose.
void expect_column_sums(const std::vector<float>& sums, const std::vector<float>& matrix, const std::string& what) {
  std::vector<double> expected(sums.size()), sizes(sums.size());
  for (size_t i = 0; i < matrix.size(); ++i) {
    expected[i % sums.size()] += matrix[i];
    sizes[i % sums.size()] += std::abs(matrix[i]);
  }
  expect_close(sums, expected, 1e-6, *std::max_element(sizes.begin(), sizes.end()) * 1e-5, "sums of columns " + what);
}

/// In one pass or one after another: the same bits, the same largest value, and sums of the columns.
TEST_F(Fp8Test, PassesThatAreOneHaveTheBitsOfSeveral) {
  for (const auto& [rows, cols] : kSizes) {
    const std::string what = fmt::format("[{}, {}]", rows, cols);
    const auto count = static_cast<size_t>(rows * cols);
    const auto x = to_device(random_values(rows * cols, Type::kBFloat16, 3, 2), Type::kBFloat16);
    const auto other = to_device(random_values(rows * cols, Type::kBFloat16, 4), Type::kBFloat16);
    const auto weight = to_device(random_values(cols, Type::kFloat, 5)),
               shift = to_device(random_values(cols, Type::kFloat, 6));
    const DeviceMemory made(count * 2), mean(static_cast<size_t>(rows) * 4), rstd(static_cast<size_t>(rows) * 4);
    const DeviceMemory alone(static_cast<size_t>(rows) * 4), alone_rstd(static_cast<size_t>(rows) * 4);
    const DeviceMemory sums(static_cast<size_t>(cols) * 4), room(quantise_gradient_scratch(rows, cols));
    struct Result {
      DeviceMemory out, turned, scale;
    };
    const auto result = [&](Fp8 type) {
      return Result{DeviceMemory(count), DeviceMemory(count), new_scale(type, type == Fp8::kE4M3 ? 32 : 1024)};
    };
    const auto expect_same = [&](const Result& one, const Result& several, const char* name) {
      EXPECT_EQ(to_host<uint8_t>(one.out), to_host<uint8_t>(several.out)) << name << " " << what;
      EXPECT_EQ(to_host<uint8_t>(one.turned), to_host<uint8_t>(several.turned)) << name << " " << what;
      EXPECT_EQ(read(one.scale).amax, read(several.scale).amax) << name << " " << what;
      EXPECT_GT(read(one.scale).amax, 0u) << name << " " << what;
    };
    const auto several = [&](Fp8 type) {
      Result expected = result(type);
      quantise(made.get(), rows, cols, type, expected.scale.get<Fp8Scale>(), expected.out.get(), expected.turned.get(),
               stream_);
      return expected;
    };
    settle();
    {
      const Result got = result(Fp8::kE4M3);
      gelu(x.get(), made.get(), rows * cols, Type::kBFloat16, stream_);
      quantise_gelu(x.get(), rows, cols, got.scale.get<Fp8Scale>(), got.out.get(), got.turned.get(), stream_);
      const Result wanted = several(Fp8::kE4M3);
      wait();
      expect_same(got, wanted, "gelu");
    }
    {
      const NormShape shape{rows, cols, Type::kBFloat16};
      const Result got = result(Fp8::kE4M3);
      layer_norm(shape, x.get(), weight.get<float>(), shift.get<float>(), 1e-5f, made.get(), mean.get<float>(),
                 rstd.get<float>(), stream_);
      layer_norm(shape, x.get(), weight.get<float>(), shift.get<float>(), 1e-5f, nullptr, alone.get<float>(),
                 alone_rstd.get<float>(), stream_);
      const Fp8Norm norm{weight.get<float>(), shift.get<float>(), alone.get<float>(), alone_rstd.get<float>()};
      quantise_layer_norm(x.get(), norm, rows, cols, got.scale.get<Fp8Scale>(), got.out.get(), got.turned.get(),
                          stream_);
      const Result wanted = several(Fp8::kE4M3);
      wait();
      EXPECT_EQ(to_host<float>(alone), to_host<float>(mean)) << what;
      EXPECT_EQ(to_host<float>(alone_rstd), to_host<float>(rstd)) << what;
      expect_same(got, wanted, "layer norm");
    }
    for (const bool through_gelu : {false, true}) {
      for (const bool with_sums : {false, true}) {
        const Result got = result(Fp8::kE5M2);
        if (through_gelu) {
          gelu_backward(other.get(), x.get(), made.get(), rows * cols, Type::kBFloat16, stream_);
        } else {
          check(cudaMemcpyAsync(made.get(), x.get(), count * 2, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
        }
        quantise_gradient(x.get(), through_gelu ? other.get() : nullptr, rows, cols, got.scale.get<Fp8Scale>(),
                          got.out.get(), got.turned.get(), with_sums ? sums.get<float>() : nullptr, room.get(),
                          stream_);
        const Result wanted = several(Fp8::kE5M2);
        wait();
        expect_same(got, wanted, through_gelu ? "gradient through gelu" : "gradient");
        if (with_sums) expect_column_sums(to_host<float>(sums), to_host(made, Type::kBFloat16), what);
      }
    }
  }
}

TEST_F(Fp8Test, WhatIsNotFiniteStaysVisible) {
  for (const Fp8 type : {Fp8::kE4M3, Fp8::kE5M2}) {
    std::vector<float> x(256, 1.0f);
    x[3] = INFINITY, x[100] = -INFINITY, x[200] = NAN;
    const auto from = to_device(x, Type::kBFloat16);
    const auto state = new_scale(type);
    const DeviceMemory out(x.size()), turned(x.size());
    settle();
    quantise(from.get(), 16, 16, type, state.get<Fp8Scale>(), out.get(), turned.get(), stream_);
    update_scales(state.get<Fp8Scale>(), 1, stream_);
    wait();
    const auto bits = to_host<uint8_t>(out);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(is_nan(bits[i], type), !std::isfinite(x[i])) << i;
    EXPECT_EQ(read(state).scale, 1);  // a bad step must not spoil the scale
    EXPECT_EQ(read(state).amax, 0u);
    EXPECT_EQ(read(state).position, 0);
  }
}

TEST_F(Fp8Test, TheScaleFollowsTheLargestOfTheLastSteps) {
  for (const Fp8 type : {Fp8::kE4M3, Fp8::kE5M2}) {
    const auto state = new_scale(type);
    std::vector<float> seen;
    for (int step = 0; step < 40; ++step) {
      const float largest =
          rounded(std::exp2(static_cast<float>(8 - step)) * (1 + 0.03f * static_cast<float>(step)), Type::kBFloat16);
      std::vector<float> x = random_values(1003, Type::kBFloat16, static_cast<uint32_t>(step), largest / 10);
      for (float& value : x) value = std::min(std::max(value, -largest), largest);
      x[static_cast<size_t>(step * 25)] = -largest;
      const auto from = to_device(x, Type::kBFloat16);
      settle();
      measure(from.get(), 1003, state.get<Fp8Scale>(), stream_);
      update_scales(state.get<Fp8Scale>(), 1, stream_);
      wait();
      seen.push_back(largest);
      const size_t first = seen.size() > 16 ? seen.size() - 16 : 0;
      const float most = *std::max_element(seen.begin() + static_cast<std::ptrdiff_t>(first), seen.end());
      const Fp8Scale now = read(state);
      EXPECT_LE(most * now.scale, largest_of(type)) << "step " << step;
      EXPECT_GT(most * now.scale * 2, largest_of(type)) << "step " << step;
      EXPECT_EQ(now.scale * now.inverse, 1) << "step " << step;
      EXPECT_EQ(std::exp2(std::round(std::log2(now.scale))), now.scale) << "not a power of two at step " << step;
    }
  }
}

TEST_F(Fp8Test, ZerosLeaveTheScale) {
  const auto state = new_scale(Fp8::kE4M3, 4);
  const auto from = to_device(std::vector<float>(256, 0.0f), Type::kBFloat16);
  settle();
  measure(from.get(), 256, state.get<Fp8Scale>(), stream_);
  update_scales(state.get<Fp8Scale>(), 1, stream_);
  wait();
  EXPECT_EQ(read(state).scale, 4);
}

/// Against the products of what the bits mean, so the bound is that of sums. The units keep about 14 bits of a sum:
/// with fast accumulation each of k / 32 steps may lose 2^-14 of it, without it only the 4 steps of each 128 terms.
TEST_F(Fp8Test, ProductsAreThoseOfTheCopies) {
  const std::tuple<int64_t, int64_t, int64_t> sizes[] = {{128, 256, 512}, {16, 32, 48}, {272, 144, 1024}};
  const std::tuple<Fp8, Fp8, bool> kinds[] = {{Fp8::kE4M3, Fp8::kE4M3, true},
                                              {Fp8::kE4M3, Fp8::kE4M3, false},
                                              {Fp8::kE5M2, Fp8::kE4M3, false},
                                              {Fp8::kE4M3, Fp8::kE5M2, false}};
  for (const auto& [m, n, k] : sizes) {
    const float deviation = 1 / std::sqrt(static_cast<float>(k));
    const auto add = random_values(m * n, Type::kBFloat16, 3), bias = random_values(n, Type::kBFloat16, 4);
    const auto bias_memory = to_device(bias, Type::kBFloat16);
    for (const auto& [a_type, b_type, fast] : kinds) {
      const Quantised a(random_values(m * k, Type::kBFloat16, 1), m, k, a_type, stream_);
      const Quantised b(random_values(n * k, Type::kBFloat16, 2, deviation), n, k, b_type, stream_);
      std::vector<double> product(static_cast<size_t>(m * n));
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            sum += a.meant[static_cast<size_t>(i * k + l)] * b.meant[static_cast<size_t>(j * k + l)];
          }
          product[static_cast<size_t>(i * n + j)] = sum;
        }
      }
      for (const Type out_type : {Type::kBFloat16, Type::kFloat}) {
        for (const bool accumulates : {false, true}) {
          for (const Epilogue epilogue :
               {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward}) {
            const bool is_gelu = epilogue >= Epilogue::kBiasGelu;
            if (is_gelu && out_type == Type::kFloat) continue;
            const std::string what =
                fmt::format("[{}, {}] · [{}, {}]ᵀ, types {} and {}, {}, to {}, add {}, epilogue {}", m, k, n, k,
                            static_cast<int>(a_type), static_cast<int>(b_type), fast ? "fast" : "exact",
                            name_of(out_type), accumulates, static_cast<int>(epilogue));
            const auto out = accumulates ? to_device(add, out_type) : DeviceMemory(add.size() * size_of(out_type));
            const auto aux = to_device(add, Type::kBFloat16);
            settle();
            MatmulFp8 asked;
            asked.m = m, asked.n = n, asked.k = k;
            asked.a = a.operand(), asked.b = b.operand();
            asked.out = out.get(), asked.out_type = out_type;
            if (accumulates) asked.add = out.get();
            asked.epilogue = epilogue;
            asked.bias = bias_memory.get(), asked.aux = aux.get();
            asked.fast_accumulation = fast;
            matmul_fp8(asked, stream_);
            wait();
            const auto tanh_of = [](double x) { return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); };
            std::vector<double> expected(product);
            for (size_t i = 0; i < expected.size(); ++i) {
              double& x = expected[i];
              if (accumulates) x += add[i];
              if (epilogue == Epilogue::kBias || epilogue == Epilogue::kBiasGelu) x += bias[i % static_cast<size_t>(n)];
              if (epilogue == Epilogue::kBiasGelu) x *= (1 + tanh_of(x)) / 2;
              if (epilogue == Epilogue::kGeluBackward) {
                const double y = add[i], t = tanh_of(y);
                x *= (1 + t) / 2 + y / 2 * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * y * y);
              }
            }
            const double u = rounding_of(out_type);
            const double passes = epilogue == Epilogue::kNone ? 0 : 4 * rounding_of(Type::kBFloat16);
            const double lost = fast ? 0x1p-14 * static_cast<double>(k) / 32 : 0x1.8p-12;
            // In place, cuBLASLt may round the product, of size 4 at most, before it adds.
            const double in_place = accumulates ? 4 * u : 0;
            expect_close(to_host(out, out_type), expected, 1.01 * u + (is_gelu ? 2 * u : 0) + lost,
                         4 * lost + 1e-4 + in_place + (out_type == Type::kBFloat16 ? 2 * passes : 0), what);
          }
        }
      }
    }
  }
}

/// The whole way, from bfloat16: the error is that of 3 bits of fraction, about 2.6% an operand for normal values.
TEST_F(Fp8Test, ProductsAreCloseToThoseOfTheOriginals) {
  const int64_t m = 128, n = 96, k = 768;
  const auto x = random_values(m * k, Type::kBFloat16, 1), y = random_values(n * k, Type::kBFloat16, 2, 0.02f);
  const Quantised a(x, m, k, Fp8::kE4M3, stream_), b(y, n, k, Fp8::kE4M3, stream_);
  const DeviceMemory out(static_cast<size_t>(m * n) * 2);
  settle();
  MatmulFp8 asked;
  asked.m = m, asked.n = n, asked.k = k;
  asked.a = a.operand(), asked.b = b.operand(), asked.out = out.get();
  matmul_fp8(asked, stream_);
  wait();
  const auto got = to_host(out, Type::kBFloat16);
  double error = 0, size = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += static_cast<double>(x[static_cast<size_t>(i * k + l)]) * y[static_cast<size_t>(j * k + l)];
      }
      const double difference = got[static_cast<size_t>(i * n + j)] - sum;
      error += difference * difference;
      size += sum * sum;
    }
  }
  EXPECT_LT(std::sqrt(error / size), 0.05);
  EXPECT_GT(std::sqrt(error / size), 0.01);
}

TEST_F(Fp8Test, RefusesSizesThatAreNotMultiplesOf16) {
  const auto state = new_scale(Fp8::kE4M3);
  MatmulFp8 asked;
  asked.m = 16, asked.n = 24, asked.k = 16;
  asked.a.scale = asked.b.scale = state.get<Fp8Scale>();
  try {
    matmul_fp8(asked, stream_);
    FAIL() << "not refused";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("24 is not a multiple of 16"), std::string::npos) << error.what();
  }
  asked.n = 16;
  asked.a.type = asked.b.type = Fp8::kE5M2;
  EXPECT_THROW(matmul_fp8(asked, stream_), UsageError);
  EXPECT_THROW(quantise(nullptr, 16, 17, Fp8::kE4M3, state.get<Fp8Scale>(), nullptr, nullptr, stream_), UsageError);
}

}  // namespace
}  // namespace trireme::gpu
