#include "trireme/shape/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/program/reduction_tree.h"

namespace trireme {
namespace {

void demand(bool holds, const std::string& cause, const std::string& cure) {
  if (!holds) throw UsageError(cause, cure);
}

int64_t sum_of(const std::vector<int64_t>& batch_parts) {
  return std::accumulate(batch_parts.begin(), batch_parts.end(), int64_t{0});
}

void check_degrees(const Layout& l) {
  for (const auto& [name, degree] : {std::pair{"dp", l.dp}, {"tp", l.tp}, {"pp", l.pp}, {"cp", l.cp}, {"ep", l.ep}}) {
    demand(degree >= 1, fmt::format("{} = {} is not a number of ranks", name, degree), "1 or more");
  }
  demand(l.num_replicas() % l.ep == 0, fmt::format("ep = {} ranks are taken from dp·cp = {}", l.ep, l.num_replicas()),
         "ep must divide dp·cp");
}

void check_stages(const Layout& l) {
  if (l.has_uneven_stages()) {
    demand(stages_per_rank(l.schedule, l.interleave) == 1, "stages of different shapes with several stages per rank",
           "take 1f1b, or equal shapes");
  }
  int next = 0;
  for (size_t i = 0; i < l.split.size(); ++i) {
    const LayerRange& layers = l.split[i];
    demand(layers.first == next && layers.last > next,
           fmt::format("stage {} has blocks {} to {}", i, layers.first, layers.last - 1),
           fmt::format("its first must be {}", next));
    next = layers.last;
  }
  demand(l.split.empty() || l.stages.empty() || l.split.size() == l.stages.size(),
         fmt::format("parallel.split = \"{}\" has {} stages, and parallel.stages = \"{}\" has {}",
                     partition_to_text(l.split), l.split.size(), stages_to_text(l.stages), l.stages.size()),
         "name the layers of each stage");
  for (size_t i = 0; i < l.stages.size(); ++i) {
    const int64_t dp = l.stages[i].dp;
    demand(dp >= 1 && l.dp % dp == 0, fmt::format("{} lanes cannot be split over dp = {} of stage {}", l.dp, dp, i),
           "choose a dp that divides them");
  }
}

void check_batch(const Layout& l) {
  demand(l.micro_batch >= 1 && l.global_batch >= 1,
         fmt::format("a global batch of {} in micro-batches of {}", l.global_batch, l.micro_batch), "1 or more");
  if (l.batch_parts.empty()) {
    demand(l.global_batch % (l.micro_batch * l.dp) == 0,
           fmt::format("a global batch of {} cannot be split over {} in micro-batches of {}", l.global_batch,
                       l.has_uneven_stages() ? fmt::format("the {} lanes of stages {}", l.dp, l.shapes_text())
                                             : fmt::format("dp = {}", l.dp),
                       l.micro_batch),
           fmt::format("set train.global_batch to a multiple of {}", l.micro_batch * l.dp));
    return;
  }
  const int64_t sum = sum_of(l.batch_parts);
  demand(static_cast<int64_t>(l.batch_parts.size()) == l.dp && std::ranges::min(l.batch_parts) >= 1 &&
             l.global_batch % (sum * l.micro_batch) == 0,
         fmt::format("{} of {} for dp = {} and a global batch of {} in micro-batches of {}",
                     counted(std::ssize(l.batch_parts), "share"), counted(sum, "part"), l.dp, l.global_batch,
                     l.micro_batch),
         "give each replica a share, and share out the whole batch");
  demand(l.pp == 1, fmt::format("shares of the batch with pp = {}", l.pp),
         "give faster ranks of a pipeline more layers: parallel.split");
}

void check_sharding(const Layout& l) {
  demand(l.zero >= 0 && l.zero <= 3, fmt::format("there is no ZeRO stage {}", l.zero), "0 to 3");
  if (l.zero_shards > 0) {
    demand(l.zero > 0 && l.ep == 1 && l.num_replicas() % l.zero_shards == 0,
           fmt::format("{} replicas that share, of {} with ZeRO-{} and ep = {}", l.zero_shards, l.num_replicas(),
                       l.zero, l.ep),
           "parallel.zero_shards must divide dp·cp, and goes with parallel.zero = 1 to 3 and without experts");
  }
  demand(!l.offload_weights || l.zero == 3, fmt::format("weights that are kept elsewhere with ZeRO-{}", l.zero),
         "parallel.offload_weights goes with parallel.zero = 3");
  demand(l.servers >= 0 && (l.servers == 0 || l.zero == 0),
         fmt::format("ZeRO stage {} with {} parameter servers, which hold that state already", l.zero, l.servers),
         "leave parallel.zero at 0");
  demand((l.servers > 0) == UpdateShape{.exchange = l.exchange}.has_servers(),
         fmt::format("{} parameter servers, which is not how gradients are exchanged", l.servers),
         "servers go with an exchange by servers, and the other way round");
  demand(l.meet_every >= 1, fmt::format("replicas that meet every {} steps", l.meet_every), "1 or more");
  demand(is_synchronous(l.schedule) || l.zero < 2,
         fmt::format("{} updates weights while micro-batches are under way, which ZeRO-{} does not allow",
                     name_of(l.schedule), l.zero),
         "use a schedule with one update, or zero 0 or 1");
}

/// "2 x 3 and 2 x 1" for 3, 3, 1, 1.
std::string short_batch_parts(const std::vector<int64_t>& batch_parts) {
  std::vector<std::string> parts;
  for (auto first = batch_parts.begin(); first != batch_parts.end();) {
    const auto end = std::find_if(first, batch_parts.end(), [&](int64_t part) { return part != *first; });
    parts.push_back(fmt::format("{} x {}", end - first, *first));
    first = end;
  }
  return join(parts, " and ");
}

}  // namespace

bool Recompute::covers(int64_t layer) const {
  return kind == RecomputeKind::kFull || std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
           return range.first <= layer && layer <= range.second;
         });
}

