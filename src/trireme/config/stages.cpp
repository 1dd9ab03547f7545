#include "trireme/config/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"
#include "trireme/config/value.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

/// A number of ranks, or 0.
int64_t degree_in(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_number = error == std::errc() && end == word.data() + word.size();
  return is_number && value >= 1 && value <= kMostRanks ? value : 0;
}

}  // namespace

std::vector<StageDegrees> stage_degrees(const Config& config) {
  std::vector<StageDegrees> stages;
  std::string words = config.parallel.stages;
  std::replace(words.begin(), words.end(), '+', ',');
  for (const std::string_view word : split(words, ',')) {
    const std::vector<std::string_view> degrees = split(word, 'x');
    StageDegrees stage{0, 0};
    if (degrees.size() == 2) stage = {degree_in(degrees[0]), degree_in(degrees[1])};
    if (stage.dp == 0 || stage.tp == 0) {
      throw UsageError(fmt::format("{}: \"{}\" is no shape of a stage", with_origin(config, "parallel.stages"), word),
                       "give dp x tp of each: \"2x1,1x2\" is a stage of two replicas, then one cut over two workers");
    }
    stages.push_back(stage);
    // Each number is small, so that no step overflows.
    if (num_workers(stages) > kMostRanks || num_lanes(stages) > kMostRanks) {
      throw UsageError(fmt::format("{}: {} workers whose replicas have {} as their least common multiple are too many",
                                   with_origin(config, "parallel.stages"), num_workers(stages), num_lanes(stages)),
                       fmt::format("at most {} of both", kMostRanks));
    }
  }
  return stages;
}

std::string stages_to_text(const std::vector<StageDegrees>& stages) {
  std::vector<std::string> words;
  for (const StageDegrees& stage : stages) words.push_back(fmt::format("{}x{}", stage.dp, stage.tp));
  return join(words, ",");
}

int64_t num_lanes(const std::vector<StageDegrees>& stages) {
  int64_t lanes = 1;
  for (const StageDegrees& stage : stages) lanes = std::lcm(lanes, stage.dp);
  return lanes;
}

int64_t num_workers(const std::vector<StageDegrees>& stages) {
  int64_t sum = 0;
  for (const StageDegrees& stage : stages) sum += stage.num_workers();
  return sum;
}

void check_stage_degrees(const Config& config) {
  const std::vector<StageDegrees> stages = stage_degrees(config);
  if (stages.empty()) return;
  const ParallelConfig& parallel = config.parallel;
  const auto demand = [&](bool holds, std::string_view key, std::string_view problem, const std::string& cure) {
    if (!holds) contradict(config, "parallel.stages", problem, key, cure);
  };
  if (stages.size() == 1) {
    throw UsageError(fmt::format("{} is one stage, not a pipeline", with_origin(config, "parallel.stages")),
                     fmt::format("set parallel.dp = {} and parallel.tp = {} instead", stages[0].dp, stages[0].tp));
  }
  demand(static_cast<int64_t>(stages.size()) == parallel.pp, "parallel.pp",
         fmt::format("are {} stages, but", stages.size()), fmt::format("set parallel.pp = {}", stages.size()));
  demand(parallel.tp == 1, "parallel.tp", "says for each stage what all have by", "leave parallel.tp at 1");
  demand(parallel.dp == -1 || parallel.dp == num_lanes(stages), "parallel.dp", "says for each stage what all have by",
         fmt::format("leave parallel.dp at -1: it is {}", num_lanes(stages)));
  const bool several =
      parallel.interleave > 1 || (!parallel.has_own_schedule() && stages_a_rank(schedule_kind(parallel.schedule)) > 1);
  demand(!several, parallel.interleave > 1 ? "parallel.interleave" : "parallel.schedule",
         "are one for each worker, but several have", "take a schedule with one stage a worker, such as 1f1b");
  const std::string_view alike = "need replicas that are alike for";
  demand(parallel.aggregation == "average" || parallel.aggregation == "sum", "parallel.aggregation", alike,
         "set parallel.aggregation = \"average\"");
  demand(config.compression.method == "none", "compression.method", alike, "set compression.method = \"none\"");
  demand(config.compression.gather == "none", "compression.gather", alike, "set compression.gather = \"none\"");
  demand(parallel.cp == 1, "parallel.cp", alike, "set parallel.cp = 1");
  demand(parallel.ep == 1, "parallel.ep", alike, "set parallel.ep = 1");
  demand(config.local.method == "none", "local.method", alike, "set local.method = \"none\"");
  demand(parallel.shares.empty(), "parallel.shares", alike, "leave parallel.shares empty");
  demand(parallel.zero_shards == 0, "parallel.zero_shards", alike, "leave it at 0: all replicas of a stage share");
  demand(!config.model.sync_statistics, "model.sync_statistics",
         "let a worker compute for several replicas one after another, which meet inside a pass with",
         "set model.sync_statistics = false");
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageDegrees& stage = stages[i];
    if (stage.tp > 1) {
      check_tensor_parallel(config.model, stage.tp, fmt::format("tp of stage {} (parallel.stages)", i));
    }
    demand(!parallel.sequence || config.model.seq % stage.tp == 0, "model.seq",
           "with parallel.sequence cut the sequence into equal parts, not", "choose a tp that divides model.seq");
  }
}

}  // namespace trireme
