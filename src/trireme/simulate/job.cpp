#include "trireme/simulate/job.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void demand(bool holds, const std::string& cause, const std::string& cure) {
  if (!holds) throw UsageError(cause, cure);
}

}  // namespace

void Job::check() const {
  const JobLayout& l = layout;
  for (const auto& [name, degree] : {std::pair{"dp", l.dp}, {"tp", l.tp}, {"pp", l.pp}, {"cp", l.cp}, {"ep", l.ep}}) {
    demand(degree >= 1, fmt::format("{} = {} is not a number of ranks", name, degree), "1 or more");
  }
  demand(l.micro_batch >= 1 && l.global_batch >= 1,
         fmt::format("a global batch of {} in micro-batches of {}", l.global_batch, l.micro_batch), "1 or more");
  demand(l.global_batch % (l.micro_batch * l.dp) == 0,
         fmt::format("a global batch of {} cannot be split over dp = {} in micro-batches of {}", l.global_batch, l.dp,
                     l.micro_batch),
         fmt::format("choose a multiple of {}", l.micro_batch * l.dp));
  demand(l.zero >= 0 && l.zero <= 3, fmt::format("there is no ZeRO stage {}", l.zero), "0 to 3");
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
    demand(model.heads % l.tp == 0, fmt::format("{} heads cannot be split over tp = {}", model.heads, l.tp),
           "choose a tp that divides the heads");
    demand(model.seq % l.cp == 0, fmt::format("{} tokens cannot be split over cp = {}", model.seq, l.cp),
           "choose a cp that divides model.seq");
    demand(!l.sequence || model.seq / l.cp % l.tp == 0,
           fmt::format("{} tokens cannot be split over tp = {}", model.seq / l.cp, l.tp),
           "sequence parallelism needs a tp that divides them");
  } else {
    demand(l.cp == 1 && !l.sequence, "an image model has no sequence to split", "leave cp and sequence off");
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

}  // namespace trireme
