// What of a model lies under which key of parameter servers, and what of that a worker pushes and pulls.
//
// A parameter is a key. With tensor parallelism each part of one is; of what all places of a stage hold alike there is
// one key, pushed and pulled by the first of them. A worker of a pipeline has the keys of its own layers, and pushes to
// that of a weight which it only uses, and another stage owns.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/server/keys.h"
#include "trireme/train/model_part.h"
#include "trireme/train/rank_groups.h"

namespace trireme {

/// A parameter of this worker, or one of which it has a use.
struct ServedParameter {
  std::string name;            ///< of the parameter
  size_t key = 0;              ///< its number; smaller ones are needed first
  int entry = -1;              ///< of the parameter store; -1: another stage owns it
  size_t shard = 0;            ///< the same
  int layer = 0;               ///< that computes with it first
  bool is_replicated = false;  ///< the other places have it, too
  bool by_rows = false;        ///< only rows of the step's tokens travel
  /// Where its gradients are.
  struct Use {
    size_t stage = 0, source = 0;  ///< of the stages of the part, of its gradient store
    int number = 0;                ///< of this use of the weight, in the whole model
  };
  std::vector<Use> uses;
};

struct ServedModel {
  std::vector<server::Key> keys;            ///< of the whole model: the same on all workers
  std::vector<ServedParameter> parameters;  ///< of this one, in the order of the layers
  int most_uses = 1;                        ///< of any weight
};

/// Collective over the workers of a model.
ServedModel serve_model(const Config& config, const ModelPart& part, const RankGroups& groups);

}  // namespace trireme