int64_t Recompute::last() const {
  int64_t last = -1;
  for (const auto& range : ranges) last = std::max(last, range.second);
  return last;
}

std::string Recompute::to_string() const {
  if (kind == RecomputeKind::kFull) return "full";
  if (kind == RecomputeKind::kSelective) return "selective";
  std::vector<std::string> words;
  for (const auto& [first, last] : ranges) {
    words.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return words.empty() ? "none" : join(words, ",");
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

bool Layout::has_uneven_stages() const {
  return std::any_of(stages.begin(), stages.end(),
                     [&](const StageDegrees& stage) { return stage.dp != dp || stage.tp != tp; });
}

std::string Layout::shapes_text() const { return has_uneven_stages() ? stages_to_text(stages) : ""; }

Layout Layout::of_stage(size_t stage) const {
  Layout own = *this;
  if (stage >= stages.size()) return own;
  own.stages.clear();
  own.split.clear();
  own.dp = stages[stage].dp;
  own.tp = stages[stage].tp;
  own.lanes = dp / own.dp;
  return own;
}

int64_t Layout::num_devices() const { return has_uneven_stages() ? num_workers(stages) * cp : dp * tp * pp * cp; }

int64_t Layout::first_worker(int stage) const {
  if (stages.empty()) return stage * tp;
  return num_workers({stages.begin(), stages.begin() + stage});
}

int64_t Layout::pipeline_rank_of(int64_t worker) const {
  if (stages.empty()) return worker / tp % pp;
  int stage = static_cast<int>(pp) - 1;
  while (first_worker(stage) > worker) --stage;
  return stage;
}

int64_t Layout::accumulation() const {
  return batch_parts.empty() ? micro_batches() / dp
                             : std::ranges::max(batch_parts) * micro_batches() / sum_of(batch_parts);
}

int64_t Layout::num_leaves() const { return leaves > 0 ? leaves : derived_leaves(micro_batches()); }

std::vector<int64_t> Layout::leaves_of_replicas() const {
  std::vector<int64_t> own = batch_parts;
  for (int64_t& part : own) part *= num_leaves() / sum_of(batch_parts);
  return own;
}

void Layout::check() const {
  check_degrees(*this);
  check_stages(*this);
  check_batch(*this);
  check_sharding(*this);
  if (!own_schedule) return;
  demand(
      own_schedule->num_ranks == pp && own_schedule->num_micro_batches == accumulation(),
      fmt::format("a schedule for {} and {}, but there are pp = {} and {}", counted(own_schedule->num_ranks, "rank"),
                  counted(own_schedule->num_micro_batches, "micro-batch"), pp, counted(accumulation(), "micro-batch")),
      "choose pp and the batch as the schedule has them");
}

std::string Layout::to_string() const {
  std::string text;
  if (has_uneven_stages()) {
    text = fmt::format("stages {} ({})", shapes_text(), schedule_name());
  } else {
    text = fmt::format("dp {}, tp {}{}, pp {}", dp, tp, sequence ? " with sequences" : "", pp);
    if (cp > 1) text += fmt::format(", cp {}", cp);
    if (pp > 1) {
      text += interleave > 1 ? fmt::format(" ({}, {} stages per rank)", schedule_name(), interleave)
                             : fmt::format(" ({})", schedule_name());
    }
  }
  if (!batch_parts.empty()) text += fmt::format(", shares {}", short_batch_parts(batch_parts));
  if (zero > 0) text += fmt::format(", ZeRO-{}", zero);
  text += fmt::format(", micro-batches of {}", micro_batch);
  if (!recompute.ranges.empty()) {
    text += fmt::format(", blocks {} recomputed", recompute.to_string());
  } else if (recompute != RecomputeKind::kNone) {
    text += fmt::format(", {} recomputation", recompute.to_string());
  }
  if (compression != Method::kNone) text += fmt::format(", {}", name_of(compression));
  return text;
}

namespace {

UpdateShape update_shape(const Layout& layout) {
  UpdateShape update{.exchange = layout.exchange, .norm = !layout.is_asynchronous()};
  if (!update.has_servers() && layout.dp == 1) update.exchange = GradientExchange::kSum;
  update.pushes_one_sum = update.exchange == GradientExchange::kServers && layout.compression != Method::kNone;
  return update;
}

}  // namespace

Schedule schedule_of(const Layout& layout, const StageTimes& times) {
  if (layout.own_schedule) return *layout.own_schedule;
  const int micro_batches = static_cast<int>(layout.accumulation());
  if (!layout.is_pipeline()) return {.num_micro_batches = micro_batches, .rank_of_stage = {0}};
  return make_schedule({.kind = with_interleave(layout.schedule, layout.interleave),
                        .num_ranks = static_cast<int>(layout.pp),
                        .num_micro_batches = micro_batches,
                        .interleave = layout.interleave > 1 ? static_cast<int>(layout.interleave) : 0,
                        .update_every = static_cast<int>(layout.update_every),
                        .times = times});
}

StepShape step_shape(const Layout& layout, Schedule schedule) {
  const std::vector<int64_t> leaves = layout.leaves_of_replicas();
  StepShape shape{.num_micro_batches = static_cast<int>(layout.micro_batches()),
                  .batch_parts = std::vector<int>(leaves.begin(), leaves.end())};
  shape.pipeline.num_replicas = static_cast<int>(layout.dp);
  shape.pipeline.num_leaves = layout.is_asynchronous() ? 0 : static_cast<int>(layout.num_leaves());
  if (layout.zero > 0 && (layout.dp > 1 || layout.offload_weights)) {
    shape.zero = {
        .zero = layout.zero, .keep = layout.zero_keep, .each_micro_batch = layout.zero > 1 && !layout.zero_sums_whole};
  }
  shape.update = update_shape(layout);
  if (!layout.is_pipeline()) return shape;
  shape.pipeline.schedule = std::move(schedule);
  shape.pipeline.recompute = {layout.recompute == RecomputeKind::kFull};
  for (const StageDegrees& stage : layout.stages) shape.pipeline.replicas.push_back(static_cast<int>(stage.dp));
  return shape;
}

}  // namespace trireme
