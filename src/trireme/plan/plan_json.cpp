// The plan file: JSON with one value per line, under the names of the trainer's keys.
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/stages.h"
#include "trireme/plan/graph/graph_plan_file.h"
#include "trireme/plan/plan.h"
#include "trireme/plan/plan_text.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme plan 1";

/// The contents of a file, listed once for writing and reading: `visit(name, value)`.
template <typename Value, typename Visit>
void visit_prediction(Value& p, Visit visit) {
  visit("step_seconds", p.step_seconds);
  visit("tokens_per_second_per_gpu", p.tokens_per_second_per_gpu);
  visit("model_tflops_per_gpu", p.model_tflops_per_gpu);
  visit("hardware_tflops_per_gpu", p.hardware_tflops_per_gpu);
  visit("memory_bytes_per_gpu", p.memory_bytes_per_gpu);
  visit("bubble_fraction", p.bubble_fraction);
  visit("memory_limit_bytes", p.memory_limit_bytes);
  visit("fits", p.fits);
}

std::string range_text(int64_t first, int64_t last) { return fmt::format("{}-{}", first, last); }

Json stage_json(const PlanStage& stage) {
  Json placements = Json::object();
  for (const auto& [name, where] : stage.placements) placements[name] = where;
  return {{"layers", range_text(stage.layers.first, stage.layers.last - 1)},
          {"devices", range_text(stage.first_device, stage.first_device + stage.num_devices - 1)},
          {"dp", stage.dp},
          {"tp", stage.tp},
          {"placements", placements}};
}

/// Placements on the axes {dp, tp}: "[replicate, shard(0)]".
void check_placement(const JsonReader& read, const std::string& name, std::string_view text) {
  const std::string what = fmt::format("the placement of {} is \"{}\"", name, text);
  const char* cure = "one for each axis of dp and tp, as in \"[replicate, shard(0)]\"";
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') read.fail(what, cure);
  size_t count = 0;
  try {
    count = placements_from(text.substr(1, text.size() - 2)).size();
  } catch (const UsageError& error) {
    read.fail(fmt::format("{}: {}", what, error.what()), cure);
  }
  if (count != 2) read.fail(what, cure);
}

PlanStage read_stage(const Json& json, const std::string& file, size_t index) {
  JsonReader read = plan_reader(json, file, fmt::format("stage {}", index));
  PlanStage stage;
  const auto [first, last] = read_range(read, "layers");
  stage.layers = {static_cast<int>(first), static_cast<int>(last) + 1};
  const auto [device, last_device] = read_range(read, "devices");
  stage.first_device = device;
  stage.num_devices = last_device - device + 1;
  read("dp", stage.dp);
  read("tp", stage.tp);
  const Json& placements = read.part("placements");
  if (!placements.is_object()) read.fail(fmt::format("the placements of stage {} are no object", index));
  for (const auto& [name, where] : placements.items()) {
    if (!where.is_string()) read.fail(fmt::format("the placement of {} is no text", name));
    stage.placements.emplace_back(name, where.get<std::string>());
    check_placement(read, name, stage.placements.back().second);
  }
  read.finish();
  return stage;
}

void check_prediction(const PlanPrediction& predicted, const JsonReader& read) {
  visit_prediction(predicted, [&](const char* name, const auto& value) {
    if (static_cast<double>(value) < 0)
      read.fail(fmt::format("the predicted {} is {}", name, value), "nothing predicted is below 0");
  });
  if (!(predicted.step_seconds > 0)) read.fail("the predicted step_seconds is 0", "a step takes time");
}

/// Checks that every layer is in exactly one stage, without gaps.
void check_layers(const Plan& plan, const JsonReader& read) {
  if (plan.stages.empty()) read.fail("it has no stages");
  int next = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlanStage& stage = plan.stages[i];
    if (stage.layers.first != next) {
      read.fail(stage.layers.first > next
                    ? fmt::format("layers {} have no stage", range_text(next, stage.layers.first - 1))
                    : fmt::format("layer {} has two stages", stage.layers.first),
                fmt::format("begin stage {} with layer {}", i, next));
    }
    next = stage.layers.last;
  }
  if (const int layers = num_layers(plan.model); next != layers) {
    read.fail(fmt::format("its stages end with layer {}, and the model with layer {}", next - 1, layers - 1));
  }
}

/// Checks that every device is in exactly one stage per round, without gaps.
void check_devices(const Plan& plan, const JsonReader& read) {
  const int64_t pp = plan.layout.pp;
  const bool in_rounds = placement_of(plan.layout.schedule) == StagePlacement::kRounds;
  int64_t next = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlanStage& stage = plan.stages[i];
    const int64_t place = static_cast<int64_t>(i) % pp;
    if (place == 0) next = 0;
    if (in_rounds && stage.first_device != next) {
      read.fail(fmt::format("stage {} begins with device {}, and the one before it ends at {}", i, stage.first_device,
                            next - 1));
    }
    next += stage.num_devices;
    int64_t left = stage.num_devices;
    for (const int64_t degree : {stage.dp, stage.tp}) left = degree >= 1 && left % degree == 0 ? left / degree : 0;
    if (left != plan.layout.cp) {
      read.fail(fmt::format("stage {} has dp {} x tp {} on {} devices", i, stage.dp, stage.tp, stage.num_devices));
    }
    if (in_rounds && place == pp - 1 && next != plan.world_size) {
      read.fail(fmt::format("its stages have {} devices, and \"world_size\" is {}", next, plan.world_size));
    }
  }
}

