// Division of the devices for a captured module, as a value with a text form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/graph/strategy.h"

namespace trireme {

/// All devices as one mesh, or a pipeline of stages with one mesh each.
struct GraphLayout {
  std::vector<StageMesh> meshes = {{{1}}};  ///< mesh of each stage, in the order of devices
  int replicas = 1;                         ///< replicas of a pipeline whose stages are one device each
  int micro_batches = 1;

  int num_stages() const { return static_cast<int>(meshes.size()); }
  int64_t num_devices() const;
  bool is_pipeline() const { return meshes.size() > 1; }
  /// Whether every stage is one device.
  bool has_plain_stages() const;
  /// "mesh 2x2"; "pipeline 2x1x4": stages x replicas x micro-batches; "stages 2x2+1 in 4": meshes of stages, and
  /// micro-batches.
  std::string to_string() const;
  bool operator==(const GraphLayout&) const = default;
};

/// The text of a mesh: "2x2".
std::string to_string(const StageMesh& mesh);

/// Parses to_string(). Throws UsageError for malformed text, or a layout for another number of devices.
GraphLayout graph_layout_from(std::string_view text, int num_devices);

}  // namespace trireme
