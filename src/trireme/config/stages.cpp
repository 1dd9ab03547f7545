#include "trireme/config/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/config/check.h"
#include "trireme/config/compatibility.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

/// Parses a number of ranks from 1 to kMostRanks; 0 for anything else.
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
      throw wrong_key("parallel.stages",
                      fmt::format("{}: \"{}\" is no shape of a stage", with_origin(config, "parallel.stages"), word),
                      "give dp x tp of each: \"2x1,1x2\" is a stage of two replicas, then one cut over two workers");
    }
    stages.push_back(stage);
    // Checked after each stage, so that products stay small enough not to overflow.
    if (num_workers(stages) > kMostRanks || num_lanes(stages) > kMostRanks) {
      throw wrong_key("parallel.stages",
                      fmt::format("{}: {} workers whose replicas have {} as their least common multiple are too many",
                                  with_origin(config, "parallel.stages"), num_workers(stages), num_lanes(stages)),
                      fmt::format("at most {} of both", kMostRanks));
    }
  }
  return stages;
}

void check_stage_degrees(const Config& config) {
  const std::vector<StageDegrees> stages = stage_degrees(config);
  if (stages.empty()) return;
  const ParallelConfig& parallel = config.parallel;
  if (stages.size() == 1) {
    refuse(config, "parallel.stages", "is one stage, not a pipeline",
           fmt::format("set parallel.dp = {} and parallel.tp = {} instead", stages[0].dp, stages[0].tp));
  }
  if (static_cast<int64_t>(stages.size()) != parallel.pp) {
    contradict(config, "parallel.stages", fmt::format("are {} stages, but", stages.size()), "parallel.pp",
               fmt::format("set parallel.pp = {}", stages.size()));
  }
  if (parallel.dp != -1 && parallel.dp != num_lanes(stages)) {
    contradict(config, "parallel.stages", "says for each stage what all have by", "parallel.dp",
               fmt::format("leave parallel.dp at -1: it is {}", num_lanes(stages)));
  }
  check_rules(config, RuleScope::kEveryTraining, "parallel.stages");
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageDegrees& stage = stages[i];
    if (stage.tp > 1) {
      check_tensor_parallel(config.model, stage.tp, fmt::format("tp of stage {} (parallel.stages)", i));
    }
    if (parallel.sequence && config.model.seq % stage.tp != 0) {
      contradict(config, "parallel.stages", "with parallel.sequence cut the sequence into equal parts, not",
                 "model.seq", "choose a tp that divides model.seq");
    }
  }
}

}  // namespace trireme
