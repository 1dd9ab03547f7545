#include "trireme/compress/message.h"

#include <fmt/format.h>

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/comm/reduce/reduce.h"
#include "trireme/compress/formats/sparse_format.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class DenseEncoder : public MessageEncoder {
 public:
  void encode(std::span<float> values, uint64_t, std::vector<uint8_t>& out) override {
    out.resize(values.size_bytes());
    if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  }
};

void add_dense(std::span<const uint8_t> message, std::span<float> out) {
  if (message.size() != out.size_bytes()) {
    throw Error(fmt::format("a dense message of {} bytes is not {} elements", message.size(), out.size()),
                std::string(kSameOnBothSides));
  }
  combine(ReduceOp::kSum, DataType::kFloat, out.data(), out.data(), message.data(), out.size());
}

/// The first steps as they are, then by another encoder.
class WarmEncoder : public MessageEncoder {
 public:
  WarmEncoder(std::unique_ptr<MessageEncoder> later, uint64_t steps) : later_(std::move(later)), steps_(steps) {}

  void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) override {
    step < steps_ ? dense_.encode(values, step, out) : later_->encode(values, step, out);
  }
  void save(StatePieces& pieces) const override { later_->save(pieces); }
  void load(std::span<const StatePieces> by_rank) override { later_->load(by_rank); }
  void rescale(float factor) override { later_->rescale(factor); }

 private:
  DenseEncoder dense_;
  std::unique_ptr<MessageEncoder> later_;
  uint64_t steps_;
};

std::unique_ptr<MessageEncoder> make_without_warmup(const CompressionOptions& options, GroupLayout layout, int rank,
                                                    int size, double share) {
  switch (options.method) {
    case Method::kNone:
      return std::make_unique<DenseEncoder>();
    case Method::kTopK:
    case Method::kDgc:
      return make_sparse_messages(options, std::move(layout), rank, size, share);
    case Method::kPowerSgd:
    case Method::kOneBitAdam:
      throw UsageError(fmt::format("compression by {} takes more than one message a step", name_of(options.method)),
                       "parameter servers work with the other methods");
    default:
      return make_block_encoder(options, std::move(layout), rank, size);
  }
}

}  // namespace

std::unique_ptr<MessageEncoder> make_message_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                     int size, double share) {
  check(options);
  layout = checked(std::move(layout));
  check_choosable(layout);
  std::unique_ptr<MessageEncoder> encoder = make_without_warmup(options, std::move(layout), rank, size, share);
  if (options.warmup_steps == 0 || options.method == Method::kDgc) return encoder;
  return std::make_unique<WarmEncoder>(std::move(encoder), options.warmup_steps);
}

void add_message(const CompressionOptions& options, uint64_t step, std::span<const uint8_t> message,
                 std::span<float> out) {
  const bool warm = step < options.warmup_steps && options.method != Method::kDgc;
  if (warm || options.method == Method::kNone) return add_dense(message, out);
  if (const auto format = block_format(options)) {
    if (message.size() != encoded_bytes(*format, out.size())) {
      throw Error(
          fmt::format("a message of {} bytes is not {} elements as {}", message.size(), out.size(), name_of(*format)),
          std::string(kSameOnBothSides));
    }
    return add_blocks(*format, message, out);
  }
  add_sparse(message, out);
}

}  // namespace trireme
