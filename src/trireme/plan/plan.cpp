#include "trireme/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/text.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr uint64_t kMostBytes = 16 << 20;

void compare(const char* key, int64_t planned, int64_t here) {
  if (planned == here) return;
  throw UsageError(fmt::format("the plan is for another model: model.{} = {} there, {} here", key, planned, here),
                   "plan again for this one: trireme plan");
}

/// "3,3,1,1" as "2 x 3, 2 x 1".
std::string short_shares(const std::string& text) {
  std::vector<std::string> parts;
  const std::vector<std::string_view> shares = split(text, ',');
  for (size_t i = 0; i < shares.size();) {
    size_t end = i;
    while (end < shares.size() && shares[end] == shares[i]) ++end;
    parts.push_back(fmt::format("{} x {}", end - i, shares[i]));
    i = end;
  }
  return join(parts, " and ");
}

}  // namespace

bool Plan::has_uneven_stages() const {
  return std::any_of(stages.begin(), stages.end(), [&](const PlanStage& stage) {
    return stage.dp != stages.front().dp || stage.tp != stages.front().tp;
  });
}

std::string Plan::layout_text() const {
  std::string text;
  if (has_uneven_stages()) {
    text = fmt::format("stages {} ({})", keys.stages, keys.schedule);
  } else {
    text = fmt::format("dp {}, tp {}{}, pp {}", keys.dp, keys.tp, keys.sequence ? " with sequences" : "", keys.pp);
    if (keys.cp > 1) text += fmt::format(", cp {}", keys.cp);
    if (keys.pp > 1) {
      text += keys.interleave > 1 ? fmt::format(" ({}, {} stages a rank)", keys.schedule, keys.interleave)
                                  : fmt::format(" ({})", keys.schedule);
    }
  }
  if (!keys.shares.empty()) text += fmt::format(", shares {}", short_shares(keys.shares));
  if (keys.zero > 0) text += fmt::format(", ZeRO-{}", keys.zero);
  text += fmt::format(", micro-batches of {}", keys.micro_batch);
  const bool has_numbers = !keys.recompute.empty() && keys.recompute[0] >= '0' && keys.recompute[0] <= '9';
  if (has_numbers) {
    text += fmt::format(", blocks {} recomputed", keys.recompute);
  } else if (keys.recompute != "none") {
    text += fmt::format(", {} recomputation", keys.recompute);
  }
  if (keys.compression != "none") text += fmt::format(", {}", keys.compression);
  return text;
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
  } catch (const SystemError& error) {  // whoever named it can name another
    throw UsageError(fmt::format("the plan {} cannot be read: {}", path.string(), error.what()),
                     "name a file that trireme plan --out has written");
  }
  return plan_from_json(text, path.string());
}

void check_plan(const Plan& plan, const Config& config, int64_t world) {
  if (plan.world_size != world) {
    throw UsageError(fmt::format("the plan is for {} workers, and there are {}", plan.world_size, world),
                     fmt::format("plan again: trireme plan --gpus {}", world));
  }
  const ModelConfig &there = plan.model, &here = config.model;
  if (there.kind != here.kind) {
    throw UsageError(fmt::format("the plan is for another model: model.kind = {} there, {} here", name_of(there.kind),
                                 name_of(here.kind)),
                     "plan again for this one: trireme plan");
  }
  if (here.is_language()) {
    compare("layers", there.layers, here.layers);
    compare("hidden", there.hidden, here.hidden);
    compare("heads", there.heads, here.heads);
    if (here.kind == ModelKind::kLlama) compare("kv_heads", there.kv_heads, here.kv_heads);
    compare("ffn", there.ffn, here.ffn);
    compare("seq", there.seq, here.seq);
    compare("vocab", there.vocab, here.vocab);
    compare("tied", there.tied, here.tied);
  } else {
    if (here.kind == ModelKind::kMlp) {
      compare("layers", there.layers, here.layers);
      compare("hidden", there.hidden, here.hidden);
    } else {
      compare("depth", there.depth, here.depth);
    }
    compare("channels", there.channels, here.channels);
    compare("image", there.image, here.image);
    compare("classes", there.classes, here.classes);
  }
  if (plan.keys.global_batch != config.train.global_batch) {
    throw UsageError(fmt::format("the plan is for train.global_batch = {}, and it is {} here", plan.keys.global_batch,
                                 config.train.global_batch),
                     "plan again, or set the batch that was planned");
  }
}

void apply_plan(const Plan& plan, Config& config) {
  const auto set = [&](const char* name, const Value& value) {
    const Key& key = find_key(name, "the plan");
    if (get_value(config, key) == value) return;
    set_value(config, key, value, "the plan");
    config.origins.set(name, "the plan");
  };
  visit_keys(plan.keys, [&](const char* name, const auto& value) { set(name, value); });
  set("parallel.plan", std::string());
  // The memory that was predicted; sums of whole gradients would take more.
  if (plan.keys.zero > 1) set("parallel.zero_accumulation", std::string("shares"));
}

}  // namespace trireme
