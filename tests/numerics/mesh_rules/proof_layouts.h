// Layouts of the inputs of a call that its proof tries.
#pragma once

#include <string>
#include <vector>

#include "numerics/mesh_rules/proof_call.h"
#include "trireme/layout/placement.h"

namespace trireme {

using Layout = std::vector<Placement>;  ///< one placement an axis

/// `most` cases, each with a layout for every tensor of the call: each placement of each tensor alone, then mixed ones.
/// Always the same for the same call.
std::vector<std::vector<Layout>> proof_layouts(const ProofCall& call, size_t num_axes, size_t most);
/// "(shard(0); partial(sum))".
std::string describe_layouts(const std::vector<Layout>& layouts);

}  // namespace trireme
