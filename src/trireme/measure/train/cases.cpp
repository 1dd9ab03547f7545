#include "trireme/measure/train/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"

namespace trireme::measure {
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

/// Counts the workers of the largest layout.
int most_workers(const TrainOptions& options, const ConfigArguments& arguments) {
  int most = arguments.num_workers(resolve(arguments.sources()));
  for (const std::string_view layout : split(options.layouts, ';')) {
    if (layout.empty()) continue;
    ConfigArguments with_layout = arguments;
    for (const std::string& word : words_of_layout(layout)) with_layout.words.push_back(word);
    most = std::max(most, with_layout.num_workers(resolve(with_layout.sources())));
  }
  return most;
}

class Planner {
 public:
  explicit Planner(const TrainOptions& options) : options_(options) {}

  TrainPlan plan() {
    if (!options_.cases.empty()) {
      for (const auto& [name, config] : options_.cases) plan_.layouts.push_back(add(name, config));
      plan_.main = plan_.layouts.front();
    } else if (options_.layouts.empty()) {
      plan_usual_layouts(resolve(options_.config.sources()));
    } else {
      for (const std::string_view layout : split(options_.layouts, ';')) {
        if (!layout.empty()) plan_.layouts.push_back(add(std::string(layout), config_of(layout)));
      }
      if (plan_.layouts.empty()) {
        throw UsageError(fmt::format("--layouts \"{}\" names no layout", options_.layouts), "such as \"dp=1;dp=2\"");
      }
      plan_.main = plan_.layouts.back();
    }
    return std::move(plan_);
  }

 private:
  Config config_of(std::string_view layout) const {
    ConfigArguments arguments = options_.config;
    for (const std::string& word : words_of_layout(layout)) arguments.words.push_back(word);
    return resolve(arguments.sources());
  }

  /// One worker with its part of the batch, the base of the scaling, and all workers.
  void plan_usual_layouts(Config asked) {
    const Layout batch = check(asked, options_.config.num_workers(asked));
    if (!asked.parallel.stages.empty()) {  // no worker alone has a part of them
      plan_.layouts.push_back(plan_.main = add("stages=" + asked.parallel.stages, asked));
      return;
    }
    if (batch.dp > 1) {
      Config alone = asked;
      alone.parallel.dp = 1;
      alone.train.global_batch = batch.global_batch / batch.dp;
      alone.train.leaves /= batch.dp;
      plan_.layouts.push_back(add(fmt::format("dp=1, batch {}", alone.train.global_batch), alone));
    }
    const std::string name = fmt::format("dp={}", batch.dp);
    asked.parallel.dp = batch.dp;
    if (asked.train.device == DeviceKind::kCuda) {
      plan_modes(batch.dp > 1 ? name + ", " : "", asked);
    } else {
      plan_.layouts.push_back(plan_.main = add(name, asked));
    }
  }

  /// What users get, and what they may give up for speed; only one of them where the config says which.
  void plan_modes(const std::string& prefix, Config config) {
    const auto add_mode = [&](bool deterministic) {
      config.train.deterministic = deterministic;
      plan_.layouts.push_back(add(prefix + (deterministic ? "deterministic" : "fastest"), config));
    };
    const bool is_chosen = !config.origins.is_default("train.deterministic");
    add_mode(is_chosen ? config.train.deterministic : true);
    plan_.main = plan_.layouts.back();
    if (!is_chosen) add_mode(false);
  }

  /// The number of the case; one that is there already is measured only once.
  size_t add(const std::string& name, Config config) {
    TrainConfig& train = config.train;
    train.steps = options_.warmup + options_.steps;
    train.eval_every = 0;
    train.eval_batches = 1;
    train.target_loss = 0;
    // A warm-up of the learning rate that is longer than the run is refused where somebody asked for it.
    config.optimizer.warmup_steps = std::min(config.optimizer.warmup_steps, train.steps);
    TrainCase added;
    added.name = name;
    added.num_workers = ConfigArguments().num_workers(config);  // as the layout says
    const Layout batch = check(config, added.num_workers);
    added.config = with_layout(config, batch);
    added.samples_per_step = batch.global_batch;
    const auto same = std::find_if(plan_.cases.begin(), plan_.cases.end(), [&](const TrainCase& other) {
      return other.config == added.config && other.num_workers == added.num_workers;
    });
    if (same != plan_.cases.end()) return static_cast<size_t>(same - plan_.cases.begin());
    plan_.cases.push_back(std::move(added));
    return plan_.cases.size() - 1;
  }

  const TrainOptions& options_;
  TrainPlan plan_;
};

}  // namespace

TrainPlan plan_trainings(const TrainOptions& options) { return Planner(options).plan(); }

ConfigArguments with_bench_defaults(const TrainOptions& options) {
  ConfigArguments arguments = options.config;
  const bool has_model = names_model(arguments);
  const Config asked = resolve(arguments.sources(kCpuPreset));
  if (!has_model) arguments.model = asked.train.device == DeviceKind::kCuda ? kGpuPreset : kCpuPreset;
  if (asked.train.device != DeviceKind::kCuda) return arguments;

  std::vector<std::string> first;  // what the user says comes later, and counts
  if (asked.parallel.dp < 0 && arguments.num_processes == 0 && asked.parallel.stages.empty())
    first.push_back("--parallel.dp=1");
  if (!has_model) {
    arguments.words.insert(arguments.words.begin(), first.begin(), first.end());
    const int workers = most_workers(options, arguments);
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
  const bool has_data = !config.data.path.empty() || config.data.kind != DataKind::kAuto;
  if (has_data || !config.model.is_language() || config.train.device != DeviceKind::kCuda) return 0;
  const int64_t a_step = config.train.global_batch * config.model.seq;
  return std::max(2 * a_step, std::min(kMostTokens, (steps + 2) * a_step)) + 1;
}

std::unique_ptr<RandomTokenFile> add_random_tokens(TrainOptions& options) {
  const Config config = resolve(options.config.sources());
  const int64_t count = num_random_tokens(config, options.warmup + options.steps);
  if (count == 0) return nullptr;
  auto tokens = std::make_unique<RandomTokenFile>(config.model.vocab, count);
  options.config.words.push_back("--data.path=" + tokens->path().string());
  options.config.words.push_back("--data.kind=tokens");
  return tokens;
}

}  // namespace trireme::measure
