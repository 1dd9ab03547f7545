// Which parameter lies how: rules over names, for any torch::nn::Module.
//
// Two ways to write them. By placement, with the parameter's name as a regular expression:
//
//   {"(.*\\.)?up\\.(weight|bias)", {{"tp", Placement::shard(0)}}}
//
// or as Mesh-TensorFlow does: dimensions have names, and a layout says which axis cuts which:
//
//   names_of_dims("token.weight", "vocab hidden");   layout "vocab:tp; heads:tp"
//
// Pure data until distribute_module() applies it, which is not collective: parameters must be the same on all ranks.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/tensor/mesh_tensor.h"

namespace trireme {

struct LayoutRule {
  std::string name;  ///< a regular expression that the whole name of a parameter or buffer must match
  std::vector<std::pair<std::string, Placement>> placements;  ///< along named axes; the others replicate
};
using LayoutRules = std::vector<LayoutRule>;

/// "vocab:tp; hidden:tp" → which axis cuts a dimension of that name. Throws UsageError for what it cannot read, and for
/// an axis that the mesh does not have.
std::map<std::string, std::string> parse_dim_layout(std::string_view text, const Mesh& mesh);

/// Rules from named dimensions: for each pair of a name (regular expression) and the names of its dimensions, such as
/// {".*qkv.weight", "heads hidden"}. Two dimensions of one tensor on one axis are refused.
LayoutRules rules_by_dims(const std::vector<std::pair<std::string, std::string>>& dims_of_names,
                          std::string_view layout, const Mesh& mesh);

/// One placement an axis of `mesh`, by the first rule that matches; all replicate where none does. Throws UsageError
/// that names parameter and rule for an axis that is not there.
std::vector<Placement> placements_for(const std::string& name, const LayoutRules& rules, const Mesh& mesh);

/// Throws UsageError that names a rule which matches no parameter of the module; with `counts_buffers`, no buffer
/// either.
void require_matches(const torch::nn::Module& module, const LayoutRules& rules, bool counts_buffers = false);

/// Every parameter and buffer becomes a mesh tensor by its rule, in place: members that refer to it see it, too.
/// Gradients will lie as their parameters do, sums finished during the backward pass (tensor/finish_gradients.h).
/// Throws UsageError that names the parameter for a cut that does not fit, and for a rule that matches nothing.
void distribute_module(torch::nn::Module& module, const std::shared_ptr<DeviceMesh>& mesh, const LayoutRules& rules);

}  // namespace trireme
