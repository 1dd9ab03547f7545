#include "trireme/cli/simulate_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

std::string two_decimals(double bytes) { return format_gigabytes(bytes, 2); }

/// Where memory is fullest, for people: slots of gradients are the runtime's.
std::string peak_of(const SimulatedRank& rank) {
  Instruction at = rank.played.peak_at;
  at.slot = at.from_slot = -1;
  return at.to_string();
}

/// Of the devices of a host.
std::string host_text(const Cluster& cluster) {
  if (cluster.shared_cores > 0) return counted(cluster.shared_cores, "core") + " a host, which its processes share";
  return fmt::format("{} a host", cluster.devices_per_host);
}

std::string stages_of(const Simulation& s, size_t rank) {
  std::vector<std::string> names;
  for (size_t stage = 0; stage < s.stages.size(); ++stage) {
    if (s.schedule.rank_of_stage[stage] != static_cast<int>(rank)) continue;
    const LayerRange& blocks = s.stages[stage].blocks;
    names.push_back(fmt::format("{}-{}", blocks.first, blocks.last - 1));
  }
  if (names.size() > 3) return fmt::format("{}, … {}", names.front(), names.back());
  return join(names, ", ");
}

Json layout_json(const Layout& l) {
  return {{"stages", l.shapes_text()},
          {"dp", l.dp},
          {"tp", l.tp},
          {"pp", l.pp},
          {"cp", l.cp},
          {"ep", l.ep},
          {"zero", l.zero},
          {"sequence", l.sequence},
          {"schedule", l.schedule_name()},
          {"interleave", l.interleave},
          {"micro_batch", l.micro_batch},
          {"global_batch", l.global_batch},
          {"micro_batches", l.micro_batches() / l.dp}};
}

Json memory_json(const RankMemory& m) {
  return {{"parameters", m.weights},      {"gradients", m.gradients}, {"optimizer", m.optimizer},
          {"activations", m.activations}, {"buffers", m.buffers},     {"total", m.sum()}};
}

/// Bytes of model states that the fullest rank has at each ZeRO stage, without and with float32 gradients.
Json zero_json(const Simulation& s) {
  const std::vector<int> stages = s.schedule.stages_of(s.fullest);
  std::vector<const StageCost*> own;
  for (const int stage : stages) own.push_back(&s.stages[static_cast<size_t>(stage)]);
  Job job = s.job.of_stage(static_cast<size_t>(stages.front()));
  Json list = Json::array();
  for (int zero = 0; zero <= 3; ++zero) {
    job.layout.zero = zero;
    Json row = {{"zero", zero}};
    for (const bool float32 : {false, true}) {
      job.layout.float32_gradients = float32;
      row[float32 ? "bytes_with_float32_gradients" : "bytes"] =
          static_memory(job, own, s.cluster.stack.sums_in_tree).states();
    }
    list.push_back(row);
  }
  return list;
}

Json layers_json(const Simulation& s) {
  Json list = Json::array();
  const Layout& layout = s.job.layout;
  const auto num_shards = static_cast<double>(layout.num_shards());
  const double bytes = sharded(state_bytes(s.job), layout.zero, num_shards).sum();
  const double expert_bytes =
      sharded(state_bytes(s.job), layout.zero, num_shards / static_cast<double>(layout.ep)).sum();
  for (size_t first = 0; first < s.blocks.size();) {
    size_t last = first;
    const auto alike = [&](const BlockCost& a, const BlockCost& b) {
      return a.name == b.name && a.parameters == b.parameters && a.activation_bytes == b.activation_bytes;
    };
    while (last + 1 < s.blocks.size() && alike(s.blocks[first], s.blocks[last + 1])) ++last;
    const BlockCost& block = s.blocks[first];
    list.push_back(
        {{"layer", block.name},
         {"first", first},
         {"last", last},
         {"parameters", block.parameters},
         {"state_bytes", (block.parameters - block.expert_parameters) * bytes + block.expert_parameters * expert_bytes},
         {"activation_bytes", block.activation_bytes},
         {"working_bytes", block.working_bytes}});
    first = last + 1;
  }
  return list;
}

