// How long a training step of a small GPT-2 takes on one thread, with our operators and with libtorch's.
//
//   bench_gpt_step [REPEATS]
//
// 4 layers, width 256, 8 heads, 128 tokens, 512 words, 8 samples, float32; forward, loss and backward, without the
// optimizer. Steps of both kinds alternate. Printed are medians and minima of the thread's CPU time, in milliseconds,
// of the step and of each operator forward and backward.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <time.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "trireme/models/built_in.h"
#include "trireme/models/functions.h"

namespace trireme {
namespace {

/// CPU time: other programs on the machine do not count. CPU backwards run on the calling thread.
double milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Times {
  std::vector<double> forward, backward, both;
  void add(double begin, double middle, double end) {
    forward.push_back(middle - begin);
    backward.push_back(end - middle);
    both.push_back(end - begin);
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

/// `forward` gives a tensor to go back from with a gradient of ones; `clear` drops gradients.
void compare(const char* name, int repeats, const std::function<torch::Tensor()>& forward,
             const std::function<void()>& clear) {
  Times plain, ours;
  torch::Tensor ones;
  for (int i = 0; i < 2 * repeats + 4; ++i) {
    ops::use_plain(i % 2 == 0);
    clear();
    const double begin = milliseconds();
    const auto y = forward();
    const double middle = milliseconds();
    if (!ones.defined()) ones = torch::ones_like(y);
    const double resumed = milliseconds();
    y.backward(ones);
    const double end = milliseconds();
    if (i >= 4) (i % 2 == 0 ? plain : ours).add(begin, middle, middle + end - resumed);
  }
  ops::use_plain(false);
  const auto line = [&](const char* part, const std::vector<double>& before, const std::vector<double>& after) {
    fmt::print("{:<22} {:<9} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>7.2f}\n", name, part, median(before), median(after),
               least(before), least(after), median(before) / median(after));
  };
  line("forward", plain.forward, ours.forward);
  line("backward", plain.backward, ours.backward);
  line("both", plain.both, ours.both);
}

void run(int repeats) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  ModelConfig c;
  c.layers = 4, c.hidden = 256, c.heads = c.kv_heads = 8, c.ffn = 1024, c.seq = 128, c.vocab = 512;
  const auto model = make_model(c, 1);
  const auto tokens = torch::randint(c.vocab, {8, c.seq}, torch::kInt64);
  const auto target = torch::randint(c.vocab, {8, c.seq}, torch::kInt64);

  fmt::print("{:<32} {:>19} {:>19}\n", "", "median ms", "least ms");
  fmt::print("{:<22} {:<9} {:>9} {:>9} {:>9} {:>9} {:>7}\n", "", "", "libtorch", "ours", "libtorch", "ours", "ratio");
  compare(
      "step", repeats, [&] { return model->loss(model->forward(tokens), target); },
      [&] {
        model->zero_grad();
        for (const auto& use : model->tied_uses()) use.use->mutable_grad().reset();
      });

  const auto leaf = [](std::vector<int64_t> shape) { return torch::randn(shape).requires_grad_(true); };
  const auto measure = [&](const char* name, std::vector<torch::Tensor> leaves, auto function) {
    compare(
        name, 2 * repeats, [&] { return function(leaves); },
        [&] {
          for (auto& x : leaves) x.mutable_grad().reset();
        });
  };
  using Leaves = std::vector<torch::Tensor>;
  const auto linear = [](const Leaves& x) { return ops::linear(x[0], x[1], x[2]); };
  measure("linear 256 to 256", {leaf({8, 128, 256}), leaf({256, 256}), leaf({256})}, linear);
  measure("linear 256 to 768", {leaf({8, 128, 256}), leaf({768, 256}), leaf({768})}, linear);
  measure("linear 256 to 1024", {leaf({8, 128, 256}), leaf({1024, 256}), leaf({1024})}, linear);
  measure("linear 1024 to 256", {leaf({8, 128, 1024}), leaf({256, 1024}), leaf({256})}, linear);
  measure("attention", {leaf({8, 128, 768})}, [](const Leaves& x) { return ops::causal_attention(x[0], 8, 8); });
  measure("gelu", {leaf({8, 128, 1024})}, [](const Leaves& x) { return ops::gelu(x[0]); });
  measure("layer norm", {leaf({8, 128, 256}), leaf({256}), leaf({256})},
          [](const Leaves& x) { return ops::layer_norm(x[0], x[1], x[2], 1e-5); });
  measure("cross entropy", {leaf({8, 128, 512})}, [&](const Leaves& x) { return ops::cross_entropy(x[0], target); });
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  if (repeats < 1) {
    fmt::print(stderr, "bench_gpt_step [REPEATS], at least 1\n");
    return 2;
  }
  trireme::run(repeats);
}
