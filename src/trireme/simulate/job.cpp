#include "trireme/simulate/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

constexpr int64_t kMostTurns = 1'000'000;  ///< of all stages with all micro-batches

void demand(bool holds, const std::string& cause, const std::string& cure) {
  if (!holds) throw UsageError(cause, cure);
}

void check_stages(const JobLayout& l) {
  if (l.has_uneven_stages()) {
    demand(l.interleave == 1 && l.schedule != ScheduleKind::kInterleaved && l.schedule != ScheduleKind::kZbV,
           "stages of different shapes with several stages a rank", "take 1f1b, or equal shapes");
  }
  int next = 0;
  for (size_t i = 0; i < l.stages.size(); ++i) {
    const StageShape& stage = l.stages[i];
    demand(l.stages.back().blocks.last == 0 || (stage.blocks.first == next && stage.blocks.last > next),
           fmt::format("stage {} has blocks {} to {}", i, stage.blocks.first, stage.blocks.last - 1),
           fmt::format("its first must be {}", next));
    next = stage.blocks.last;
    const int64_t dp = stage.dp == 0 ? l.dp : stage.dp;
    demand(dp >= 1 && l.dp % dp == 0, fmt::format("{} lanes cannot be split over dp = {} of stage {}", l.dp, dp, i),
           "choose a dp that divides them");
  }
}

}  // namespace

bool JobLayout::has_uneven_stages() const {
  return std::any_of(stages.begin(), stages.end(), [&](const StageShape& stage) {
    return (stage.dp != 0 && stage.dp != dp) || (stage.tp != 0 && stage.tp != tp);
  });
}

std::string JobLayout::shapes_text() const {
  std::vector<std::string> shapes;
  for (size_t i = 0; has_uneven_stages() && i < stages.size(); ++i) {
    const JobLayout own = of_stage(i);
    shapes.push_back(fmt::format("{}x{}", own.dp, own.tp));
  }
  return join(shapes, ",");
}

JobLayout JobLayout::of_stage(size_t stage) const {
  JobLayout own = *this;
  if (stage >= stages.size()) return own;
  own.stages.clear();
  if (stages[stage].tp != 0) own.tp = stages[stage].tp;
  if (stages[stage].dp != 0) own.dp = stages[stage].dp;
  own.lanes = dp / own.dp;
  return own;
}

int64_t JobLayout::num_devices() const {
  if (!has_uneven_stages()) return dp * tp * pp * cp;
  int64_t sum = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const JobLayout own = of_stage(stage);
    sum += own.dp * own.tp * own.cp;
  }
  return sum;
}