/// Checks that the stages match the keys. `split`: from the file.
void check_stages(const Plan& plan, const std::string& split, const JsonReader& read) {
  const Layout& l = plan.layout;
  const auto count = static_cast<int64_t>(plan.stages.size());
  const int64_t of_worker = stages_per_rank(l.schedule, l.interleave);
  if (count % l.pp != 0) read.fail(fmt::format("{} stages for parallel.pp = {}", count, l.pp));
  if (l.pp > 1 && !l.own_schedule && of_worker != count / l.pp) {
    read.fail(fmt::format("it has {} stages, and its keys parallel.pp = {}, parallel.schedule = \"{}\" and "
                          "parallel.interleave = {} make {}",
                          count, l.pp, l.schedule_name(), l.interleave, of_worker * l.pp),
              "edit both");
  }
  check_devices(plan, read);
  Partition layers;
  std::vector<StageDegrees> degrees;
  for (const PlanStage& stage : plan.stages) {
    layers.push_back(stage.layers);
    degrees.push_back({stage.dp, stage.tp});
  }
  if (!l.split.empty() && l.split != layers) {
    read.fail(fmt::format("its stages have layers {}, and its key parallel.split is \"{}\"", partition_to_text(layers),
                          split),
              "edit both");
  }
  const std::string shapes = stages_to_text(degrees), wanted = stages_to_text(l.stages);
  if (plan.has_uneven_stages()) {
    if (l.stages != degrees) {
      read.fail(fmt::format("its stages are {}, and its key parallel.stages is \"{}\"", shapes, wanted), "edit both");
    }
    if (l.dp != num_lanes(degrees) || l.tp != 1) {
      read.fail(fmt::format("its stages have {} lanes, and its keys dp {} x tp {}", num_lanes(degrees), l.dp, l.tp),
                fmt::format("set parallel.dp to {} and parallel.tp to 1", num_lanes(degrees)));
    }
  } else if (!l.stages.empty()) {
    read.fail(fmt::format("its stages are alike, and its key parallel.stages is \"{}\"", wanted), "leave that empty");
  } else if (degrees[0] != StageDegrees{l.dp, l.tp}) {
    read.fail(fmt::format("its stages have dp {} x tp {}, and its keys dp {} x tp {}", degrees[0].dp, degrees[0].tp,
                          l.dp, l.tp));
  }
}

/// Reads the keys of a layout from the file.
std::vector<std::pair<const char*, Value>> read_keys(JsonReader read) {
  std::vector<std::pair<const char*, Value>> keys = keys_of({});
  for (auto& [name, value] : keys) {
    const bool is_younger = name == std::string_view("parallel.stages");  // older plans do not have it
    std::visit([&, key = name](auto& field) { is_younger ? read.maybe(key, field) : read(key, field); }, value);
  }
  read.finish();
  return keys;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  Json model = {{"kind", name_of(plan.model.kind)}};
  visit_sizes(plan.model, [&](const char* name, const auto& size, bool) { model[name] = size; });
  Json keys = Json::object();
  for (const auto& [name, value] : keys_of(plan.layout)) {
    std::visit([&, key = name](const auto& field) { keys[key] = field; }, value);
  }
  Json predicted = Json::object();
  visit_prediction(plan.predicted, [&](const char* name, const auto& field) { predicted[name] = field; });
  Json stages = Json::array();
  for (const PlanStage& stage : plan.stages) stages.push_back(stage_json(stage));
  const Json json = {
      {"format", kFormat}, {"world_size", plan.world_size}, {"cluster", plan.cluster}, {"model", model}, {"keys", keys},
      {"stages", stages},  {"predicted", predicted}};
  return json.dump(2) + "\n";
}

Plan plan_from_json(std::string_view text, const std::string& name) {
  const Json json = parse_plan(text, name);
  JsonReader read = plan_reader(json, name);
  std::string format, kind;
  read("format", format);
  if (format == kGraphPlanFormat) {
    read.fail("it is a plan of parallelize(), for a module of one's own", "give it there: {.plan = \"plan.json\"}");
  }
  if (format != kFormat) read.fail(fmt::format("its \"format\" is \"{}\", not \"{}\"", format, kFormat));
  Plan plan;
  read("world_size", plan.world_size);
  read("cluster", plan.cluster);
  JsonReader model = read.inside("model");
  model("kind", kind);
  plan.model.kind = model_kind(kind);
  visit_sizes(plan.model, [&](const char* field, auto& size, bool) { model(field, size); });
  model.finish();
  const auto keys = read_keys(read.inside("keys"));
  const Json& stages = read.part("stages");
  if (!stages.is_array()) read.fail("its \"stages\" are no list");
  for (const Json& stage : stages) plan.stages.push_back(read_stage(stage, name, plan.stages.size()));
  JsonReader predicted = read.inside("predicted");
  visit_prediction(plan.predicted, [&](const char* field, auto& value) { predicted(field, value); });
  predicted.finish();
  check_prediction(plan.predicted, predicted);
  read.finish();
  check_layers(plan, read);
  plan.layout = planned_layout(plan.model, keys);
  for (const auto& [key, value] : keys) {
    if (key == std::string_view("parallel.split")) check_stages(plan, std::get<std::string>(value), read);
  }
  return plan;
}

}  // namespace trireme
