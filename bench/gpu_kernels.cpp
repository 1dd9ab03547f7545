// How close each GPU kernel comes to the memory's speed, alone, at the sizes of GPT-2 124M: 64 samples of 1024 tokens,
// width 768, bf16.
//
//   bench_gpu_kernels [--json] [PART_OF_A_NAME …]
//
// Bytes are those that must move: each operand read once, each result written once. The last column is the share of
// a copy from device memory to device memory, measured in the same run. Launches go over several sets of buffers, so
// that no cache holds their operands. Medians of batches, by CUDA events.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "trireme/gpu/device.h"
#include "trireme/gpu/kernels/norm.h"
#include "trireme/gpu/kernels/pointwise.h"
#include "trireme/gpu/kernels/tokens.h"
#include "trireme/observe/table.h"

namespace trireme::gpu {
namespace {

constexpr int64_t kRows = 65536, kSeq = 1024, kWidth = 768, kFfn = 3072, kVocab = 50304, kParameters = 124475904;
constexpr Type kType = Type::kBFloat16;
constexpr size_t kCaches = size_t{128} << 20;  // more than any L2

/// Device memory of `sets` equal parts.
class Buffer {
 public:
  Buffer(size_t bytes, size_t sets) : bytes_((bytes + 255) / 256 * 256) {
    check(cudaMalloc(&memory_, bytes_ * sets), "cudaMalloc");
    size_ = bytes_ * sets;
  }
  ~Buffer() { cudaFree(memory_); }
  Buffer(const Buffer&) = delete;

  template <typename T = void>
  T* at(size_t set) const {
    return reinterpret_cast<T*>(static_cast<char*>(memory_) + set * bytes_);
  }
  /// With these values, over and over.
  template <typename T>
  Buffer& fill(const std::vector<T>& values) {
    size_t done = std::min(values.size() * sizeof(T), size_);
    check(cudaMemcpy(memory_, values.data(), done, cudaMemcpyDefault), "cudaMemcpy");
    while (done < size_) {
      const size_t more = std::min(done, size_ - done);
      check(cudaMemcpy(at<char>(0) + done, memory_, more, cudaMemcpyDefault), "cudaMemcpy");
      done += more;
    }
    return *this;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_, size_ = 0;
};

struct Values {
  std::vector<__nv_bfloat16> narrow;
  std::vector<float> wide;
  std::vector<int64_t> tokens;  ///< few of them frequent, as in text

  Values() : narrow(1 << 20), wide(1 << 20), tokens(kRows * 4) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<double> uniform(0, 1);
    for (auto& value : narrow) value = __float2bfloat16_rn(normal(generator));
    for (auto& value : wide) value = 1 + 0.1f * normal(generator);
    for (auto& token : tokens) token = static_cast<int64_t>(std::pow(uniform(generator), 3) * kVocab);
  }
};

struct Result {
  std::string kernel;
  double us = 0, bytes = 0;
  double gb_per_s() const { return bytes / us * 1e-3; }
};

class Bench {
 public:
  Bench(std::vector<std::string> parts, bool quiet) : parts_(std::move(parts)), quiet_(quiet) {
    check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }

  bool wants(const std::string& name) const {
    return parts_.empty() || std::any_of(parts_.begin(), parts_.end(),
                                         [&](const std::string& part) { return name.find(part) != std::string::npos; });
  }

  /// Sets of buffers so that what one launch touches has left the caches when its set comes again.
  static size_t sets_for(double bytes) {
    return static_cast<size_t>(std::clamp(static_cast<double>(kCaches) / bytes + 2, 2.0, 512.0));
  }

