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

void refuse_several_messages(Method method) {
  if (takes_one_message(method)) return;
  throw UsageError(fmt::format("compression by {} takes more than one message a step", name_of(method)),
                   "parameter servers work with the other methods");
}

std::unique_ptr<MessageEncoder> make_without_warmup(const CompressionOptions& options, GroupLayout layout, int rank,
                                                    int size, double fraction_of_gradient) {
  refuse_several_messages(options.method);
  switch (family_of(options.method)) {
    case Family::kDense:
    case Family::kLowRank:
      break;
    case Family::kSparse:
      return make_sparse_messages(options, std::move(layout), rank, size, fraction_of_gradient);
    case Family::kBlocks:
      return make_block_encoder(options, std::move(layout), rank, size);
  }
  return std::make_unique<DenseEncoder>();
}

}  // namespace

std::unique_ptr<MessageEncoder> make_message_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                     int size, double fraction_of_gradient) {
  check(options);
  layout = checked(std::move(layout));
  check_choosable(layout);
  std::unique_ptr<MessageEncoder> encoder =
      make_without_warmup(options, std::move(layout), rank, size, fraction_of_gradient);
  if (options.warmup_steps == 0 || options.method == Method::kDgc) return encoder;
  return std::make_unique<WarmEncoder>(std::move(encoder), options.warmup_steps);
}

void add_message(const CompressionOptions& options, uint64_t step, std::span<const uint8_t> message,
                 std::span<float> out) {
  const bool warm = step < options.warmup_steps && options.method != Method::kDgc;
  if (warm) return add_dense(message, out);
  refuse_several_messages(options.method);
  switch (family_of(options.method)) {
    case Family::kDense:
    case Family::kLowRank:
      return add_dense(message, out);
    case Family::kSparse:
      return add_sparse(message, out);
    case Family::kBlocks:
      break;
  }
  const BlockFormat format = *block_format(options);
  if (message.size() != encoded_bytes(format, out.size())) {
    throw Error(
        fmt::format("a message of {} bytes is not {} elements as {}", message.size(), out.size(), name_of(format)),
        std::string(kSameOnBothSides));
  }
  add_blocks(format, message, out);
}

}  // namespace trireme
