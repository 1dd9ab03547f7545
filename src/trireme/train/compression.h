// Gradient compression as a config asks for it, and the names of its state in a checkpoint.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/compress/compressed_reducer.h"
#include "trireme/config/config.h"

namespace trireme {

/// Makes the compressor for an executor's buckets, on their device. Returns null if gradients are not compressed, or
/// are summed by servers, or momenta are exchanged instead. Collective over `replicas`, which may be null.
std::unique_ptr<CompressedReducer> make_compressor(const Config& config, Communicator* replicas,
                                                   std::vector<GroupLayout> groups, const torch::Device& device);

/// Name of a piece of state in a checkpoint: the replica and tp position that saved it, its kind, its range and its
/// array.
struct PieceName {
  int replica = 0, place = 0;
  StateKind kind = StateKind::kPerRank;
  size_t first = 0, total = 0;
  std::string name;

  std::string to_string() const;
  static bool is_one(const std::string& text) { return text.starts_with("compression/"); }
  /// Throws Error if `text` is not such a name.
  static PieceName parse(const std::string& text);
};

}  // namespace trireme
