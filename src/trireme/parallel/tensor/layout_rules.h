// Rules that map names of parameters to placements, for any torch::nn::Module.
//
// There are two ways to write them. By placement, with the parameter's name as a regular expression:
//
//   {"(.*\\.)?up\\.(weight|bias)", {{"tp", Placement::shard(0)}}}
//
// Or as in Mesh-TensorFlow: dims have names, and a layout says which axis shards which dim:
//
//   rules_by_dims({{"token.weight", "vocab hidden"}}, "vocab:tp; heads:tp", mesh)
//
// Rules are plain data until distribute_module() applies them. That is not collective: parameters must already be equal
// on all ranks.
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
  std::string name;  ///< regular expression that the whole name of a parameter or buffer must match
  std::vector<std::pair<std::string, Placement>> placements;  ///< placements along named axes; other axes replicate
};
using LayoutRules = std::vector<LayoutRule>;

/// Parses "vocab:tp; hidden:tp" into the axis that shards each named dim. Throws UsageError for text that it cannot
/// parse, and for an axis that the mesh does not have.
std::map<std::string, std::string> parse_dim_layout(std::string_view text, const Mesh& mesh);

/// Makes rules from named dims: each pair has a regular expression for the parameter's name, and the names of its dims,
/// such as {".*qkv.weight", "heads hidden"}. Throws UsageError for two dims of one tensor on one axis.
LayoutRules rules_by_dims(const std::vector<std::pair<std::string, std::string>>& dims_of_names,
                          std::string_view layout, const Mesh& mesh);

/// One placement per axis of `mesh`, by the first rule that matches; all replicate if none does. Throws UsageError,
/// naming parameter and rule, for an axis that the mesh does not have.
std::vector<Placement> placements_for(const std::string& name, const LayoutRules& rules, const Mesh& mesh);

/// Throws UsageError, naming the rule, if a rule matches no parameter of the module; with `counts_buffers`, if it
/// matches no buffer either.
void require_matches(const torch::nn::Module& module, const LayoutRules& rules, bool counts_buffers = false);

/// Turns every parameter and buffer into a mesh tensor by its rule, in place: members that refer to it see it, too.
/// Gradients will have the placements of their parameters, with sums finished during the backward pass
/// (tensor/finish_gradients.h). Throws UsageError for a placement that does not fit, naming the parameter, and for a
/// rule that matches nothing.
void distribute_module(torch::nn::Module& module, const std::shared_ptr<DeviceMesh>& mesh, const LayoutRules& rules);

}  // namespace trireme
