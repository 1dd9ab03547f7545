// Messages of elements chosen at random.
#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/compress/arithmetic.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class RandomEncoder : public ResidualEncoder {
 public:
  using ResidualEncoder::ResidualEncoder;

  void encode(std::span<float> values, uint64_t step, std::vector<uint8_t>& out) override {
    const RandomChoice choice = random_choice(options_, layout_.name, values.size(), step);
    const std::vector<float> chosen = take_chosen(choice, residual_, values);
    out.resize(chosen.size() * sizeof(float));
    if (!out.empty()) std::memcpy(out.data(), chosen.data(), out.size());
  }
};

}  // namespace

RandomChoice random_choice(const CompressionOptions& options, const std::string& group, size_t count, uint64_t step) {
  return select_at_random(count, kept_elements(count, options.density), options.seed, "compress/" + group, step);
}

std::vector<float> take_chosen(const RandomChoice& choice, Residual& residual, std::span<float> gradient) {
  const std::span<float> from = residual.with(gradient);
  const bool finite = all_finite(from);
  if (!finite) clear_not_finite(from);
  std::vector<float> chosen(choice.k);
  for (size_t i = 0; i < choice.k; ++i) {
    // With error feedback the rest comes later; without it the mean is right when what is sent stands for its part.
    const float factor = residual.kept() ? 1.f : static_cast<float>(choice.part_of(i));
    chosen[i] = from[choice.indices[i]] * factor;
    from[choice.indices[i]] = 0;
  }
  if (!finite) chosen[0] = std::numeric_limits<float>::quiet_NaN();  // the culprit may not be among the chosen
  return chosen;
}

std::unique_ptr<MessageEncoder> make_random_encoder(const CompressionOptions& options, GroupLayout layout, int rank,
                                                    int size) {
  return std::make_unique<RandomEncoder>(options, std::move(layout), rank, size);
}

void add_random(const CompressionOptions& options, const std::string& group, uint64_t step,
                std::span<const uint8_t> message, std::span<float> out) {
  const RandomChoice choice = random_choice(options, group, out.size(), step);
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