/// What takes the time: "computing 81 %, communication 12 %, bubble 5 %, update 2 %".
std::string what_binds(const Simulation& s) {
  std::vector<std::pair<double, std::string>> parts = {{s.parts.computing, "computing"},
                                                       {s.parts.communication, "communication that nothing hides"},
                                                       {s.parts.bubble, "bubble"},
                                                       {s.parts.update, "update"}};
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (const auto& [seconds, name] : parts) {
    const double fraction = 100 * seconds / s.step_seconds;
    if (fraction >= 0.5) words.push_back(fmt::format("{} {:.0f} %", name, fraction));
  }
  return join(words, ", ");
}

/// Where memory goes: by kind and rank, by layer, and at each ZeRO stage.
std::string memory_text(const Simulation& s) {
  const bool colour = has_colour(STDOUT_FILENO);
  const ByteUnit unit = unit_of_bytes(s.memory_bytes());
  const std::string name(unit.name);
  Table ranks({"rank", "blocks", "weights", "gradients", "optimizer", "activations", "buffers", name, "peak at"});
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    const RankMemory& m = s.ranks[rank].memory;
    const auto gb = [&](double bytes) { return fmt::format("{:.2f}", bytes / unit.bytes); };
    ranks.add_row({std::to_string(rank), stages_of(s, rank), gb(m.weights), gb(m.gradients), gb(m.optimizer),
                   gb(m.activations), gb(m.buffers), gb(m.sum()), peak_of(s.ranks[rank])});
  }
  Table layers({"layer", "blocks", "parameters", "states " + name, "activations " + name, "while it computes " + name});
  for (const Json& layer : layers_json(s)) {
    layers.add_row({layer["layer"].get<std::string>(),
                    fmt::format("{}-{}", layer["first"].get<size_t>(), layer["last"].get<size_t>()),
                    format_short_count(layer["parameters"].get<double>()),
                    fmt::format("{:.3f}", layer["state_bytes"].get<double>() / unit.bytes),
                    fmt::format("{:.3f}", layer["activation_bytes"].get<double>() / unit.bytes),
                    fmt::format("{:.3f}", layer["working_bytes"].get<double>() / unit.bytes)});
  }
  const Json zero = zero_json(s);
  Table stages({"ZeRO", fmt::format("{} on rank {}", name, s.fullest), "with float32 gradients", "saving"});
  for (const Json& row : zero) {
    const double bytes = row["bytes"].get<double>();
    stages.add_row({fmt::format("{}", row["zero"].get<int>()), fmt::format("{:.2f}", bytes / unit.bytes),
                    fmt::format("{:.2f}", row["bytes_with_float32_gradients"].get<double>() / unit.bytes),
                    fmt::format("{:.2f} x", zero[0]["bytes"].get<double>() / bytes)});
  }
  const StateBytes bytes = state_bytes(s.job);
  const bool uneven = s.job.layout.has_uneven_stages();
  const Layout fullest = uneven ? s.job.layout.of_stage(static_cast<size_t>(s.fullest)) : s.job.layout;
  return fmt::format(
      "Memory of each rank of the pipeline, {}\n{}\nEach layer, {} of one micro-batch\n{}\n"
      "Model states: {:.4g} bytes a parameter (weights {:.4g}, gradients {:.4g}, optimizer {:.4g}), "
      "{}{}{}\n{}",
      name, ranks.to_text({.bold_header = colour, .indent = 2}),
      uneven ? "before the ranks of its stage share it," : "a rank's share",
      layers.to_text({.bold_header = colour, .indent = 2}), bytes.sum(), bytes.weights, bytes.gradients,
      bytes.optimizer, counted(fullest.num_replicas(), "replica"), uneven ? " of the fullest stage" : "",
      fullest.ep > 1 ? fmt::format(", {} of experts", fullest.num_replicas() / fullest.ep) : "",
      stages.to_text({.bold_header = colour, .indent = 2}));
}

/// Of a whole training.
double training_seconds(const Simulation& s, double tokens) { return tokens / s.tokens_per_step * s.step_seconds; }

}  // namespace

std::vector<std::string> idle_row(const Simulation& s) {
  return {"idle", fmt::format("{:.1f} %", 100 * s.bubble_fraction),
          "of the pipeline's time, without sums and update: its busiest rank waits, for stages or messages"};
}