void Job::check() const {
  const JobLayout& l = layout;
  check_stages(l);
  for (const auto& [name, degree] : {std::pair{"dp", l.dp}, {"tp", l.tp}, {"pp", l.pp}, {"cp", l.cp}, {"ep", l.ep}}) {
    demand(degree >= 1, fmt::format("{} = {} is not a number of ranks", name, degree), "1 or more");
  }
  demand(l.micro_batch >= 1 && l.global_batch >= 1,
         fmt::format("a global batch of {} in micro-batches of {}", l.global_batch, l.micro_batch), "1 or more");
  if (!l.shares.empty()) {
    const int64_t sum = std::accumulate(l.shares.begin(), l.shares.end(), int64_t{0});
    demand(static_cast<int64_t>(l.shares.size()) == l.dp && std::ranges::min(l.shares) >= 1 &&
               sum * l.micro_batch == l.global_batch,
           fmt::format("{} of {} for dp = {} and a global batch of {} in micro-batches of {}",
                       counted(std::ssize(l.shares), "share"), counted(sum, "micro-batch"), l.dp, l.global_batch,
                       l.micro_batch),
           "give each replica a share, and share out the whole batch");
    demand(l.pp == 1, fmt::format("shares of the batch with pp = {}", l.pp),
           "give faster ranks of a pipeline more layers: parallel.split");
  }
  demand(!l.shares.empty() || l.global_batch % (l.micro_batch * l.dp) == 0,
         fmt::format("a global batch of {} cannot be split over {} in micro-batches of {}", l.global_batch,
                     l.has_uneven_stages() ? fmt::format("the {} lanes of stages {}", l.dp, l.shapes_text())
                                           : fmt::format("dp = {}", l.dp),
                     l.micro_batch),
         fmt::format("set train.global_batch to a multiple of {}", l.micro_batch * l.dp));
  demand(l.zero >= 0 && l.zero <= 3, fmt::format("there is no ZeRO stage {}", l.zero), "0 to 3");
  if (l.zero_shards > 0) {
    demand(l.zero > 0 && l.ep == 1 && l.num_replicas() % l.zero_shards == 0,
           fmt::format("{} replicas that share, of {} with ZeRO-{} and ep = {}", l.zero_shards, l.num_replicas(),
                       l.zero, l.ep),
           "parallel.zero_shards must divide dp·cp, and goes with parallel.zero = 1 to 3 and without experts");
  }
  demand(!l.offload_weights || l.zero == 3, fmt::format("weights that lie elsewhere with ZeRO-{}", l.zero),
         "parallel.offload_weights goes with parallel.zero = 3");
  demand(l.num_micro_batches() <= kMostTurns / (l.pp * l.interleave),
         fmt::format("{} of a replica in {} are too many to play one by one",
                     counted(l.num_micro_batches(), "micro-batch"), counted(l.pp * l.interleave, "stage")),
         "choose larger micro-batches (train.micro_batch), or a smaller batch");
  demand(l.servers >= 0 && (l.servers == 0 || l.zero == 0),
         fmt::format("ZeRO stage {} with {} parameter servers, which hold that state already", l.zero, l.servers),
         "leave parallel.zero at 0");
  demand(l.ep == 1 || model.experts > 1, fmt::format("ep = {}, but the model has no experts", l.ep),
         "give --experts, or leave parallel.ep at 1");
  demand(model.experts % l.ep == 0, fmt::format("{} experts cannot be split over ep = {}", model.experts, l.ep),
         "ep must divide them");
  demand(l.num_replicas() % l.ep == 0, fmt::format("ep = {} ranks are taken from dp·cp = {}", l.ep, l.num_replicas()),
         "ep must divide dp·cp");
  demand(model.active_experts <= model.experts,
         fmt::format("{} of {} experts for each token", model.active_experts, model.experts), "use fewer");
  if (model.is_language()) {
    demand(model.hidden % model.heads == 0,
           fmt::format("a width of {} cannot be split over {} heads", model.hidden, model.heads),
           "choose heads that divide it");
    for (size_t stage = 0; stage < std::max<size_t>(1, l.stages.size()); ++stage) {
      const int64_t tp = l.of_stage(stage).tp;
      demand(model.heads % tp == 0, fmt::format("{} heads cannot be split over tp = {}", model.heads, tp),
             "choose a tp that divides the heads");
    }
    demand(model.seq % l.cp == 0, fmt::format("{} tokens cannot be split over cp = {}", model.seq, l.cp),
           "choose a cp that divides model.seq");
    demand(!l.sequence || model.seq / l.cp % l.tp == 0,
           fmt::format("{} tokens cannot be split over tp = {}", model.seq / l.cp, l.tp),
           "sequence parallelism needs a tp that divides them");
  } else {
    demand(l.cp == 1 && !l.sequence, "an image model has no sequence to split", "leave cp and sequence off");
  }
  if (l.own_schedule) {
    demand(l.own_schedule->num_ranks == l.pp && l.own_schedule->num_micro_batches == l.num_micro_batches(),
           fmt::format("a schedule for {} and {}, but there are pp = {} and {}",
                       counted(l.own_schedule->num_ranks, "rank"),
                       counted(l.own_schedule->num_micro_batches, "micro-batch"), l.pp,
                       counted(l.num_micro_batches(), "micro-batch")),
           "choose pp and the batch as the schedule has them");
  }
  demand(is_synchronous(l.schedule) || l.zero < 2,
         fmt::format("{} updates weights while micro-batches are under way, which ZeRO-{} does not allow",
                     name_of(l.schedule), l.zero),
         "use a schedule with one update, or zero 0 or 1");
}

bool uses_flash(const Job& job, const Cluster& cluster) {
  if (job.layout.flash) return *job.layout.flash;
  if (!cluster.stack.flash_attention) return false;
  const bool modern = job.layout.compute == NumberType::kBfloat16 || job.model.kind == ShapeKind::kLlama;
  return modern || !cluster.stack.fused_half_only;
}

bool uses_eager_sharding(const Job& job, const Cluster& cluster) {
  return cluster.stack.eager_traffic > 1 && job.layout.zero == 3 && !job.layout.as_trained;
}

}  // namespace trireme
