#include "trireme/parallel/tensor/layout_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/tensor/finish_gradients.h"

namespace trireme {
namespace {

bool matches(const std::string& name, const LayoutRule& rule) { return std::regex_match(name, std::regex(rule.name)); }

const LayoutRule* rule_for(const std::string& name, const LayoutRules& rules) {
  for (const LayoutRule& rule : rules) {
    if (matches(name, rule)) return &rule;
  }
  return nullptr;
}

}  // namespace

std::map<std::string, std::string> parse_dim_layout(std::string_view text, const Mesh& mesh) {
  std::map<std::string, std::string> axis_of;
  for (const std::string_view part : split(text, ';')) {
    if (part.empty()) continue;
    const auto words = split(part, ':');
    if (words.size() != 2 || words[0].empty() || words[1].empty()) {
      throw UsageError(fmt::format("\"{}\" in the layout \"{}\" is not DIMENSION:AXIS", part, text),
                       "write for example \"batch:dp; hidden:tp\"");
    }
    const std::string dim(words[0]), axis(words[1]);
    (void)mesh.axis_index(axis);  // throws, naming the axes of the mesh
    if (!axis_of.emplace(dim, axis).second) {
      throw UsageError(fmt::format("the layout \"{}\" names the dimension {} twice", text, dim));
    }
  }
  return axis_of;
}

LayoutRules rules_by_dims(const std::vector<std::pair<std::string, std::string>>& dims_of_names,
                          std::string_view layout, const Mesh& mesh) {
  const auto axis_of = parse_dim_layout(layout, mesh);
  LayoutRules rules;
  for (const auto& [name, dims] : dims_of_names) {
    LayoutRule rule{name, {}};
    std::stringstream words(dims);
    int dim = 0;
    for (std::string word; words >> word; ++dim) {
      const auto at = axis_of.find(word);
      if (at == axis_of.end()) continue;
      for (const auto& [axis, placement] : rule.placements) {
        if (axis == at->second) {
          throw UsageError(fmt::format("{} has two dimensions on the axis {}: {}", name, axis, dims),
                           "an axis can cut one dimension of a tensor");
        }
      }
      rule.placements.emplace_back(at->second, Placement::shard(dim));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<Placement> placements_for(const std::string& name, const LayoutRules& rules, const Mesh& mesh) {
  std::vector<Placement> placements(static_cast<size_t>(mesh.num_axes()));
  const LayoutRule* rule = rule_for(name, rules);
  if (!rule) return placements;
  for (const auto& [axis, placement] : rule->placements) {
    if (!mesh.has(axis)) {
      throw UsageError(fmt::format("the rule \"{}\" for {} names the axis {}, which {} does not have", rule->name, name,
                                   axis, mesh.to_string()));
    }
    placements[static_cast<size_t>(mesh.axis_index(axis))] = placement;
  }
  return placements;
}

void require_matches(const torch::nn::Module& module, const LayoutRules& rules, bool counts_buffers) {
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  for (const LayoutRule& rule : rules) {
    const auto is_meant = [&](const auto& item) { return matches(item.key(), rule); };
    if (std::any_of(parameters.begin(), parameters.end(), is_meant)) continue;
    const bool is_of_buffer = std::any_of(buffers.begin(), buffers.end(), is_meant);
    if (is_of_buffer && counts_buffers) continue;
    throw UsageError(fmt::format("the rule \"{}\" matches no parameter of the module", rule.name),
                     is_of_buffer ? "buffers are not cut here"
                                  : "names are those of named_parameters(), and the whole name must match");
  }
}

void distribute_module(torch::nn::Module& module, const std::shared_ptr<DeviceMesh>& mesh, const LayoutRules& rules) {
  require_matches(module, rules, /*counts_buffers=*/true);
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  const torch::NoGradGuard no_grad;
  const auto place = [&](const std::string& name, torch::Tensor tensor) {
    try {
      tensor.set_data(distribute(tensor, mesh, placements_for(name, rules, mesh->mesh())));
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", name, error.what()));
    }
  };
  for (const auto& item : parameters) {
    place(item.key(), item.value());
    if (item.value().requires_grad() && !finishes_gradient(item.value())) finish_gradient(item.value());
  }
  for (const auto& item : buffers) place(item.key(), item.value());
}

}  // namespace trireme
