// Sums of elements chosen at random: all ranks choose the same ones, so that only values travel, in a dense sum.
#include <algorithm>

#include "trireme/compress/exchange_families.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class RandomExchange : public ResidualExchange {
 public:
  using ResidualExchange::ResidualExchange;

  void sum(std::span<float> values, uint64_t step) override {
    const RandomChoice choice = random_choice(options_, layout_.name, values.size(), step);
    std::vector<float> chosen = take_chosen(choice, residual_, values);
    all_reduce(chosen);
    std::fill(values.begin(), values.end(), 0.f);
    for (size_t i = 0; i < choice.k; ++i) values[choice.indices[i]] = chosen[i];
  }
};

}  // namespace

std::unique_ptr<Exchange> make_random_exchange(Communicator& comm, const CompressionOptions& options,
                                               GroupLayout layout) {
  return std::make_unique<RandomExchange>(comm, options, std::move(layout));
}

}  // namespace trireme
