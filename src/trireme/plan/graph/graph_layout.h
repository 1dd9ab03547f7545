// How the devices are divided for a module that no configuration describes: a value with a text of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/graph/strategy.h"

namespace trireme {

/// All devices as one mesh, or a pipeline of stages that are a mesh each.
struct GraphLayout {
  std::vector<StageMesh> meshes = {{{1}}};  ///< of each stage, in the order of devices
  int replicas = 1;                         ///< of a pipeline whose stages are one device each
  int micro_batches = 1;

  int num_stages() const { return static_cast<int>(meshes.size()); }
  int64_t num_devices() const;
  bool is_pipeline() const { return meshes.size() > 1; }
  /// Every stage is one device.
  bool has_plain_stages() const;
  /// "mesh 2x2"; stages x replicas x micro-batches: "pipeline 2x1x4"; meshes of stages, and micro-batches:
  /// "stages 2x2+1 in 4".
  std::string to_string() const;
  bool operator==(const GraphLayout&) const = default;
};

/// "2x2"
std::string to_string(const StageMesh& mesh);

/// Reads to_string(). Throws UsageError for what it cannot read, or what is not for so many devices.
GraphLayout graph_layout_from(std::string_view text, int num_devices);

}  // namespace trireme
