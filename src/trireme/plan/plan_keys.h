// The one list of the trainer's keys that a plan decides: for its file, and for a config.
#pragma once

#include "trireme/plan/plan.h"

namespace trireme {

/// `visit(name, value)` for each.
template <typename Keys, typename Visit>
void visit_keys(Keys& k, Visit visit) {
  visit("parallel.dp", k.dp);
  visit("parallel.tp", k.tp);
  visit("parallel.pp", k.pp);
  visit("parallel.cp", k.cp);
  visit("parallel.ep", k.ep);
  visit("parallel.zero", k.zero);
  visit("parallel.sequence", k.sequence);
  visit("parallel.schedule", k.schedule);
  visit("parallel.interleave", k.interleave);
  visit("parallel.split", k.split);
  visit("parallel.stages", k.stages);
  visit("parallel.shares", k.shares);
  visit("train.global_batch", k.global_batch);
  visit("train.micro_batch", k.micro_batch);
  visit("train.leaves", k.leaves);
  visit("train.recompute", k.recompute);
  visit("precision.compute", k.compute);
  visit("compression.method", k.compression);
}

}  // namespace trireme
