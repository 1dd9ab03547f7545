// The plan file: JSON, one value a line, each key with the name that the trainer has for it.
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

/// One list of what a file holds, for writing and for reading: `visit(name, value)`.
template <typename Value, typename Visit>
void visit_model(Value& m, Visit visit) {
  visit("layers", m.layers);
  visit("hidden", m.hidden);
  visit("heads", m.heads);
  visit("kv_heads", m.kv_heads);
  visit("ffn", m.ffn);
  visit("seq", m.seq);
  visit("vocab", m.vocab);
  visit("tied", m.tied);
  visit("depth", m.depth);
  visit("channels", m.channels);
  visit("image", m.image);
  visit("classes", m.classes);
}

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

/// Along the axes {dp, tp}: "[replicate, shard(0)]".
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

/// Stages of a worker, as the keys have it; 0 where they do not say.
int64_t stages_of_worker(const PlanKeys& keys) {
  if (keys.pp == 1 || names_file(keys.schedule)) return 0;
  if (keys.interleave > 1) return keys.interleave;
  return stages_a_rank(schedule_kind(keys.schedule));
}

void check_prediction(const PlanPrediction& predicted, const JsonReader& read) {
  visit_prediction(predicted, [&](const char* name, const auto& value) {
    if (static_cast<double>(value) < 0)
      read.fail(fmt::format("the predicted {} is {}", name, value), "nothing predicted is below 0");
  });
  if (!(predicted.step_seconds > 0)) read.fail("the predicted step_seconds is 0", "a step takes time");
}

