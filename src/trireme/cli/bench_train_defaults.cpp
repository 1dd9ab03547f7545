#include "trireme/cli/bench_train_defaults.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"

namespace trireme::cli {
namespace {

constexpr const char* kCpuPreset = "gpt2-bench";
constexpr const char* kGpuPreset = "gpt2-124m";
constexpr int64_t kGpuBatch = 64;
constexpr int64_t kMostTokens = int64_t{1} << 25;  // then they come again, in another order

bool names_model(const ConfigArguments& arguments) {
  const auto is_preset = [](const std::string& word) { return word.starts_with("--model.preset"); };
  return !arguments.file.empty() || !arguments.model.empty() ||
         std::any_of(arguments.words.begin(), arguments.words.end(), is_preset);
}

/// Of the largest layout.
int most_workers(const BenchTrainFlags& flags, const ConfigArguments& arguments) {
  int most = arguments.num_workers(resolve(arguments.sources()));
  for (const std::string_view layout : split(flags.layouts, ';')) {
    if (layout.empty()) continue;
    ConfigArguments with_layout = arguments;
    for (const std::string& word : words_of_layout(layout)) with_layout.words.push_back(word);
    most = std::max(most, with_layout.num_workers(resolve(with_layout.sources())));
  }
  return most;
}

}  // namespace

ConfigArguments with_bench_defaults(const BenchTrainFlags& flags) {
  ConfigArguments arguments = flags.config;
  const bool has_model = names_model(arguments);
  const Config asked = resolve(arguments.sources(kCpuPreset));
  if (!has_model) arguments.model = asked.train.device == "cuda" ? kGpuPreset : kCpuPreset;
  if (asked.train.device != "cuda") return arguments;

  std::vector<std::string> first;  // what the user says comes later, and counts
  if (asked.parallel.dp < 0 && arguments.num_processes == 0 && asked.parallel.stages.empty())
    first.push_back("--parallel.dp=1");
  if (!has_model) {
    arguments.words.insert(arguments.words.begin(), first.begin(), first.end());
    const int workers = most_workers(flags, arguments);
    const bool has_batch = asked.origins.of("train.global_batch") == "command line";
    const int64_t batch = has_batch ? asked.train.global_batch : kGpuBatch;
    first = {"--model.vocab=50304",
             fmt::format("--train.global_batch={}", batch),
             fmt::format("--train.micro_batch={}", std::max<int64_t>(1, batch / workers)),
             fmt::format("--train.leaves={}", workers),
             "--precision.compute=bfloat16",
             "--train.clip=1"};
  }
  arguments.words.insert(arguments.words.begin(), first.begin(), first.end());
  return arguments;
}

int64_t num_random_tokens(const Config& config, int64_t steps) {
  const bool has_data = !config.data.path.empty() || config.data.kind != "auto";
  if (has_data || !config.model.is_language() || config.train.device != "cuda") return 0;
  const int64_t a_step = config.train.global_batch * config.model.seq;
  return std::max(2 * a_step, std::min(kMostTokens, (steps + 2) * a_step)) + 1;
}

std::unique_ptr<RandomTokenFile> add_random_tokens(BenchTrainFlags& flags) {
  const Config config = resolve(flags.config.sources());
  const int64_t count = num_random_tokens(config, flags.warmup + flags.steps);
  if (count == 0) return nullptr;
  auto tokens = std::make_unique<RandomTokenFile>(config.model.vocab, count);
  flags.config.words.push_back("--data.path=" + tokens->path().string());
  flags.config.words.push_back("--data.kind=tokens");
  return tokens;
}

}  // namespace trireme::cli
