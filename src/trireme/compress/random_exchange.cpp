// Sums of elements chosen at random: all ranks choose the same ones, so that only values travel, in a dense sum.
#include <algorithm>

#include "trireme/compress/exchange.h"
#include "trireme/compress/message_encoders.h"

namespace trireme {
namespace {

class RandomExchange : public Exchange {
 public:
  RandomExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout)
      : comm_(comm),
        options_(options),
        layout_(std::move(layout)),
        residual_(layout_.count, "residual/", keeps_residual(options)) {}

  void sum(std::span<float> values, uint64_t step) override {
    const RandomChoice choice = random_choice(options_, layout_.name, values.size(), step);
    std::vector<float> chosen = take_chosen(choice, residual_, values);
    comm_.all_reduce(chosen);
    bytes_sent_ += dense_sum_bytes(choice.k * sizeof(float), comm_.size());
    std::fill(values.begin(), values.end(), 0.f);
    for (size_t i = 0; i < choice.k; ++i) values[choice.indices[i]] = chosen[i];
  }
  void save(StatePieces& pieces) const override { residual_.save(layout_, pieces); }
  void load(std::span<const StatePieces> by_rank) override {
    residual_.load(layout_, by_rank, comm_.rank(), comm_.size());
  }
  void rescale(float factor) override { residual_.rescale(factor); }
  uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  Communicator& comm_;
  CompressionOptions options_;
  GroupLayout layout_;
  Residual residual_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_random_exchange(Communicator& comm, const CompressionOptions& options,
                                               GroupLayout layout) {
  return std::make_unique<RandomExchange>(comm, options, std::move(layout));
}

}  // namespace trireme