  void measure(const std::string& name, double bytes, size_t sets, const std::function<void(size_t)>& launch) {
    constexpr int kBatches = 7;
    const int launches = bytes > 4e9 ? 2 : 16;
    size_t set = 0;
    const auto next = [&] { launch(set++ % sets); };
    for (int i = 0; i < 3; ++i) next();
    std::vector<double> times;
    for (int batch = 0; batch < kBatches; ++batch) {
      check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      for (int i = 0; i < launches; ++i) next();
      check(cudaEventRecord(end_, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
      times.push_back(ms * 1e3 / launches);
    }
    std::sort(times.begin(), times.end());
    results_.push_back({name, times[times.size() / 2], bytes});
    if (!quiet_) fmt::print(stderr, "{}: {:.1f} us\n", name, results_.back().us);
  }

  cudaStream_t stream() const { return stream_; }
  const Values& values() const { return values_; }
  const std::vector<Result>& results() const { return results_; }

 private:
  std::vector<std::string> parts_;
  bool quiet_;
  Values values_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<Result> results_;
};

constexpr double bytes_of(int64_t elements) { return static_cast<double>(elements) * 2; }
constexpr size_t size_of_elements(int64_t elements) { return static_cast<size_t>(elements) * 2; }

void copy(Bench& bench) {
  constexpr size_t kBytes = size_t{1} << 30;
  Buffer from(kBytes, 2), to(kBytes, 2);
  from.fill(bench.values().narrow);
  bench.measure("copy", 2.0 * kBytes, 2, [&](size_t set) {
    check(cudaMemcpyAsync(to.at(set), from.at(set), kBytes, cudaMemcpyDeviceToDevice, bench.stream()), "cudaMemcpy");
  });
}

void norms(Bench& bench) {
  const NormShape shape{kRows, kWidth, kType};
  const size_t bytes = size_of_elements(kRows * kWidth), sets = Bench::sets_for(static_cast<double>(bytes));
  Buffer x(bytes, sets), dy(bytes, sets), residual(bytes, sets), y(bytes, sets), mean(kRows * 4, 1), rstd(kRows * 4, 1),
      scale(kWidth * 4, 1), shift(kWidth * 4, 1), d_scale(kWidth * 4, 1), d_shift(kWidth * 4, 1),
      scratch(norm_backward_scratch(shape), 1);
  for (Buffer* buffer : {&x, &dy, &residual}) buffer->fill(bench.values().narrow);
  for (Buffer* buffer : {&mean, &rstd, &scale, &shift}) buffer->fill(bench.values().wide);
  const double statistics = kRows * 4.0, row = bytes_of(kRows * kWidth);
  const auto floats = [](const Buffer& buffer) { return buffer.at<float>(0); };
  if (bench.wants("layer_norm")) {
    bench.measure("layer_norm", 2 * row + 2 * statistics, sets, [&](size_t i) {
      layer_norm(shape, x.at(i), floats(scale), floats(shift), 1e-5f, y.at(i), floats(mean), floats(rstd),
                 bench.stream());
    });
    bench.measure("layer_norm_backward + residual", 4 * row + 2 * statistics, sets, [&](size_t i) {
      layer_norm_backward(shape, dy.at(i), x.at(i), floats(scale), floats(mean), floats(rstd), residual.at(i), y.at(i),
                          floats(d_scale), floats(d_shift), scratch.at(0), bench.stream());
    });
  }
  if (bench.wants("rms_norm")) {
    bench.measure("rms_norm", 2 * row + statistics, sets, [&](size_t i) {
      rms_norm(shape, x.at(i), floats(scale), 1e-5f, y.at(i), floats(rstd), bench.stream());
    });
    bench.measure("rms_norm_backward + residual", 4 * row + statistics, sets, [&](size_t i) {
      rms_norm_backward(shape, dy.at(i), x.at(i), floats(scale), floats(rstd), residual.at(i), y.at(i), floats(d_scale),
                        scratch.at(0), bench.stream());
    });
  }
}

void activations(Bench& bench) {
  constexpr int64_t kCount = kRows * kFfn;
  const size_t bytes = size_of_elements(kCount), sets = 2;
  Buffer both(2 * bytes, sets), dy(bytes, sets), y(bytes, sets), d_both(2 * bytes, sets);
  both.fill(bench.values().narrow), dy.fill(bench.values().narrow);
  const double once = bytes_of(kCount);
  const SwigluShape shape{kRows, kFfn, 2 * kFfn, kType};
  const auto up = [&](const Buffer& buffer, size_t set) { return buffer.at<__nv_bfloat16>(set) + kFfn; };
  if (bench.wants("gelu")) {
    bench.measure("gelu", 2 * once, sets, [&](size_t i) { gelu(both.at(i), y.at(i), kCount, kType, bench.stream()); });
    bench.measure("gelu_backward", 3 * once, sets,
                  [&](size_t i) { gelu_backward(both.at(i), dy.at(i), y.at(i), kCount, kType, bench.stream()); });
  }
  if (bench.wants("swiglu")) {
    bench.measure("swiglu", 3 * once, sets,
                  [&](size_t i) { swiglu(shape, both.at(i), up(both, i), y.at(i), bench.stream()); });
    bench.measure("swiglu_backward", 5 * once, sets, [&](size_t i) {
      swiglu_backward(shape, both.at(i), up(both, i), dy.at(i), d_both.at(i), up(d_both, i), bench.stream());
    });
  }
  if (bench.wants("rotate")) {
    constexpr int64_t kHeads = 24, kHeadDim = 64, kStride = 2304;  // queries and keys beside their values
    Buffer angles(kSeq * kHeadDim / 2 * 4, 1);
    angles.fill(bench.values().wide);
    const RotaryShape rotary{kRows, kSeq, kHeads, kHeadDim, kStride, kType};
    bench.measure("rotate", 2 * bytes_of(kRows * kHeads * kHeadDim), sets, [&](size_t i) {
      rotate(rotary, both.at(i), angles.at<float>(0), angles.at<float>(0), false, bench.stream());
    });
  }
  for (const int64_t width : {kWidth, kFfn}) {
    const std::string name = fmt::format("column_sums {}", width);
    if (!bench.wants(name)) continue;
    Buffer sums(static_cast<size_t>(width) * 4, 1), scratch(column_sums_scratch(kRows, width), 1);
    bench.measure(name, bytes_of(kRows * width), sets, [&](size_t i) {
      column_sums(dy.at(i), kRows, width, kType, sums.at<float>(0), scratch.at(0), bench.stream());
    });
  }
}

void conversions(Bench& bench) {
  if (!bench.wants("convert")) return;
  Buffer wide(static_cast<size_t>(kParameters) * 4, 2), narrow(size_of_elements(kParameters), 2);
  wide.fill(bench.values().wide), narrow.fill(bench.values().narrow);
  bench.measure("convert float to bf16", kParameters * 6.0, 2,
                [&](size_t i) { convert(wide.at(i), Type::kFloat, narrow.at(i), kType, kParameters, bench.stream()); });
  bench.measure("convert bf16 to float", kParameters * 6.0, 2,
                [&](size_t i) { convert(narrow.at(i), kType, wide.at(i), Type::kFloat, kParameters, bench.stream()); });
}

void losses(Bench& bench) {
  Buffer targets(kRows * 8, 1), losses(kRows * 4, 1);
  targets.fill(bench.values().tokens);
  if (bench.wants("cross_entropy")) {
    Buffer logits(size_of_elements(kRows * kVocab), 1);
    logits.fill(bench.values().narrow);
    const double once = bytes_of(kRows * kVocab), little = kRows * 12.0;
    const auto run = [&](int64_t classes, bool gradient) {
      // Scaled so that gradients, the next launch's logits, are about as great as logits.
      cross_entropy({kRows, classes, classes, kType}, logits.at(0), targets.at<int64_t>(0), 5e4f, gradient,
                    losses.at<float>(0), bench.stream());
    };
    bench.measure("cross_entropy, loss alone", once + little, 1, [&](size_t) { run(kVocab, false); });
    bench.measure("cross_entropy", 2 * once + little, 1, [&](size_t) { run(kVocab, true); });
    bench.measure("cross_entropy of 50257", 2 * bytes_of(kRows * 50257) + little, 1, [&](size_t) { run(50257, true); });
  }
  if (bench.wants("sum_all")) {
    Buffer sum(4, 1), values(kRows * 4, 512);
    values.fill(bench.values().wide);
    bench.measure("sum_all", kRows * 4.0, 512, [&](size_t i) {
      sum_all(values.at<float>(i), kRows, 1.0f / kRows, sum.at<float>(0), bench.stream());
    });
  }
}

void embeddings(Bench& bench) {
  if (!bench.wants("embedding")) return;
  const EmbeddingShape shape{kRows, kSeq, kWidth, kVocab, kType};
  const size_t sets = 3, rows_bytes = size_of_elements(kRows * kWidth);
  Buffer tokens(kRows * 8, sets), table(size_of_elements(kVocab * kWidth), sets),
      positions(size_of_elements(kSeq * kWidth), 1), rows(rows_bytes, sets),
      d_table(size_of_elements(kVocab * kWidth), sets), d_positions(size_of_elements(kSeq * kWidth), 1),
      scratch(embedding_backward_scratch(shape), 1);
  tokens.fill(bench.values().tokens);
  for (Buffer* buffer : {&table, &positions, &rows}) buffer->fill(bench.values().narrow);
  std::vector<int64_t> seen(bench.values().tokens.begin(), bench.values().tokens.begin() + kRows);
  std::sort(seen.begin(), seen.end());
  const auto different = std::unique(seen.begin(), seen.end()) - seen.begin();
  const double row = bytes_of(kRows * kWidth), little = kRows * 8.0 + bytes_of(kSeq * kWidth);
  bench.measure("embedding", row + bytes_of(different * kWidth) + little, sets, [&](size_t i) {
    embedding(shape, tokens.at<int64_t>(i), table.at(i), positions.at(0), rows.at(i), bench.stream());
  });
  bench.measure("embedding_backward", row + bytes_of(kVocab * kWidth) + little, sets, [&](size_t i) {
    embedding_backward(shape, tokens.at<int64_t>(i), rows.at(i), d_table.at(i), d_positions.at(0), scratch.at(0),
                       bench.stream());
  });
}

void print(const std::vector<Result>& results, const Device& device, bool as_json) {
  const double copied = results.front().gb_per_s();
  if (as_json) {
    auto list = nlohmann::json::array();
    for (const Result& r : results) {
      list.push_back({{"kernel", r.kernel},
                      {"us", r.us},
                      {"bytes", r.bytes},
                      {"gb_per_s", r.gb_per_s()},
                      {"share_of_copy", r.gb_per_s() / copied}});
    }
    fmt::print("{}\n", nlohmann::json{{"device", device.name}, {"kernels", list}}.dump(2));
    return;
  }
  Table table({"kernel", "us", "GB moved", "GB/s", "of a copy"});
  for (const Result& r : results) {
    table.add_row({r.kernel, fmt::format("{:.1f}", r.us), fmt::format("{:.3f}", r.bytes * 1e-9),
                   fmt::format("{:.0f}", r.gb_per_s()), fmt::format("{:.0f}%", 100 * r.gb_per_s() / copied)});
  }
  fmt::print("{}\n{}", device.name, table.to_text());
}

int run(std::vector<std::string> arguments) {
  const auto flag = std::find(arguments.begin(), arguments.end(), "--json");
  const bool as_json = flag != arguments.end();
  if (as_json) arguments.erase(flag);
  const Device device = choose_device(0);
  Bench bench(arguments, as_json);
  for (const auto part : {copy, norms, activations, conversions, losses, embeddings}) part(bench);
  print(bench.results(), device, as_json);
  return 0;
}

}  // namespace
}  // namespace trireme::gpu

int main(int argc, char** argv) {
  try {
    return trireme::gpu::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_gpu_kernels: {}\n", error.what());
    return 1;
  }
}
