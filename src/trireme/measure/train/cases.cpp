#include "trireme/measure/train/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"

namespace trireme::measure {
namespace {

using Words = std::vector<std::string>;

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
  explicit Planner(const TrainOptions& options) : options_(options), asked_(resolve(options.config.sources())) {}

  TrainPlan plan() {
    if (!options_.cases.empty()) {
      for (const auto& [name, words] : options_.cases) plan_.layouts.push_back(add(name, words));
      plan_.main = plan_.layouts.front();
    } else if (options_.layouts.empty()) {
      plan_usual_layouts();
    } else {
      for (const std::string_view layout : split(options_.layouts, ';')) {
        if (!layout.empty()) plan_.layouts.push_back(add(std::string(layout), words_of_layout(layout)));
      }
      if (plan_.layouts.empty()) {
        throw UsageError(fmt::format("--layouts \"{}\" names no layout", options_.layouts), "such as \"dp=1;dp=2\"");
      }
      plan_.main = plan_.layouts.back();
    }
    return std::move(plan_);
  }

 private:
  bool on_gpu() const { return asked_.train.device == "cuda"; }

  /// One worker with its share of the batch, the base of the scaling, and all workers.
  void plan_usual_layouts() {
    const BatchPlan batch = check(asked_, options_.config.num_workers(asked_));
    if (!asked_.parallel.stages.empty()) {  // no worker alone has a share of them
      plan_.layouts.push_back(plan_.main = add("stages=" + asked_.parallel.stages, {}));
      return;
    }
    if (batch.dp > 1) {
      const int64_t share = batch.global_batch / batch.dp;
      Words words = {"--parallel.dp=1", fmt::format("--train.global_batch={}", share)};
      if (asked_.train.leaves > 0) words.push_back(fmt::format("--train.leaves={}", asked_.train.leaves / batch.dp));
      plan_.layouts.push_back(add(fmt::format("dp=1, batch {}", share), words));
    }
    const std::string name = fmt::format("dp={}", batch.dp), word = fmt::format("--parallel.dp={}", batch.dp);
    if (on_gpu()) {
      plan_modes(batch.dp > 1 ? name + ", " : "", word);
    } else {
      plan_.layouts.push_back(plan_.main = add(name, {word}));
    }
  }

  /// What users get, and what they may give up for speed; only one of them where the config says which.
  void plan_modes(const std::string& prefix, const std::string& word) {
    const bool is_chosen = !asked_.origins.is_default("train.deterministic");
    const bool first = is_chosen ? asked_.train.deterministic : true;
    const auto add_mode = [&](bool deterministic) {
      return add(prefix + (deterministic ? "deterministic" : "fastest"),
                 {word, fmt::format("--train.deterministic={}", deterministic)});
    };
    plan_.layouts.push_back(plan_.main = add_mode(first));
    if (!is_chosen) plan_.layouts.push_back(add_mode(!first));
  }

  /// The number of the case; one that is there already is measured only once.
  size_t add(const std::string& name, const Words& words) {
    TrainCase added;
    added.name = name;
    added.arguments = options_.config;
    added.arguments.num_processes = 0;  // the layout says how many
    Words& all = added.arguments.words;
    all.insert(all.end(), words.begin(), words.end());
    const int64_t steps = options_.warmup + options_.steps;
    all.push_back(fmt::format("--train.steps={}", steps));
    all.push_back("--train.eval_every=0");
    all.push_back("--train.eval_batches=1");
    // A warm-up of the learning rate that is longer than the run is refused where somebody asked for it.
    all.push_back(fmt::format("--optimizer.warmup_steps={}", std::min(asked_.optimizer.warmup_steps, steps)));
    added.config = resolve(added.arguments.sources());
    added.num_workers = added.arguments.num_workers(added.config);
    const BatchPlan batch = check(added.config, added.num_workers);
    added.config = with_plan(added.config, batch);
    added.samples_per_step = batch.global_batch;
    const auto same = std::find_if(plan_.cases.begin(), plan_.cases.end(), [&](const TrainCase& other) {
      return other.config == added.config && other.num_workers == added.num_workers;
    });
    if (same != plan_.cases.end()) return static_cast<size_t>(same - plan_.cases.begin());
    plan_.cases.push_back(std::move(added));
    return plan_.cases.size() - 1;
  }

  const TrainOptions& options_;
  Config asked_;
  TrainPlan plan_;
};

}  // namespace

TrainPlan plan_trainings(const TrainOptions& options) { return Planner(options).plan(); }

ConfigArguments with_bench_defaults(const TrainOptions& options) {
  ConfigArguments arguments = options.config;
  const bool has_model = names_model(arguments);
  const Config asked = resolve(arguments.sources(kCpuPreset));
  if (!has_model) arguments.model = asked.train.device == "cuda" ? kGpuPreset : kCpuPreset;
  if (asked.train.device != "cuda") return arguments;

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
  const bool has_data = !config.data.path.empty() || config.data.kind != "auto";
  if (has_data || !config.model.is_language() || config.train.device != "cuda") return 0;
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
