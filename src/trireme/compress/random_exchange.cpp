// Sums of elements chosen at random: all ranks choose the same ones, so that only values travel, in a dense sum.
#include "trireme/compress/exchange_families.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class RandomExchange : public ResidualExchange {
 public:
  RandomExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, Processor& processor)
      : ResidualExchange(comm, options, std::move(layout), processor),
        chosen_(shared_array(kept_elements(layout_.count, options.density))) {}

  void sum(std::span<float> values, uint64_t step) override {
    const RandomDraw draw = random_draw(options_, layout_.name, values.size(), step);
    processor_.take_at_random(draw, residual_.with(values), !residual_.kept(), chosen_.span());
    all_reduce(chosen_.span());
    processor_.put_at_random(draw, chosen_.span(), values);
  }

 private:
  Array<float> chosen_;
};

}  // namespace

std::unique_ptr<Exchange> make_random_exchange(Communicator& comm, const CompressionOptions& options,
                                               GroupLayout layout, Processor& processor) {
  return std::make_unique<RandomExchange>(comm, options, std::move(layout), processor);
}

}  // namespace trireme
