// What a rank has not sent yet of one group: [Note: Residuals].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/compress/arithmetic.h"
#include "trireme/compress/state.h"

namespace trireme {

/// Plain memory under a name. Threads: one at a time.
class Residual {
 public:
  /// Holds nothing unless `kept`: then gradients are only what they are.
  Residual(size_t count, std::string prefix, bool kept) : prefix_(std::move(prefix)), values_(kept ? count : 0) {}

  bool kept() const { return !values_.empty(); }
  std::span<float> values() { return values_; }
  /// What is to be sent: the gradient, or the residual with the gradient added to it. The sender takes out what it
  /// sends.
  std::span<float> with(std::span<float> gradient) {
    if (!kept()) return gradient;
    add_into(values_, gradient);
    return values_;
  }

  void save(const GroupLayout& layout, StatePieces& pieces) const {
    save_group(layout, prefix_, StateKind::kPerRank, values_, 0, pieces);
  }
  void load(const GroupLayout& layout, std::span<const StatePieces> by_rank, int rank, int size) {
    load_group(layout, prefix_, by_rank, rank, size, values_, 0);
  }
  void rescale(float factor) { scale_by(values_, factor); }

 private:
  std::string prefix_;
  std::vector<float> values_;
};

}  // namespace trireme
