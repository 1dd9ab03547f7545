#include "trireme/cli/bench_train_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"

namespace trireme::cli {
namespace {

using Words = std::vector<std::string>;

class Planner {
 public:
  explicit Planner(const BenchTrainFlags& flags) : flags_(flags), asked_(resolve(flags.config.sources())) {}

  BenchTrainPlan plan() {
    if (!flags_.cases.empty()) {
      for (const auto& [name, words] : flags_.cases) plan_.layouts.push_back(add(name, words));
      plan_.main = plan_.layouts.front();
    } else if (flags_.layouts.empty()) {
      plan_usual_layouts();
    } else {
      for (const std::string_view layout : split(flags_.layouts, ';')) {
        if (!layout.empty()) plan_.layouts.push_back(add(std::string(layout), words_of_layout(layout)));
      }
      if (plan_.layouts.empty()) {
        throw UsageError(fmt::format("--layouts \"{}\" names no layout", flags_.layouts), "such as \"dp=1;dp=2\"");
      }
      plan_.main = plan_.layouts.back();
    }
    return std::move(plan_);
  }

 private:
  bool on_gpu() const { return asked_.train.device == "cuda"; }

  /// One worker with its share of the batch, the base of the scaling, and all workers.
  void plan_usual_layouts() {
    const BatchPlan batch = check(asked_, flags_.config.num_workers(asked_));
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
    BenchTrainCase added;
    added.name = name;
    added.arguments = flags_.config;
    added.arguments.num_processes = 0;  // the layout says how many
    Words& all = added.arguments.words;
    all.insert(all.end(), words.begin(), words.end());
    const int64_t steps = flags_.warmup + flags_.steps;
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
    const auto same = std::find_if(plan_.cases.begin(), plan_.cases.end(), [&](const BenchTrainCase& other) {
      return other.config == added.config && other.num_workers == added.num_workers;
    });
    if (same != plan_.cases.end()) return static_cast<size_t>(same - plan_.cases.begin());
    plan_.cases.push_back(std::move(added));
    return plan_.cases.size() - 1;
  }

  const BenchTrainFlags& flags_;
  Config asked_;
  BenchTrainPlan plan_;
};

}  // namespace

BenchTrainPlan plan_bench_train(const BenchTrainFlags& flags) { return Planner(flags).plan(); }

}  // namespace trireme::cli
