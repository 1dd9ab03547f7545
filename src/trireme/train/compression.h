// Compression of gradients as a config asks for it, and what it remembers as tensors of a checkpoint.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/compress/compressed_reducer.h"
#include "trireme/compress/pairs.h"
#include "trireme/config/config.h"

namespace trireme {

CompressionOptions compression_options(const Config& config);

/// What of a config compression has to go with.
Combination combination_of(const Config& config);

/// For an executor's groups, on their device. Null where servers sum, where gradients
/// travel whole, or nowhere (MomentumExchange). Collective over the replicas, which may be null. Throws UsageError for
/// what cannot go together.
std::unique_ptr<CompressedReducer> make_compressor(const Config& config, Communicator* replicas,
                                                   std::vector<GroupLayout> groups, const torch::Device& device);

/// A checkpoint's name of a piece, and back: which replica and place saved it, and what it is of what.
struct PieceName {
  int replica = 0, place = 0;
  StateKind kind = StateKind::kPerRank;
  size_t first = 0, total = 0;
  std::string name;

  std::string to_string() const;
  static bool is_one(const std::string& text) { return text.starts_with("compression/"); }
  /// Throws Error for a text that is none.
  static PieceName parse(const std::string& text);
};

}  // namespace trireme
