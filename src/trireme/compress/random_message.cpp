// Messages of elements chosen at random.
#include <fmt/format.h>

#include <cstring>

#include "trireme/base/error.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class RandomEncoder : public ResidualEncoder {
 public:
  using ResidualEncoder::ResidualEncoder;

  void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) override {
    const RandomDraw draw = random_draw(options_, layout_.name, values.size(), step);
    chosen_.resize(draw.k);
    host_processor().take_at_random(draw, residual_.with(values), !residual_.kept(), chosen_);
    out.resize(chosen_.size() * sizeof(float));
    if (!out.empty()) std::memcpy(out.data(), chosen_.data(), out.size());
  }

 private:
  std::vector<float> chosen_;
};

}  // namespace

RandomDraw random_draw(const CompressionOptions& options, const std::string& group, size_t count, uint64_t step) {
  return {count, kept_elements(count, options.density), options.seed, "compress/" + group, step};
}

std::unique_ptr<MessageEncoder> make_random_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                    int size) {
  return std::make_unique<RandomEncoder>(options, std::move(layout), rank, size);
}

void add_random(const CompressionOptions& options, const std::string& group, uint64_t step,
                std::span<const uint8_t> message, std::span<float> out) {
  const RandomChoice choice = select_at_random(random_draw(options, group, out.size(), step));
  if (message.size() != choice.k * sizeof(float)) {
    throw Error(fmt::format("a message of {} bytes is not {} of {} elements", message.size(), choice.k, out.size()),
                std::string(kSameOnBothSides));
  }
  for (size_t i = 0; i < choice.k; ++i) {
    float value;
    std::memcpy(&value, message.data() + i * sizeof(float), sizeof value);
    out[choice.indices[i]] += value;
  }
}

}  // namespace trireme
