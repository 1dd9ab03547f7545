#include "trireme/cli/plan_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/simulate_report.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"
#include "trireme/plan/graph/graph.h"
#include "trireme/plan/graph/intra_op.h"

namespace trireme::cli {
namespace {

constexpr size_t kMostStages = 12;  ///< drawn one by one

/// Whether blocks of the stage are computed again; the embedding is layer 0, and no block.
const char* activations_of(const PlanStage& stage, const Layout& layout) {
  for (const auto& [first, last] : layout.recompute.ranges) {
    if (stage.layers.first - 1 <= last && first <= stage.layers.last - 2) return "again";
  }
  return "kept";
}

/// Where on the devices a stage is, a mark for each or for several; never none.
std::string bar_of(const PlanStage& stage, int64_t columns, int64_t devices) {
  const int64_t first = stage.first_device, last = first + stage.num_devices - 1;
  std::string bar;
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t device = column * devices / columns, next = (column + 1) * devices / columns;
    const bool starts_here = first >= device && first < next && last < next;
    bar += starts_here || (device >= first && device <= last) ? "█" : "·";
  }
  return bar;
}

/// A row for each stage.
std::string drawing(const PlanReport& report) {
  const Plan& plan = report.plan;
  const Simulation& s = report.simulation;
  constexpr int64_t kColumns = 32;
  const int64_t columns = std::min(kColumns, plan.world_size);
  const ByteUnit unit = unit_of_bytes(s.memory_bytes());
  std::vector<Column> columns_shown = {"stage",
                                       "layers",
                                       {"devices", Align::kLeft},
                                       {"", Align::kLeft},
                                       "dp x tp",
                                       plan.has_uneven_stages() ? "ms a turn" : "ms a micro-batch",
                                       std::string(unit.name)};
  const bool is_mixed = !s.job.layout.recompute.ranges.empty();
  if (is_mixed) columns_shown.emplace_back("activations");
  Table table(columns_shown);
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const PlanStage& stage = plan.stages[i];
    if (plan.stages.size() > kMostStages && i >= kMostStages / 2 && i + kMostStages / 2 < plan.stages.size()) {
      if (i == kMostStages / 2) table.add_row({"…"});
      continue;
    }
    const StageCost& cost = s.stages[i];
    const double seconds = cost.sum.forward + cost.sum.backward_input + cost.sum.backward_weight;
    const RankMemory& memory = s.ranks[static_cast<size_t>(s.schedule.rank_of_stage[i])].memory;
    std::vector<std::string> row = {
        std::to_string(i),
        fmt::format("{}-{}", stage.layers.first, stage.layers.last - 1),
        bar_of(stage, columns, plan.world_size),
        fmt::format("{}-{}", stage.first_device, stage.first_device + stage.num_devices - 1),
        fmt::format("{} x {}", stage.dp, stage.tp),
        fmt::format("{:.2f}", 1e3 * seconds),
        fmt::format("{:.1f}", memory.sum() / unit.bytes)};
    if (is_mixed) row.emplace_back(activations_of(stage, s.job.layout));
    table.add_row(row);
  }
  return table.to_text({.bold_header = has_colour(STDOUT_FILENO), .indent = 2});
}

std::string change_text(double seconds, double now) {
  const double change = 100 * (seconds / now - 1);
  if (change > -0.05 && change < 0.05) return "nothing";
  return fmt::format("{:+.1f} %", change);
}

/// Runners-up that are faster by nothing that counts are more complicated.
std::string loss_text(double seconds, double now) {
  const double loss = 100 * (seconds / now - 1);
  return loss < 0.5 ? "as good" : fmt::format("{:+.1f} %", loss);
}

Json keys_json(const Plan& plan) { return Json::parse(plan_to_json(plan))["keys"]; }

}  // namespace

