#include "trireme/simulate/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

constexpr int64_t kMostTurns = 1'000'000;  ///< upper bound on stages times micro-batches

void demand(bool holds, const std::string& cause, const std::string& cure) {
  if (!holds) throw UsageError(cause, cure);
}

}  // namespace

Software trireme_on(const Cluster& cluster) {
  return cluster.stack.sums_in_tree ? Software::kMeasured : Software::kTrireme;
}

Job Job::of_stage(size_t stage) const {
  Job own = *this;
  own.layout = layout.of_stage(stage);
  return own;
}

void Job::check() const {
  const Layout& l = layout;
  l.check();
  demand(l.accumulation() <= kMostTurns / (l.pp * l.interleave),
         fmt::format("{} of a replica in {} are too many to play one by one", counted(l.accumulation(), "micro-batch"),
                     counted(l.pp * l.interleave, "stage")),
         "choose larger micro-batches (train.micro_batch), or a smaller batch");
  demand(l.ep == 1 || model.experts > 1, fmt::format("ep = {}, but the model has no experts", l.ep),
         "give --experts, or leave parallel.ep at 1");
  demand(model.experts % l.ep == 0, fmt::format("{} experts cannot be split over ep = {}", model.experts, l.ep),
         "ep must divide them");
  demand(model.active_experts <= model.experts,
         fmt::format("{} of {} experts for each token", model.active_experts, model.experts), "use fewer");
  if (!model.is_language()) {
    demand(l.cp == 1 && !l.sequence, "an image model has no sequence to split", "leave cp and sequence off");
    return;
  }
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
}

Behaviour behaviour_of(const Job& job, const Cluster& cluster) {
  const Stack& stack = cluster.stack;
  const bool is_trireme = job.software == Software::kTrireme;
  const bool is_modern = job.layout.compute == NumberType::kBfloat16 || job.model.kind == ModelKind::kLlama;
  Behaviour b;
  b.flash_attention = job.flash.value_or(stack.flash_attention && (is_modern || !stack.fused_half_only));
  b.eager_sharding = stack.eager_traffic > 1 && job.layout.zero == 3 && job.software == Software::kPublished;
  b.has_own_runtime = stack.sums_in_tree;
  // A stack with fused attention is of a later generation, which also fuses the update and overlaps communication.
  b.fuses_update = stack.fused_update || b.flash_attention || is_trireme;
  b.updates_all_in_one = is_trireme && !stack.sums_in_tree;  // measured constants already include it
  b.overlaps_gradients = job.overlap.value_or(stack.overlaps_gradients || b.flash_attention);
  b.overlaps_messages = stack.overlaps_messages || b.flash_attention;
  return b;
}

}  // namespace trireme