/// Layers and devices, each in one stage, without holes.
void check_stages(const Plan& plan, const JsonReader& read) {
  if (plan.stages.empty()) read.fail("it has no stages");
  const int64_t per_rank = plan.keys.pp > 0 ? static_cast<int64_t>(plan.stages.size()) / plan.keys.pp : 0;
  if (plan.keys.pp < 1 || per_rank * plan.keys.pp != static_cast<int64_t>(plan.stages.size())) {
    read.fail(fmt::format("{} stages for parallel.pp = {}", plan.stages.size(), plan.keys.pp));
  }
  if (const int64_t wanted = stages_of_worker(plan.keys); wanted > 0 && wanted != per_rank) {
    read.fail(
        fmt::format("it has {} stages, and its keys parallel.pp = {}, parallel.schedule = \"{}\" and "
                    "parallel.interleave = {} make {}",
                    plan.stages.size(), plan.keys.pp, plan.keys.schedule, plan.keys.interleave, wanted * plan.keys.pp),
        "edit both");
  }
  int next_layer = 0;
  int64_t next_device = 0;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlanStage& stage = plan.stages[i];
    if (stage.layers.first > next_layer) {
      read.fail(fmt::format("layers {} have no stage", range_text(next_layer, stage.layers.first - 1)),
                fmt::format("begin stage {} with layer {}", i, next_layer));
    }
    if (stage.layers.first < next_layer) {
      read.fail(fmt::format("layer {} has two stages", stage.layers.first),
                fmt::format("begin stage {} with layer {}", i, next_layer));
    }
    next_layer = stage.layers.last;
    if (static_cast<int64_t>(i) % plan.keys.pp == 0) next_device = 0;
    const bool in_rounds = plan.keys.schedule != "zb-v";  // which goes down the ranks and up again
    if (in_rounds && stage.first_device != next_device) {
      read.fail(fmt::format("stage {} begins with device {}, and the one before it ends at {}", i, stage.first_device,
                            next_device - 1));
    }
    next_device += stage.num_devices;
    const auto fits_in = [&](int64_t degree, int64_t& devices) {
      const bool divides = degree >= 1 && devices % degree == 0;
      if (divides) devices /= degree;
      return divides;
    };
    int64_t left = stage.num_devices;
    if (!fits_in(stage.dp, left) || !fits_in(stage.tp, left) || left != plan.keys.cp) {
      read.fail(fmt::format("stage {} has dp {} x tp {} on {} devices", i, stage.dp, stage.tp, stage.num_devices));
    }
    const bool last_round = static_cast<int64_t>(i) % plan.keys.pp == plan.keys.pp - 1;
    if (in_rounds && last_round && next_device != plan.world_size) {
      read.fail(fmt::format("its stages have {} devices, and \"world_size\" is {}", next_device, plan.world_size));
    }
  }
  const int layers = num_layers(plan.model);
  if (next_layer != layers) {
    read.fail(fmt::format("its stages end with layer {}, and the model with layer {}", next_layer - 1, layers - 1));
  }
  const PlanKeys& k = plan.keys;
  if (!k.split.empty()) {
    Partition layers_of_stages;
    for (const PlanStage& stage : plan.stages) layers_of_stages.push_back(stage.layers);
    if (partition_from_text(k.split, layers) != layers_of_stages) {
      read.fail(fmt::format("its stages have layers {}, and its key parallel.split is \"{}\"",
                            partition_to_text(layers_of_stages), k.split),
                "edit both");
    }
  }
  if (plan.has_uneven_stages()) {
    std::vector<StageDegrees> degrees;
    for (const PlanStage& stage : plan.stages) degrees.push_back({stage.dp, stage.tp});
    if (k.stages != stages_to_text(degrees)) {
      read.fail(
          fmt::format("its stages are {}, and its key parallel.stages is \"{}\"", stages_to_text(degrees), k.stages),
          "edit both");
    }
    if (k.dp != num_lanes(degrees) || k.tp != 1) {
      read.fail(fmt::format("its stages have {} lanes, and its keys dp {} x tp {}", num_lanes(degrees), k.dp, k.tp),
                fmt::format("set parallel.dp to {} and parallel.tp to 1", num_lanes(degrees)));
    }
  } else if (!k.stages.empty()) {
    read.fail(fmt::format("its stages are alike, and its key parallel.stages is \"{}\"", k.stages), "leave that empty");
  } else if (plan.stages[0].dp != k.dp || plan.stages[0].tp != k.tp) {
    read.fail(fmt::format("its stages have dp {} x tp {}, and its keys dp {} x tp {}", plan.stages[0].dp,
                          plan.stages[0].tp, k.dp, k.tp));
  }
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  const auto object = [](auto visit_all, auto& value) {
    Json json = Json::object();
    visit_all(value, [&](const char* name, const auto& field) { json[name] = field; });
    return json;
  };
  Json model = {{"kind", name_of(plan.model.kind)}};
  visit_model(plan.model, [&](const char* name, const auto& field) { model[name] = field; });
  Json stages = Json::array();
  for (const PlanStage& stage : plan.stages) stages.push_back(stage_json(stage));
  const Json json = {{"format", kFormat},
                     {"world_size", plan.world_size},
                     {"cluster", plan.cluster},
                     {"model", model},
                     {"keys", object([](auto& v, auto visit) { visit_keys(v, visit); }, plan.keys)},
                     {"stages", stages},
                     {"predicted", object([](auto& v, auto visit) { visit_prediction(v, visit); }, plan.predicted)}};
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
  visit_model(plan.model, [&](const char* field, auto& value) { model(field, value); });
  model.finish();
  JsonReader keys = read.inside("keys");
  visit_keys(plan.keys, [&](const char* field, auto& value) {
    field == std::string_view("parallel.stages") ? keys.maybe(field, value)
                                                 : keys(field, value);  // older plans have none
  });
  keys.finish();
  const Json& stages = read.part("stages");
  if (!stages.is_array()) read.fail("its \"stages\" are no list");
  for (const Json& stage : stages) plan.stages.push_back(read_stage(stage, name, plan.stages.size()));
  JsonReader predicted = read.inside("predicted");
  visit_prediction(plan.predicted, [&](const char* field, auto& value) { predicted(field, value); });
  predicted.finish();
  check_prediction(plan.predicted, predicted);
  read.finish();
  check_stages(plan, read);
  return plan;
}

}  // namespace trireme
