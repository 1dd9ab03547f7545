#include "trireme/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr uint64_t kMostBytes = 16 << 20;

}  // namespace

bool Plan::has_uneven_stages() const {
  return std::any_of(stages.begin(), stages.end(), [&](const PlanStage& stage) {
    return stage.dp != stages.front().dp || stage.tp != stages.front().tp;
  });
}

PlanPrediction prediction_of(const Simulation& s) {
  PlanPrediction p;
  p.step_seconds = s.step_seconds;
  p.tokens_per_second_per_gpu = s.tokens_per_second_per_device();
  p.model_tflops_per_gpu = s.model_flops_per_device() / 1e12;
  p.hardware_tflops_per_gpu = s.hardware_flops_per_device() / 1e12;
  p.memory_bytes_per_gpu = s.memory_bytes();
  p.bubble_fraction = s.bubble_fraction;
  p.memory_limit_bytes = s.cluster.device.memory_bytes;
  p.fits = s.fits();
  return p;
}

Plan read_plan(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_whole_file(path, kMostBytes);
  } catch (const SystemError& error) {  // the name came from the user
    throw UsageError(fmt::format("the plan {} cannot be read: {}", path.string(), error.what()),
                     "name a file that trireme plan --out has written", {.file = path.string()});
  }
  return plan_from_json(text, path.string());
}

void check_plan(const Plan& plan, const Config& config, int64_t world) {
  if (plan.world_size != world) {
    throw UsageError(fmt::format("the plan is for {} workers, and there are {}", plan.world_size, world),
                     fmt::format("plan again: trireme plan --gpus {}", world));
  }
  const auto refuse_model = [](std::string_view key, const auto& there, const auto& here) {
    throw wrong_key(fmt::format("model.{}", key),
                    fmt::format("the plan is for another model: model.{} = {} there, {} here", key, there, here),
                    "plan again for this one: trireme plan");
  };
  const ModelShape& here = config.model;
  if (plan.model.kind != here.kind) refuse_model("kind", name_of(plan.model.kind), name_of(here.kind));
  std::vector<int64_t> there;
  visit_sizes(plan.model, [&](const char*, int64_t size, bool) { there.push_back(size); });
  visit_sizes(here, [&, at = there.begin()](const char* key, int64_t size, bool is_used) mutable {
    if (is_used && *at != size) refuse_model(key, *at, size);
    ++at;
  });
  if (plan.layout.global_batch != config.train.global_batch) {
    throw wrong_key("train.global_batch",
                    fmt::format("the plan is for train.global_batch = {}, and it is {} here", plan.layout.global_batch,
                                config.train.global_batch),
                    "plan again, or set the batch that was planned");
  }
}

Layout planned_layout(const ModelShape& model, const std::vector<std::pair<const char*, Value>>& keys) {
  Config config;
  static_cast<ModelShape&>(config.model) = model;
  for (const auto& [name, value] : keys) set_key(config, name, value, "the plan");
  return layout_of(config);
}

void apply_plan(const Plan& plan, Config& config) {
  const auto set = [&](const char* name, const Value& value) {
    if (get_value(config, find_key(name, "the plan")) != value) set_key(config, name, value, "the plan");
  };
  for (const auto& [name, value] : keys_of(plan.layout)) set(name, value);
  set("parallel.plan", std::string());
  // The prediction assumes sharded sums; whole gradients would need more memory.
  if (plan.layout.zero > 1) set("parallel.zero_accumulation", std::string("shares"));
}

}  // namespace trireme
