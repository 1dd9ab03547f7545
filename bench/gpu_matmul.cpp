// How fast the matrix products of GPT-2 124M (64 x 1024 tokens) and 1.5B (16 x 1024 tokens) run in bf16 and in fp8.
//
//   bench_gpu_matmul [--json]
//
// Forward, input gradient and weight gradient, with their epilogues; by the algorithm that cuBLASLt's estimate puts
// first and by the fastest found in a search. Medians of back-to-back runs on random data, in turns over several sets
// of matrices so that no cache holds them. A second table has the passes that make the 8-bit copies.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/gpu/device.h"
#include "trireme/gpu/matmul.h"
#include "trireme/gpu/matmul_fp8.h"
#include "trireme/observe/table.h"

namespace trireme {
namespace {

using namespace gpu;

constexpr int kSets = 3;
constexpr int kWarmUps = 6;
constexpr int kRounds = 7;
constexpr int kRunsPerRound = 9;
constexpr int64_t kPatternElements = int64_t{1} << 24;

struct Model {
  const char* name;
  int64_t tokens, width, vocabulary, head_tokens;
};
constexpr Model kModels[] = {{"124M", 65536, 768, 50304, 8192}, {"1.5B", 16384, 1600, 50304, 8192}};

struct Layer {
  const char* name;
  int64_t tokens, inputs, outputs;
  Epilogue forward, input_gradient;
  bool has_bias;
};

std::vector<Layer> layers_of(const Model& model) {
  const int64_t w = model.width;
  return {{"qkv", model.tokens, w, 3 * w, Epilogue::kBias, Epilogue::kNone, true},
          {"attention out", model.tokens, w, w, Epilogue::kBias, Epilogue::kNone, true},
          {"up, gelu", model.tokens, w, 4 * w, Epilogue::kBiasGelu, Epilogue::kNone, true},
          {"down", model.tokens, 4 * w, w, Epilogue::kBias, Epilogue::kGeluBackward, true},
          {"head", model.head_tokens, w, model.vocabulary, Epilogue::kNone, Epilogue::kNone, false}};
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<void, Free>;

Memory allocate(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return Memory(memory);
}

/// Memory full of copies of a pattern.
Memory filled(size_t bytes, const void* pattern, size_t pattern_bytes) {
  Memory memory = allocate(bytes);
  for (size_t at = 0; at < bytes; at += pattern_bytes) {
    check(cudaMemcpy(static_cast<char*>(memory.get()) + at, pattern, std::min(pattern_bytes, bytes - at),
                     cudaMemcpyDeviceToDevice),
          "cudaMemcpy");
  }
  return memory;
}

/// Random numbers in bf16 and as 8-bit copies of them.
struct Patterns {
  explicit Patterns(cudaStream_t stream)
      : bf16(allocate(kPatternElements * 2)), fp8(allocate(kPatternElements)), scale(allocate(sizeof(Fp8Scale))) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values(kPatternElements);
    for (uint16_t& value : values) {
      const float number = normal(generator);
      uint32_t bits = 0;
      std::memcpy(&bits, &number, 4);
      value = static_cast<uint16_t>(bits >> 16);
    }
    const Fp8Scale first;
    check(cudaMemcpy(bf16.get(), values.data(), values.size() * 2, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpy(scale.get(), &first, sizeof first, cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    measure(bf16.get(), kPatternElements, state(), stream);
    update_scales(state(), 1, stream);
    quantise(bf16.get(), 4096, kPatternElements / 4096, Fp8::kE4M3, state(), fp8.get(), nullptr, stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  Fp8Scale* state() const { return static_cast<Fp8Scale*>(scale.get()); }
  Memory of_bf16(int64_t count) const {
    return filled(static_cast<size_t>(count) * 2, bf16.get(), kPatternElements * 2);
  }
  Memory of_fp8(int64_t count) const { return filled(static_cast<size_t>(count), fp8.get(), kPatternElements); }

  Memory bf16, fp8, scale;
};

/// Microseconds of one run. `run` is given the number of the set to use.
double time_us(const std::function<void(int)>& run, cudaStream_t stream) {
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  for (int i = 0; i < kWarmUps; ++i) run(i % kSets);
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(start, stream), "cudaEventRecord");
    for (int i = 0; i < kRunsPerRound; ++i) run(i % kSets);
    check(cudaEventRecord(stop, stream), "cudaEventRecord");
    check(cudaEventSynchronize(stop), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
    rounds.push_back(1e3 * ms / kRunsPerRound);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

/// One product with the operands of `layer` in the order of a pass.
struct Product {
  const char* pass;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  Epilogue epilogue;
  bool is_gradient;
};

std::vector<Product> products_of(const Layer& layer) {
  const int64_t t = layer.tokens, in = layer.inputs, out = layer.outputs;
  return {{"forward", t, out, in, false, true, layer.forward, false},
          {"input gradient", t, in, out, false, false, layer.input_gradient, true},
          {"weight gradient", out, in, t, true, false, Epilogue::kNone, true}};
}

struct Times {
  double first_us = 0, searched_us = 0;
};

Times time_product(const Product& p, bool in_fp8, const Patterns& patterns, cudaStream_t stream) {
  std::vector<Memory> a, b, out, aux;
  const Memory bias = patterns.of_bf16(p.n);
  for (int i = 0; i < kSets; ++i) {
    a.push_back(in_fp8 ? patterns.of_fp8(p.m * p.k) : patterns.of_bf16(p.m * p.k));
    b.push_back(in_fp8 ? patterns.of_fp8(p.n * p.k) : patterns.of_bf16(p.n * p.k));
    out.push_back(allocate(static_cast<size_t>(p.m * p.n) * 2));
    if (p.epilogue >= Epilogue::kBiasGelu) aux.push_back(patterns.of_bf16(p.m * p.n));
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const auto run = [&](int i) {
    const auto set = static_cast<size_t>(i);
    void* kept = aux.empty() ? nullptr : aux[set].get();
    if (in_fp8) {
      MatmulFp8 x;
      x.m = p.m, x.n = p.n, x.k = p.k;
      x.a = {a[set].get(), Fp8::kE4M3, patterns.state()};
      x.b = {b[set].get(), Fp8::kE4M3, patterns.state()};
      x.out = out[set].get(), x.epilogue = p.epilogue, x.bias = bias.get(), x.aux = kept;
      x.fast_accumulation = !p.is_gradient;
      matmul_fp8(x, stream);
    } else {
      Matmul x;
      x.m = p.m, x.n = p.n, x.k = p.k;
      x.a = a[set].get(), x.b = b[set].get(), x.out = out[set].get();
      x.a_transposed = p.a_transposed, x.b_transposed = p.b_transposed;
      x.epilogue = p.epilogue, x.bias = bias.get(), x.aux = kept;
      matmul(x, stream);
    }
  };
  Times times;
  set_matmul_search(false);
  times.first_us = time_us(run, stream);
  set_matmul_search(true);
  times.searched_us = time_us(run, stream);
  return times;
}

double time_quantise(int64_t rows, int64_t cols, const Patterns& patterns, cudaStream_t stream) {
  std::vector<Memory> x, out, transposed;
  for (int i = 0; i < kSets; ++i) {
    x.push_back(patterns.of_bf16(rows * cols));
    out.push_back(allocate(static_cast<size_t>(rows * cols)));
    transposed.push_back(allocate(static_cast<size_t>(rows * cols)));
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return time_us(
      [&](int i) {
        const auto set = static_cast<size_t>(i);
        quantise(x[set].get(), rows, cols, Fp8::kE4M3, patterns.state(), out[set].get(), transposed[set].get(), stream);
      },
      stream);
}

int run(bool json) {
  const Device device = choose_device(0);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  warm_matmul(stream);
  const Patterns patterns(stream);
  Table table({"model", "product", "pass", "m", "n", "k", "type", "first us", "TFLOP/s", "searched us", "TFLOP/s"});
  Table copies({"model", "8-bit copies of", "rows", "columns", "us", "GB/s"});
  nlohmann::json rows = nlohmann::json::array(), copy_rows = nlohmann::json::array();
  for (const Model& model : kModels) {
    for (const Layer& layer : layers_of(model)) {
      for (const Product& p : products_of(layer)) {
        for (const bool in_fp8 : {false, true}) {
          if (in_fp8 && !has_fp8(device)) continue;
          const Times times = time_product(p, in_fp8, patterns, stream);
          const double mega_flops =
              2e-6 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
          const double first = mega_flops / times.first_us, searched = mega_flops / times.searched_us;
          const char* type = in_fp8 ? "fp8" : "bf16";
          table.add_row({model.name, layer.name, p.pass, std::to_string(p.m), std::to_string(p.n), std::to_string(p.k),
                         type, fmt::format("{:.1f}", times.first_us), fmt::format("{:.0f}", first),
                         fmt::format("{:.1f}", times.searched_us), fmt::format("{:.0f}", searched)});
          rows.push_back({{"model", model.name},
                          {"product", layer.name},
                          {"pass", p.pass},
                          {"m", p.m},
                          {"n", p.n},
                          {"k", p.k},
                          {"type", type},
                          {"first_us", times.first_us},
                          {"first_tflops", first},
                          {"searched_us", times.searched_us},
                          {"searched_tflops", searched}});
        }
      }
    }
    for (const int64_t cols : {model.width, 4 * model.width}) {
      const double us = time_quantise(model.tokens, cols, patterns, stream);
      const double rate = 4e-3 * static_cast<double>(model.tokens * cols) / us;  // 2 bytes read, 2 written
      copies.add_row({model.name, "activations", std::to_string(model.tokens), std::to_string(cols),
                      fmt::format("{:.1f}", us), fmt::format("{:.0f}", rate)});
      copy_rows.push_back(
          {{"model", model.name}, {"rows", model.tokens}, {"columns", cols}, {"us", us}, {"gb_per_s", rate}});
    }
  }
  cudaStreamDestroy(stream);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"device", device.name}, {"products", rows}, {"copies", copy_rows}}.dump(2));
  } else {
    fmt::print("{}\n\n{}\n{}", device.name, table.to_text(), copies.to_text());
  }
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
  if (argc > 1 && !json) {
    fmt::print(stderr, "bench_gpu_matmul [--json]\n");
    return 2;
  }
  try {
    return trireme::run(json);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
