// Which parameters of a model parameter servers store under which keys, and which keys a worker pushes and pulls.
//
// Each parameter is one key; with tensor parallelism, each part of one. A parameter that is replicated over the tp
// ranks of a stage is one key, pushed and pulled by the first of them. A worker of a pipeline has the keys of its own
// layers, and also pushes to the key of a tied weight that it uses but another stage owns.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/server/keys.h"
#include "trireme/train/model_part.h"
#include "trireme/train/rank_groups.h"

namespace trireme {

/// A parameter that this worker owns, or a tied weight that it uses.
struct ServedParameter {
  std::string name;            ///< name of the parameter
  size_t key = 0;              ///< number of the key; smaller ones are needed first
  int entry = -1;              ///< index in the parameter store; -1: another stage owns it
  size_t shard = 0;            ///< shard of that entry in the parameter store
  int layer = 0;               ///< the layer that computes with it first
  bool is_replicated = false;  ///< the other tp ranks also hold all of it
  bool by_rows = false;        ///< only the rows of the step's tokens are sent
  /// Where the gradients of one use are.
  struct Use {
    size_t stage = 0, source = 0;  ///< index of the stage in the part, and of the source in its gradient store
    int number = 0;                ///< number of this use of the weight, in the whole model
  };
  std::vector<Use> uses;
};

struct ServedModel {
  std::vector<server::Key> keys;            ///< keys of the whole model, the same on all workers
  std::vector<ServedParameter> parameters;  ///< parameters of this worker, sorted by key
  int most_uses = 1;                        ///< largest number of uses of any weight
};

/// Assigns the keys. Collective over the workers of a model.
ServedModel serve_model(const Config& config, const ModelPart& part, const RankGroups& groups);

}  // namespace trireme
