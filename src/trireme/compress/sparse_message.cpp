// Messages of chosen elements: the largest, those over a threshold, and Deep Gradient Compression.
#include <cmath>

#include "trireme/compress/message_encoders.h"
#include "trireme/compress/sparse_format.h"

namespace trireme {
namespace {

/// The chosen values, which are taken out of `from`. What is not finite does not stay.
std::vector<float> take(std::span<float> from, std::span<const uint32_t> indices) {
  std::vector<float> chosen(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    chosen[i] = from[indices[i]];
    from[indices[i]] = 0;
  }
  if (!all_finite(chosen)) clear_not_finite(from);  // the largest are chosen first, so they show it
  return chosen;
}

class SparseEncoder : public ResidualEncoder {
 public:
  using ResidualEncoder::ResidualEncoder;

  void encode(std::span<float> values, uint64_t, std::vector<uint8_t>& out) override {
    const std::span<float> from = residual_.with(values);
    const std::vector<uint32_t> indices = options_.method == Method::kTopK
                                              ? select_largest(from, kept_elements(from.size(), options_.density))
                                              : select_over(from, options_.threshold);
    encode_sparse(from.size(), indices, take(from, indices), out);
  }
  bool same_size_everywhere() const override { return options_.method == Method::kTopK; }
};

/// Momentum is applied before the choice, so that what waits gathers velocity, not only gradient; both are cleared
/// where an element is sent. Clipping is local, so that what accumulates on a rank is bounded.
class DgcEncoder : public ResidualEncoder {
 public:
  DgcEncoder(const CompressionOptions& options, GroupLayout layout, int rank, int size, double share)
      : ResidualEncoder(options, std::move(layout), rank, size),
        limit_(options.clip_norm * std::sqrt(share / size)),
        velocity_(layout_.count, "velocity/", true) {}

  void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) override {
    if (limit_ > 0) {
      const double norm = std::sqrt(dot_product(values, values));
      if (norm > limit_ && std::isfinite(norm)) scale_by(values, static_cast<float>(limit_ / norm));
    }
    velocity_.rescale(options_.momentum);
    const std::span<float> velocity = velocity_.with(values);
    const std::span<float> from = residual_.with(velocity);
    const size_t k = kept_elements(from.size(), dgc_density(options_, step));
    const std::vector<uint32_t> indices = select_largest(from, k);
    const std::vector<float> chosen = take(from, indices);
    for (const uint32_t index : indices) velocity[index] = 0;
    if (!all_finite(chosen)) clear_not_finite(velocity);
    encode_sparse(from.size(), indices, chosen, out);
  }
  void save(StatePieces& pieces) const override {
    ResidualEncoder::save(pieces);
    velocity_.save(layout_, pieces);
  }
  void load(std::span<const StatePieces> by_rank) override {
    ResidualEncoder::load(by_rank);
    velocity_.load(layout_, by_rank, rank_, size_);
  }
  void rescale(float factor) override {
    ResidualEncoder::rescale(factor);
    velocity_.rescale(factor);
  }

 private:
  double limit_;  ///< of the norm of this rank's group
  Residual velocity_;
};

}  // namespace

std::unique_ptr<MessageEncoder> make_sparse_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                    int size) {
  return std::make_unique<SparseEncoder>(options, std::move(layout), rank, size);
}

std::unique_ptr<MessageEncoder> make_dgc_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                 int size, double share) {
  return std::make_unique<DgcEncoder>(options, std::move(layout), rank, size, share);
}

}  // namespace trireme
