// What a rank has not sent yet of one group: [Note: Residuals].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/compress/processor.h"
#include "trireme/compress/state.h"

namespace trireme {

/// A processor's memory under a name. Threads: one at a time.
class Residual {
 public:
  /// Holds nothing unless `kept`: then gradients are only what they are.
  Residual(size_t count, std::string prefix, bool kept, Processor& processor = host_processor())
      : processor_(processor), prefix_(std::move(prefix)), values_(processor, kept ? count : 0) {}

  bool kept() const { return !values_.empty(); }
  std::span<float> values() { return values_.span(); }
  /// What is to be sent: the gradient, or the residual with the gradient added to it. The sender takes out what it
  /// sends.
  std::span<float> with(std::span<float> gradient) {
    if (!kept()) return gradient;
    processor_.add_into(values_.span(), gradient);
    return values_.span();
  }

  /// The whole group's values, or elements `first` … of it.
  void save(const GroupLayout& layout, StatePieces& pieces, StateKind kind = StateKind::kPerRank,
            size_t first = 0) const {
    std::vector<float> values(values_.size());
    processor_.to_host(values_.span(), values);
    save_group(layout, prefix_, kind, values, first, pieces);
  }
  void load(const GroupLayout& layout, std::span<const StatePieces> by_rank, int rank, int size, size_t first = 0) {
    std::vector<float> values(values_.size());
    load_group(layout, prefix_, by_rank, rank, size, values, first);
    processor_.from_host(values, values_.span());
  }
  void rescale(float factor) { processor_.scale_by(values_.span(), factor); }

 private:
  Processor& processor_;
  std::string prefix_;
  Array<float> values_;
};

}  // namespace trireme
