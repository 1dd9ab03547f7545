// How fast one core compresses and expands gradients: GB/s of float32, for each method and each instruction set of this
// machine. The array is larger than the caches.
//
//   bench_compress --benchmark_filter=avx512/         medians of 9 runs
//   bench_compress --benchmark_filter=topk
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/compress/formats/arithmetic.h"
#include "trireme/compress/formats/kernels.h"
#include "trireme/compress/formats/low_rank.h"
#include "trireme/compress/formats/select.h"
#include "trireme/compress/formats/sparse_format.h"

namespace trireme {
namespace {

using compress_kernels::Kernels;

constexpr size_t kCount = size_t{16} << 20;
constexpr size_t kColumns = 4096, kRows = kCount / kColumns;

/// Normal numbers whose size differs from row to row, as gradients' do.
const std::vector<float>& gradients() {
  static const std::vector<float> all = [] {
    std::vector<float> values(kCount);
    Philox(1, "gradients").fill_normal(values);
    for (size_t i = 0; i < kCount; ++i) values[i] *= 1e-3f * static_cast<float>(1 + i / 1024 % 7);
    return values;
  }();
  return all;
}

/// Runs `body` again and again; its rate is that of the gradients, whatever it makes of them.
void measure(const std::string& name, const std::function<std::function<void()>()>& prepare) {
  const auto run = [prepare](benchmark::State& state) {
    const std::function<void()> body = prepare();
    for (auto _ : state) {
      body();
      benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kCount * sizeof(float)));
  };
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->Repetitions(9)
      ->ReportAggregatesOnly()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.1);
}

void add_formats(const Kernels& kernels) {
  for (size_t i = 0; i < kNumBlockFormats; ++i) {
    const auto format = static_cast<BlockFormat>(i);
    const std::string name = std::string(kernels.name) + "/" + std::string(name_of(format));
    const RandomKey random = random_key(1, "bench", 0);
    measure(name + "/encode", [=, &kernels] {
      return [=, &kernels, wire = std::vector<uint8_t>(encoded_bytes(format, kCount))]() mutable {
        encode_blocks(kernels, format, gradients().data(), kCount, wire.data(), random, 0);
      };
    });
    measure(name + "/encode_keeping_rest", [=, &kernels] {  // as in a step: with the gradient added to the residual
      return
          [=, &kernels, wire = std::vector<uint8_t>(encoded_bytes(format, kCount)), residual = gradients()]() mutable {
            add_into(residual, gradients());
            encode_blocks_keeping_rest(kernels, format, residual.data(), kCount, wire.data(), random, 0);
          };
    });
    measure(name + "/add", [=, &kernels] {
      std::vector<uint8_t> wire(encoded_bytes(format, kCount));
      encode_blocks(kernels, format, gradients().data(), kCount, wire.data(), random, 0);
      return [=, &kernels, out = std::vector<float>(kCount)]() mutable {
        decode_blocks(kernels, format, wire.data(), kCount, out.data(), true);
      };
    });
  }
}

void add_choices(const Kernels& kernels) {
  for (const double density : {0.001, 0.01, 0.1}) {
    const size_t k = kept_elements(kCount, density);
    const std::string name = std::string(kernels.name) + "/topk/" + std::to_string(density).substr(0, 5);
    measure(name + "/select", [=, &kernels] {
      return [=, &kernels] { benchmark::DoNotOptimize(select_largest(kernels, gradients(), k)); };
    });
    measure(name + "/select_and_encode", [=, &kernels] {
      return [=, &kernels, wire = std::vector<uint8_t>(sparse_bytes(kCount, k))]() mutable {
        const std::vector<uint32_t> indices = select_largest(kernels, gradients(), k);
        std::vector<float> chosen(k);
        for (size_t i = 0; i < k; ++i) chosen[i] = gradients()[indices[i]];
        encode_sparse(kCount, indices, chosen, wire);
      };
    });
    measure(name + "/add", [=] {
      std::vector<uint8_t> wire(sparse_bytes(kCount, k));
      encode_sparse(kCount, select_largest(gradients(), k), std::vector<float>(k), wire);
      return [=, out = std::vector<float>(kCount)]() mutable { add_sparse(wire, out); };
    });
  }
}

void add_low_rank(const Kernels& kernels) {
  for (const size_t rank : {1, 2, 4}) {
    const std::string name = std::string(kernels.name) + "/powersgd/" + std::to_string(rank);
    struct Factors {
      std::vector<float> p, q;
    };
    const Factors factors{std::vector<float>(kRows * rank, 0.01f), std::vector<float>(kColumns * rank, 0.01f)};
    measure(name + "/project", [=, &kernels] {
      return [rank, &kernels, f = factors]() mutable {
        kernels.project(gradients().data(), kRows, kColumns, f.q.data(), rank, f.p.data());
      };
    });
    measure(name + "/project_back", [=, &kernels] {
      return [rank, &kernels, f = factors]() mutable {
        kernels.project_back(gradients().data(), kRows, kColumns, f.p.data(), rank, f.q.data());
      };
    });
    measure(name + "/expand", [=, &kernels] {
      return [rank, &kernels, f = factors, out = std::vector<float>(kCount)]() mutable {
        kernels.expand(f.p.data(), f.q.data(), kRows, kColumns, rank, compress_kernels::Store::kSet, out.data());
      };
    });
    measure(name + "/make_orthonormal", [=] {
      LowRank shape{.rank = rank};
      shape.add(0, kRows, kColumns);
      return [shape, p = factors.p]() mutable {
        std::copy_n(gradients().begin(), p.size(), p.begin());
        make_orthonormal(shape, p);
      };
    });
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const auto* kernels : trireme::compress_kernels::available()) {
    trireme::add_formats(*kernels);
    trireme::add_choices(*kernels);
    trireme::add_low_rank(*kernels);
  }
  benchmark::RunSpecifiedBenchmarks();
}
