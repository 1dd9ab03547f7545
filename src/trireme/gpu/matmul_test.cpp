// Matrix products against sums in double: transposes, epilogues, types, odd sizes, threads and captured graphs.
#include "trireme/gpu/matmul.h"

#include <fmt/format.h>

#include <thread>

#include "trireme/base/error.h"
#include "trireme/gpu/gpu_test_util.h"

namespace trireme::gpu {
namespace {

struct Size {
  int64_t m, n, k;
};

constexpr Size kProductSizes[] = {{128, 256, 64}, {64, 96, 160}, {40, 51, 64}, {37, 53, 71}, {33, 24, 7}, {1, 16, 32}};

enum class Add { kNone, kOther, kOut };

constexpr const char* name_of(Epilogue epilogue) {
  constexpr const char* kNames[] = {"none", "bias", "bias + gelu", "gelu backward"};
  return kNames[static_cast<size_t>(epilogue)];
}

double tanh_of(double x) { return std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)); }
double gelu_of(double x) { return x / 2 * (1 + tanh_of(x)); }
double slope_of_gelu(double x) {
  const double t = tanh_of(x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

std::vector<float> transposed(const std::vector<float>& x, int64_t rows, int64_t width) {
  std::vector<float> y(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < width; ++j) y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * width + j)];
  }
  return y;
}

/// The numbers of one product, and its result in double. The product's elements are about normally distributed.
struct Numbers {
  Numbers(const Size& size, Type type, Type out_type)
      : s(size),
        a(random_values(s.m * s.k, type, 1)),
        b(random_values(s.k * s.n, type, 2, 1 / std::sqrt(static_cast<float>(s.k)))),
        add(random_values(s.m * s.n, out_type, 3)),
        bias(random_values(s.n, type, 4)),
        aux(random_values(s.m * s.n, type, 5)),
        product(static_cast<size_t>(s.m * s.n)) {
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t l = 0; l < s.k; ++l) {
        const double x = a[static_cast<size_t>(i * s.k + l)];
        for (int64_t j = 0; j < s.n; ++j) {
          product[static_cast<size_t>(i * s.n + j)] += x * b[static_cast<size_t>(l * s.n + j)];
        }
      }
    }
  }

  Size s;
  std::vector<float> a, b, add, bias, aux;
  std::vector<double> product;
};

/// Every element within its own bound; prints the worst.
void expect_within(const std::vector<float>& actual, const std::vector<double>& expected,
                   const std::vector<double>& bounds, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  size_t wrong = 0, worst = 0;
  double most = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    double times = std::abs(actual[i] - expected[i]) / bounds[i];
    if (std::isnan(times)) times = HUGE_VAL;
    if (times > most) most = times, worst = i;
    wrong += times > 1;
  }
  EXPECT_EQ(wrong, 0u) << what << ": of " << actual.size() << " elements; the worst is " << worst << ": "
                       << actual[worst] << ", expected " << expected[worst] << ", " << most << " times the bound";
}

struct ProductCase {
  Type type = Type::kBFloat16, out_type = Type::kBFloat16;
  Epilogue epilogue = Epilogue::kNone;
  bool a_transposed = false, b_transposed = false, keeps_aux = true;
  Add add = Add::kNone;
  float alpha = 1;
  size_t shift = 0;  ///< elements by which operands are moved from a boundary of 16 bytes
};

struct Result {
  std::vector<unsigned char> out, aux;  ///< bytes
  std::vector<float> out_values, aux_values;
};