std::string plan_text(const PlanReport& report) {
  const Plan& plan = report.plan;
  const Simulation& s = report.simulation;
  const bool colour = has_colour(STDOUT_FILENO);
  const char* unit = s.job.model.is_language() ? "tokens" : "samples";
  std::string text = emphasised(fmt::format("{} parameters on {} x {}: {}", format_short_count(s.parameters),
                                            plan.world_size, s.cluster.device.name, plan.layout_text()),
                                Emphasis::kBold, colour);
  text += "\n\n" + drawing(report) + "\n";
  Table table({{"", Align::kLeft}, {"", Align::kRight}, {"", Align::kLeft}});
  table.add_row(
      {"step", format_duration(s.step_seconds),
       fmt::format("{} a device, {}, {:.1f} % of the peak{}", format_rate(s.tokens_per_second_per_device(), unit),
                   format_flop_rate(s.model_flops_per_device(), "model"),
                   100 * s.model_flops_per_device() / s.peak_flops(), s.job.layout.fp8_products ? " in fp8" : "")});
  table.add_row({"memory", format_gigabytes(s.memory_bytes()),
                 fmt::format("of {}, on the fullest device", format_gigabytes(s.cluster.device.memory_bytes))});
  if (s.job.layout.pp > 1) table.add_row(idle_row(s));
  const std::string lines = table.to_text({.indent = 2});
  text += lines.substr(lines.find('\n') + 1);  // the table has no header
  if (!report.binding.empty()) text += fmt::format("\nbound by {}\n", report.binding);
  if (report.uneven) {
    text += fmt::format("stages of different shapes would take {} ({}): --uneven\n",
                        format_duration(report.uneven->step_seconds),
                        change_text(report.uneven->step_seconds, s.step_seconds));
  }
  if (!report.note.empty()) text += fmt::format("note: {}\n", report.note);
  if (!report.runners_up.empty()) {
    const ByteUnit bytes = unit_of_bytes(s.memory_bytes());
    Table others({{"runners-up", Align::kLeft}, "step", "loss", std::string(bytes.name)});
    for (const Alternative& other : report.runners_up) {
      others.add_row({other.layout, format_duration(other.step_seconds), loss_text(other.step_seconds, s.step_seconds),
                      fmt::format("{:.1f}", other.memory_bytes / bytes.bytes)});
    }
    text += "\n" + others.to_text({.bold_header = colour, .indent = 2});
  }
  if (!report.helps.empty()) {
    Table helps({{"what more would bring", Align::kLeft}, "step", {"", Align::kLeft}});
    for (const Alternative& help : report.helps) {
      helps.add_row({help.words, change_text(help.step_seconds, s.step_seconds), help.layout});
    }
    text += "\n" + helps.to_text({.bold_header = colour, .indent = 2});
  }
  text += fmt::format("\n{}\n{} layouts, {} simulations\n", how_sure(s.cluster), format_count(report.num_candidates),
                      format_count(report.num_simulated));
  return text;
}

std::string plan_json(const PlanReport& report, const std::optional<measure::PlanTrials>& trials) {
  Json json = Json::parse(simulation_json(report.simulation, {.note = report.note}));
  const Plan& plan = report.plan;
  json["keys"] = keys_json(plan);
  json["stages"] = Json::parse(plan_to_json(plan))["stages"];
  Json runners = Json::array(), helps = Json::array();
  for (const Alternative& other : report.runners_up) {
    runners.push_back(
        {{"layout", other.layout}, {"step_seconds", other.step_seconds}, {"memory_bytes_per_gpu", other.memory_bytes}});
  }
  for (const Alternative& help : report.helps) {
    helps.push_back({{"what", help.words}, {"step_seconds", help.step_seconds}});
  }
  json["binding"] = report.binding;
  json["runners_up"] = runners;
  json["would_help"] = helps;
  json["uneven_step_seconds"] = report.uneven ? Json(report.uneven->step_seconds) : Json(nullptr);
  if (trials) {
    json["tried"] = Json::array();
    for (const measure::PlanTrial& trial : trials->trials) {
      json["tried"].push_back({{"layout", trial.layout},
                               {"predicted_seconds", trial.predicted_seconds},
                               {"measured_seconds", trial.measured_seconds}});
    }
  }
  json["candidates"] = report.num_candidates;
  json["simulated"] = report.num_simulated;
  return json.dump(2);
}

std::string trials_text(const measure::PlanTrials& tried) {
  Table table({{fmt::format("tried in {}", format_duration(tried.seconds)), Align::kLeft},
               "predicted",
               "measured",
               {"", Align::kLeft}});
  for (size_t i = 0; i < tried.trials.size(); ++i) {
    const measure::PlanTrial& trial = tried.trials[i];
    table.add_row({trial.layout, format_duration(trial.predicted_seconds), format_duration(trial.measured_seconds),
                   i == tried.best ? "taken" : ""});
  }
  return table.to_text({.bold_header = has_colour(STDERR_FILENO), .indent = 2});
}

}  // namespace trireme::cli