std::string how_sure(const Cluster& cluster) {
  const Evidence& evidence = cluster.evidence;
  if (evidence.runs == 0) {
    return fmt::format(
        "how sure: no measurement was compared with the constants of {}; trireme bench train "
        "--write-cluster measures a machine",
        spoken_name(cluster.name));
  }
  const std::string errors =
      fmt::format("{:.1f} % on average and {:.0f} % at worst", 100 * evidence.mean_error, 100 * evidence.worst_error);
  if (evidence.papers > 0) {
    return fmt::format(
        "how sure: {} steps that {} papers measured on {}s, each predicted without its own paper's help, are met "
        "within "
        "{} (docs/accuracy.md)",
        evidence.runs, evidence.papers, cluster.device.name, errors);
  }
  if (evidence.is_published) {
    return fmt::format(
        "how sure: {} published steps on {}s are met within {}, but their papers chose the constants "
        "(docs/accuracy.md)",
        evidence.runs, cluster.device.name, errors);
  }
  return fmt::format("how sure: the {} trainings that chose the constants of {} are met within {}", evidence.runs,
                     cluster.name, errors);
}

std::string simulation_text(const Simulation& s, const SimulateReportOptions& options) {
  const Layout& l = s.job.layout;
  const bool colour = has_colour(STDOUT_FILENO);
  const RankMemory& full = s.ranks[static_cast<size_t>(s.fullest)].memory;
  const ByteUnit bytes = unit_of_bytes(full.sum());
  std::string text = emphasised(
      fmt::format(
          "{} parameters on {} x {} ({}): {}{}, ZeRO-{}{}", format_short_count(s.parameters), l.num_devices(),
          s.cluster.device.name, host_text(s.cluster),
          l.has_uneven_stages() ? "stages " + l.shapes_text()
                                : fmt::format("dp {}, tp {}, pp {}, cp {}", l.dp, l.tp, l.pp, l.cp),
          l.ep > 1 ? fmt::format(", ep {}", l.ep) : "", l.zero,
          l.pp > 1 ? fmt::format(", {} of {}", l.schedule_name(), counted(l.accumulation(), "micro-batch")) : ""),
      Emphasis::kBold, colour);
  text += "\n\n";
  Table table({{"", Align::kLeft}, {"", Align::kRight}, {"", Align::kLeft}});
  const char* unit = s.job.model.is_language() ? "tokens" : "samples";
  table.add_row({"step", format_duration(s.step_seconds), "of it " + what_binds(s)});
  table.add_row(
      {"speed", format_rate(s.tokens_per_second_per_device(), unit),
       fmt::format("a device; {} in all", format_rate(s.tokens_per_second_per_device() * s.devices(), unit))});
  table.add_row({"model", format_flop_rate(s.model_flops_per_device()),
                 fmt::format("a device, {:.1f} % of its peak{}", 100 * s.model_flops_per_device() / s.peak_flops(),
                             l.fp8_products ? " in fp8" : "")});
  table.add_row({"hardware", format_flop_rate(s.hardware_flops_per_device()), "with recomputation"});
  if (s.job.layout.pp > 1) table.add_row(idle_row(s));
  table.add_row({"memory", two_decimals(s.memory_bytes()),
                 fmt::format("of {} on rank {} of the pipeline: weights {:.1f}, gradients {:.1f}, optimizer {:.1f}, "
                             "activations {:.1f}, buffers {:.1f} {}",
                             two_decimals(s.cluster.device.memory_bytes), s.fullest, full.weights / bytes.bytes,
                             full.gradients / bytes.bytes, full.optimizer / bytes.bytes, full.activations / bytes.bytes,
                             full.buffers / bytes.bytes, bytes.name)});
  if (options.tokens > 0) {
    const double seconds = training_seconds(s, options.tokens);
    table.add_row({"training", format_duration(seconds),
                   fmt::format("for {} {}: {} device-hours", format_short_count(options.tokens), unit,
                               format_short_count(seconds / 3600 * s.devices()))});
  }
  // The table has no header: its first line is empty.
  const std::string lines = table.to_text({.indent = 2});
  text += lines.substr(lines.find('\n') + 1);
  if (!s.fits()) {
    text += emphasised(fmt::format("\ndoes not fit: {} more than a device has; the peak is at {}\n",
                                   two_decimals(s.memory_bytes() - s.cluster.device.memory_bytes),
                                   peak_of(s.ranks[static_cast<size_t>(s.fullest)])),
                       Emphasis::kRed, colour);
    text += "would fit:\n";
    for (const std::string& way : ways_to_fit(s)) text += fmt::format("  {}\n", way);
  }
  if (options.memory) text += "\n" + memory_text(s);
  if (!options.note.empty()) text += fmt::format("\nnote: {}\n", options.note);
  return text + "\n" + how_sure(s.cluster) + "\n";
}

