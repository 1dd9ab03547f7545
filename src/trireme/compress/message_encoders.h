// The encoders behind message.h, one a family. For this folder.
#pragma once

#include "trireme/compress/formats/select.h"
#include "trireme/compress/message.h"
#include "trireme/compress/residual.h"

namespace trireme {

/// What to do about a message that does not fit.
inline constexpr std::string_view kSameOnBothSides =
    "give the sender and the receiver the same compression settings and the same groups";

/// Keeps what it does not send, where the method wants that.
class ResidualEncoder : public MessageEncoder {
 public:
  ResidualEncoder(const CompressionOptions& options, GroupLayout layout, int rank, int size)
      : options_(options),
        layout_(std::move(layout)),
        rank_(rank),
        size_(size),
        residual_(layout_.count, "residual/", keeps_residual(options)) {}

  void save(StatePieces& pieces) const override { residual_.save(layout_, pieces); }
  void load(std::span<const StatePieces> by_rank) override { residual_.load(layout_, by_rank, rank_, size_); }
  void rescale(float factor) override { residual_.rescale(factor); }

 protected:
  CompressionOptions options_;
  GroupLayout layout_;
  int rank_, size_;
  Residual residual_;
};

std::unique_ptr<MessageEncoder> make_block_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                   int size);
/// Throws UsageError for a group that is too large for indices of 32 bits.
void check_choosable(const GroupLayout& layout);
/// Top-k and dgc, whose messages hold chosen elements.
std::unique_ptr<MessageEncoder> make_sparse_messages(const CompressionOptions& options, GroupLayout layout, int rank,
                                                     int size, double fraction_of_gradient);
/// The same in a processor's memory.
class SparseEncoder {
 public:
  virtual ~SparseEncoder() = default;
  /// A message, which stays there until the next one. Its length depends on the layout, the settings and the step
  /// alone, so it is the same on all ranks. May change `values`.
  virtual std::span<uint8_t> encode(std::span<float> values, uint64_t step) = 0;

  // As of a MessageEncoder.
  virtual void save(StatePieces& pieces) const { residual_.save(layout_, pieces); }
  virtual void load(std::span<const StatePieces> by_rank) { residual_.load(layout_, by_rank, rank_, size_); }
  virtual void rescale(float factor) { residual_.rescale(factor); }

 protected:
  SparseEncoder(const CompressionOptions& options, GroupLayout layout, int rank, int size, Processor& processor)
      : processor_(processor),
        options_(options),
        layout_(std::move(layout)),
        rank_(rank),
        size_(size),
        residual_(layout_.count, "residual/", keeps_residual(options), processor) {}
  /// The message of the k largest, which it takes out of `from` (and `also`).
  std::span<uint8_t> take(std::span<float> from, size_t k, std::span<float> also = {}) {
    const size_t num_bytes = processor_.take(from, k, message_, also);
    return {static_cast<uint8_t*>(message_.data()), num_bytes};
  }

  Processor& processor_;
  CompressionOptions options_;
  GroupLayout layout_;
  int rank_, size_;
  Residual residual_;

 private:
  Buffer message_;
};
std::unique_ptr<SparseEncoder> make_sparse_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                   int size, double fraction_of_gradient, Processor& processor);
/// Terngrad: cuts off what lies further from 0 than `clip_deviations` standard deviations of its tensor.
void clip_to_deviations(const CompressionOptions& options, const GroupLayout& layout, std::span<float> values,
                        Processor& processor = host_processor());
/// The random numbers with which a rank rounds a group.
RandomKey rounding_key(const CompressionOptions& options, const std::string& group, int rank, uint64_t step);

}  // namespace trireme
