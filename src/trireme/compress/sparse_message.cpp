// Messages of chosen elements: the largest, and Deep Gradient Compression.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class LargestEncoder : public SparseEncoder {
 public:
  LargestEncoder(const CompressionOptions& options, GroupLayout layout, int rank, int size, Processor& processor)
      : SparseEncoder(options, std::move(layout), rank, size, processor) {}

  std::span<uint8_t> encode(std::span<float> values, uint64_t) override {
    const std::span<float> from = residual_.with(values);
    return take(from, kept_elements(from.size(), options_.density));
  }
};

/// Momentum is applied before the choice, so that what waits gathers velocity, not only gradient; both are cleared
/// where an element is sent. Clipping is local, so that what accumulates on a rank is bounded.
class DgcEncoder : public SparseEncoder {
 public:
  DgcEncoder(const CompressionOptions& options, GroupLayout layout, int rank, int size, double fraction_of_gradient,
             Processor& processor)
      : SparseEncoder(options, std::move(layout), rank, size, processor),
        limit_(options.clip_norm * std::sqrt(fraction_of_gradient / size)),
        velocity_(layout_.count, "velocity/", true, processor) {}

  std::span<uint8_t> encode(std::span<float> values, uint64_t step) override {
    if (limit_ > 0) {
      const double norm = std::sqrt(processor_.dot_product(values, values));
      if (norm > limit_ && std::isfinite(norm)) processor_.scale_by(values, static_cast<float>(limit_ / norm));
    }
    velocity_.rescale(options_.momentum);
    const std::span<float> velocity = velocity_.with(values);
    const std::span<float> from = residual_.with(velocity);
    return take(from, kept_elements(from.size(), dgc_density(options_, step)), velocity);
  }
  void save(StatePieces& pieces) const override {
    SparseEncoder::save(pieces);
    velocity_.save(layout_, pieces);
  }
  void load(std::span<const StatePieces> by_rank) override {
    SparseEncoder::load(by_rank);
    velocity_.load(layout_, by_rank, rank_, size_);
  }
  void rescale(float factor) override {
    SparseEncoder::rescale(factor);
    velocity_.rescale(factor);
  }

 private:
  double limit_;  ///< of the norm of this rank's group
  Residual velocity_;
};

/// For a server.
class SparseMessages : public MessageEncoder {
 public:
  explicit SparseMessages(std::unique_ptr<SparseEncoder> encoder) : encoder_(std::move(encoder)) {}

  void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) override {
    const std::span<uint8_t> message = encoder_->encode(values, step);
    out.assign(message.begin(), message.end());
  }
  void save(StatePieces& pieces) const override { encoder_->save(pieces); }
  void load(std::span<const StatePieces> by_rank) override { encoder_->load(by_rank); }
  void rescale(float factor) override { encoder_->rescale(factor); }

 private:
  std::unique_ptr<SparseEncoder> encoder_;
};

}  // namespace

void check_choosable(const GroupLayout& layout) {
  if (layout.count <= std::numeric_limits<uint32_t>::max()) return;
  throw UsageError(fmt::format("group {} has {} elements, too many to choose from", layout.name, layout.count),
                   "make groups of less than 4,294,967,296 elements");
}

std::unique_ptr<SparseEncoder> make_sparse_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                   int size, double fraction_of_gradient, Processor& processor) {
  if (options.method != Method::kDgc) {
    return std::make_unique<LargestEncoder>(options, std::move(layout), rank, size, processor);
  }
  return std::make_unique<DgcEncoder>(options, std::move(layout), rank, size, fraction_of_gradient, processor);
}

std::unique_ptr<MessageEncoder> make_sparse_messages(const CompressionOptions& options, GroupLayout layout, int rank,
                                                     int size, double fraction_of_gradient) {
  return std::make_unique<SparseMessages>(
      make_sparse_encoder(options, std::move(layout), rank, size, fraction_of_gradient, host_processor()));
}

}  // namespace trireme