std::string simulation_json(const Simulation& s, const SimulateReportOptions& options) {
  const double limit = s.cluster.device.memory_bytes;
  Json json = {{"step_seconds", s.step_seconds},
               {"tokens_per_second_per_gpu", s.tokens_per_second_per_device()},
               {"model_tflops_per_gpu", s.model_flops_per_device() / 1e12},
               {"hardware_tflops_per_gpu", s.hardware_flops_per_device() / 1e12},
               {"memory_bytes_per_gpu", s.memory_bytes()},
               {"bubble_fraction", s.bubble_fraction},
               {"fits", s.fits()},
               {"gpus", s.job.layout.num_devices()},
               {"parameters", s.parameters},
               {"tokens_per_second", s.tokens_per_second_per_device() * s.devices()},
               {"exposed_communication_seconds", s.parts.communication},
               {"seconds",
                {{"computing", s.parts.computing},
                 {"communication", s.parts.communication},
                 {"bubble", s.parts.bubble},
                 {"update", s.parts.update}}},
               {"binds", what_binds(s)},
               {"memory", memory_json(s.ranks[static_cast<size_t>(s.fullest)].memory)},
               {"memory_limit_bytes", limit},
               {"memory_rank", s.fullest},
               {"memory_peak_at", s.ranks[static_cast<size_t>(s.fullest)].played.peak_at.to_string()},
               {"layout", layout_json(s.job.layout)},
               {"cluster", s.cluster.name},
               {"evidence",
                {{"runs", s.cluster.evidence.runs},
                 {"papers", s.cluster.evidence.papers},
                 {"mean_error", s.cluster.evidence.mean_error},
                 {"worst_error", s.cluster.evidence.worst_error}}}};
  Json stages = Json::array();
  for (size_t stage = 0; stage < s.stages.size(); ++stage) {
    const StageCost& cost = s.stages[stage];
    const Layout own = s.job.layout.of_stage(stage);
    const auto lanes = static_cast<double>(own.lanes);  // micro-batches of a turn
    stages.push_back({{"rank", s.schedule.rank_of_stage[stage]},
                      {"dp", own.dp},
                      {"tp", own.tp},
                      {"first_block", cost.blocks.first},
                      {"last_block", cost.blocks.last - 1},
                      {"forward_seconds", cost.sum.forward / lanes},
                      {"backward_seconds", cost.sum.backward_input / lanes},
                      {"weight_seconds", cost.sum.backward_weight / lanes}});
  }
  json["stages"] = stages;
  if (!s.fits()) {
    json["missing_bytes"] = s.memory_bytes() - limit;
    json["would_fit"] = ways_to_fit(s);
  }
  if (options.tokens > 0) {
    const double seconds = training_seconds(s, options.tokens);
    json["total_tokens"] = options.tokens;
    json["total_seconds"] = seconds;
    json["gpu_hours"] = seconds / 3600 * s.devices();
  }
  if (options.memory) {
    Json ranks = Json::array();
    for (const SimulatedRank& rank : s.ranks) ranks.push_back(memory_json(rank.memory));
    const StateBytes bytes = state_bytes(s.job);
    json["memory_accounting"] = {
        {"bytes_per_parameter", bytes.sum()}, {"ranks", ranks}, {"layers", layers_json(s)}, {"zero", zero_json(s)}};
  }
  json["note"] = options.note.empty() ? Json(nullptr) : Json(options.note);
  return json.dump(2);
}

}  // namespace trireme::cli