class MatmulTest : public GpuTest {
 protected:
  Result run(const Numbers& x, const ProductCase& c, cudaStream_t stream) {
    const size_t shift = c.shift * size_of(c.type);
    const auto a = to_device(c.a_transposed ? transposed(x.a, x.s.m, x.s.k) : x.a, c.type, shift);
    const auto b = to_device(c.b_transposed ? transposed(x.b, x.s.k, x.s.n) : x.b, c.type, shift);
    const auto bias = to_device(x.bias, c.type, shift);
    const bool backward = c.epilogue == Epilogue::kGeluBackward;
    const auto count = static_cast<size_t>(x.s.m * x.s.n);
    const auto aux = backward ? to_device(x.aux, c.type, shift) : DeviceMemory(count * size_of(c.type), shift);
    const size_t out_shift = c.shift * size_of(c.out_type);
    const auto other = to_device(x.add, c.out_type, out_shift);
    const auto out = c.add == Add::kOut ? to_device(x.add, c.out_type, out_shift)
                                        : DeviceMemory(count * size_of(c.out_type), out_shift);
    Matmul product;
    product.m = x.s.m, product.n = x.s.n, product.k = x.s.k;
    product.a = a.get(), product.b = b.get(), product.out = out.get();
    product.a_transposed = c.a_transposed, product.b_transposed = c.b_transposed;
    product.type = c.type, product.out_type = c.out_type;
    product.alpha = c.alpha;
    product.add = c.add == Add::kNone ? nullptr : c.add == Add::kOut ? out.get() : other.get();
    product.epilogue = c.epilogue;
    product.bias = bias.get();
    product.aux = c.keeps_aux ? aux.get() : nullptr;
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // what was copied and set does not wait for the stream
    matmul(product, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return {to_host<unsigned char>(out), to_host<unsigned char>(aux), to_host(out, c.out_type), to_host(aux, c.type)};
  }

  /// Bounds: sums in float (1e-5 for floats, 1e-4 for what tensor cores sum), one rounding of each value that a pass of
  /// its own may have stored, and 5e-4 for the tanh of a GELU.
  void expect_right(const Numbers& x, const ProductCase& c, const Result& result, const std::string& what) {
    const size_t count = x.product.size();
    std::vector<double> out(count), out_bounds(count), sums(count), sum_bounds(count);
    const double u = rounding_of(c.out_type), base = c.type == Type::kFloat ? 1e-5 : 1e-4;
    const bool has_bias = c.epilogue == Epilogue::kBias || c.epilogue == Epilogue::kBiasGelu;
    for (size_t i = 0; i < count; ++i) {
      const double product = c.alpha * x.product[i] + (c.add == Add::kNone ? 0 : x.add[i]);
      const double sum = product + (has_bias ? x.bias[i % static_cast<size_t>(x.s.n)] : 0);
      sums[i] = sum;
      sum_bounds[i] = base + u * std::abs(sum) * 1.01 + (has_bias ? u * std::abs(product) : 0);
      // In place, cuBLASLt may round each term, and adds them in an order of its own.
      if (c.add == Add::kOut) {
        sum_bounds[i] += u * (std::abs(c.alpha * x.product[i]) + std::abs(x.add[i]));
        if (has_bias) sum_bounds[i] += u * (std::abs(x.add[i]) + std::abs(x.bias[i % static_cast<size_t>(x.s.n)]));
      }
      out[i] = sum;
      out_bounds[i] = sum_bounds[i];
      if (c.epilogue == Epilogue::kBiasGelu) {
        out[i] = gelu_of(sum);
        out_bounds[i] = 1.2 * sum_bounds[i] + u * std::abs(out[i]) + 5e-4 * (1 + std::abs(sum));
      } else if (c.epilogue == Epilogue::kGeluBackward) {
        out[i] = sum * slope_of_gelu(x.aux[i]);
        out_bounds[i] = 1.2 * sum_bounds[i] + u * std::abs(out[i]) + 5e-4 * (1 + std::abs(x.aux[i])) * std::abs(sum);
      }
    }
    expect_within(result.out_values, out, out_bounds, what);
    if (c.epilogue == Epilogue::kBiasGelu && c.keeps_aux) {
      expect_within(result.aux_values, sums, sum_bounds, what + ", aux");
    }
  }

  void check_case(const Numbers& x, const ProductCase& c) {
    const std::string what = fmt::format("[{}, {}] · [{}, {}] of {} to {}, {}{}{}, add {}, shift {}", x.s.m, x.s.k,
                                         x.s.k, x.s.n, gpu::name_of(c.type), gpu::name_of(c.out_type),
                                         name_of(c.epilogue), c.a_transposed ? ", a transposed" : "",
                                         c.b_transposed ? ", b transposed" : "", static_cast<int>(c.add), c.shift);
    const Result first = run(x, c, stream_);
    expect_right(x, c, first, what);
    const Result again = run(x, c, stream_);
    EXPECT_TRUE(first.out == again.out && first.aux == again.aux) << what << ": other bits when run again";
  }
};

constexpr std::pair<Type, Type> kProductTypes[] = {{Type::kFloat, Type::kFloat},
                                                   {Type::kHalf, Type::kHalf},
                                                   {Type::kBFloat16, Type::kBFloat16},
                                                   {Type::kHalf, Type::kFloat},
                                                   {Type::kBFloat16, Type::kFloat}};

TEST_F(MatmulTest, EveryEpilogueTransposeTypeAndSize) {
  for (const auto& [type, out_type] : kProductTypes) {
    for (const Size& size : kProductSizes) {
      const Numbers numbers(size, type, out_type);
      for (int transposes = 0; transposes < 4; ++transposes) {
        for (const Epilogue epilogue :
             {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward}) {
          if (type != out_type && epilogue >= Epilogue::kBiasGelu) continue;
          ProductCase c{type, out_type, epilogue};
          c.a_transposed = transposes % 2, c.b_transposed = transposes / 2;
          check_case(numbers, c);
        }
      }
    }
  }
}

TEST_F(MatmulTest, AddsAMatrixThatMayBeTheOutput) {
  for (const auto& [type, out_type] : kProductTypes) {
    for (const Size& size : {kProductSizes[0], kProductSizes[3]}) {
      const Numbers numbers(size, type, out_type);
      for (const Add add : {Add::kOther, Add::kOut}) {
        for (const Epilogue epilogue :
             {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward}) {
          if (type != out_type && epilogue >= Epilogue::kBiasGelu) continue;
          ProductCase c{type, out_type, epilogue};
          c.b_transposed = true;
          c.add = add;
          c.alpha = 0.5f;
          check_case(numbers, c);
        }
      }
    }
  }
}

TEST_F(MatmulTest, MemoryNeedNotBeAlignedTo16Bytes) {
  for (const auto& [type, out_type] : kProductTypes) {
    const Numbers numbers(kProductSizes[0], type, out_type);
    for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBias, Epilogue::kBiasGelu, Epilogue::kGeluBackward}) {
      if (type != out_type && epilogue >= Epilogue::kBiasGelu) continue;
      ProductCase c{type, out_type, epilogue};
      c.shift = 1;
      check_case(numbers, c);
    }
  }
}

