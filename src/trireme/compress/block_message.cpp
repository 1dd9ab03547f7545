// Messages of packed blocks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class BlockEncoder : public ResidualEncoder {
 public:
  BlockEncoder(const CompressionOptions& options, GroupLayout layout, int rank, int size)
      : ResidualEncoder(options, std::move(layout), rank, size), format_(*block_format(options)) {}

  void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) override {
    clip_to_deviations(options_, layout_, values);
    out.resize(encoded_bytes(format_, values.size()));
    const RandomKey random = rounding_key(options_, layout_.name, rank_, step);
    const std::span<float> from = residual_.with(values);
    residual_.kept() ? encode_blocks_keeping_rest(format_, from, out, random)
                     : encode_blocks(format_, from, out, random);
  }

 private:
  BlockFormat format_;
};

}  // namespace

void clip_to_deviations(const CompressionOptions& options, const GroupLayout& layout, std::span<float> values,
                        Processor& processor) {
  if (options.method != Method::kTernGrad || options.clip_deviations == 0) return;
  for (const TensorPart& part : layout.parts) {
    const auto tensor = values.subspan(part.offset, part.count());
    const double square =
        processor.dot_product(tensor, tensor) / std::max<double>(1, static_cast<double>(tensor.size()));
    if (!std::isfinite(square)) continue;  // stays as it is, and becomes NaN on the way
    processor.clamp_to(tensor, options.clip_deviations * static_cast<float>(std::sqrt(square)));
  }
}

RandomKey rounding_key(const CompressionOptions& options, const std::string& group, int rank, uint64_t step) {
  return random_key(options.seed, fmt::format("compress/{}/rank {}", group, rank), step);
}

std::unique_ptr<MessageEncoder> make_block_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                   int size) {
  return std::make_unique<BlockEncoder>(options, std::move(layout), rank, size);
}

}  // namespace trireme