TEST_F(MatmulTest, GeluNeedNotKeepItsInput) {
  for (const Size& size : {kProductSizes[0], kProductSizes[3]}) {
    const Numbers numbers(size, Type::kBFloat16, Type::kBFloat16);
    ProductCase c;
    c.epilogue = Epilogue::kBiasGelu;
    c.keeps_aux = false;
    check_case(numbers, c);
  }
}

TEST_F(MatmulTest, SearchKeepsTheNumbers) {
  set_matmul_search(true);
  for (const Size& size : {kProductSizes[0], kProductSizes[3]}) {
    const Numbers numbers(size, Type::kBFloat16, Type::kBFloat16);
    for (const Add add : {Add::kNone, Add::kOther, Add::kOut}) {
      for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kBiasGelu, Epilogue::kGeluBackward}) {
        ProductCase c;
        c.epilogue = epilogue;
        c.add = add;
        check_case(numbers, c);
      }
    }
  }
  set_matmul_search(false);
}

TEST_F(MatmulTest, Tf32IsForThoseWhoAsk) {
  const Numbers numbers(kProductSizes[0], Type::kFloat, Type::kFloat);
  ProductCase c{Type::kFloat, Type::kFloat};
  const Result exact = run(numbers, c, stream_);
  set_float_matmul_tf32(true);
  const Result rough = run(numbers, c, stream_);
  set_float_matmul_tf32(false);
  expect_right(numbers, c, exact, "float");
  expect_close(rough.out_values, numbers.product, 2e-3, 4e-3, "tf32");
  EXPECT_NE(exact.out, rough.out);
}

TEST_F(MatmulTest, ACapturedGraphGivesTheSameBits) {
  const Numbers x(kProductSizes[0], Type::kBFloat16, Type::kBFloat16);
  ProductCase c;
  c.epilogue = Epilogue::kBiasGelu;
  const Result eager = run(x, c, stream_);
  warm_matmul(stream_);
  const auto a = to_device(x.a, c.type), b = to_device(x.b, c.type), bias = to_device(x.bias, c.type);
  DeviceMemory out(eager.out.size()), aux(eager.aux.size());
  Matmul product;
  product.m = x.s.m, product.n = x.s.n, product.k = x.s.k;
  product.a = a.get(), product.b = b.get(), product.out = out.get();
  product.epilogue = c.epilogue;
  product.bias = bias.get(), product.aux = aux.get();
  set_matmul_search(true);  // a capture must not measure
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  matmul(product, stream_);
  check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  set_matmul_search(false);
  check(cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 3; ++i) {
    out.poison();
    aux.poison();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaGraphLaunch(instance, stream_), "cudaGraphLaunch");
    wait();
    EXPECT_EQ(to_host<unsigned char>(out), eager.out) << "replay " << i;
    EXPECT_EQ(to_host<unsigned char>(aux), eager.aux) << "replay " << i;
  }
  cudaGraphExecDestroy(instance);
  cudaGraphDestroy(graph);
}

TEST_F(MatmulTest, ThreadsShareWhatIsKept) {
  const Numbers numbers({48, 80, 112}, Type::kBFloat16, Type::kBFloat16);
  ProductCase c;
  c.epilogue = Epilogue::kBiasGelu;
  std::vector<Result> results(8);
  std::vector<std::jthread> threads;
  for (Result& result : results) {
    threads.emplace_back([&] {
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      for (int i = 0; i < 10; ++i) result = run(numbers, c, stream);
      cudaStreamDestroy(stream);
    });
  }
  threads.clear();
  expect_right(numbers, c, results[0], "of a thread");
  for (const Result& result : results) EXPECT_EQ(result.out, results[0].out);
}

TEST_F(MatmulTest, RefusesWhatCannotBe) {
  Matmul product;
  product.m = product.n = 16;
  EXPECT_THROW(matmul(product, stream_), UsageError);  // k = 0
  product.k = 16;
  product.epilogue = Epilogue::kBias;
  EXPECT_THROW(matmul(product, stream_), UsageError);  // no bias
  product.epilogue = Epilogue::kNone;
  product.out_type = Type::kHalf;
  EXPECT_THROW(matmul(product, stream_), UsageError);
  product.out_type = Type::kBFloat16;
  product.m = 0;
  EXPECT_NO_THROW(matmul(product, stream_));
}

}  // namespace
}  // namespace trireme::gpu
