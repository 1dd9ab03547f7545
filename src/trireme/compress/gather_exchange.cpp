// Sums of chosen elements: all ranks gather what all have chosen and add it in the order of the ranks.
#include <algorithm>

#include "trireme/compress/exchange_families.h"
#include "trireme/compress/message.h"

namespace trireme {
namespace {

class GatherExchange : public Exchange {
 public:
  GatherExchange(Communicator& comm, const CompressionOptions& options, GroupLayout layout, double share)
      : comm_(comm),
        options_(options),
        group_(layout.name),
        encoder_(make_message_encoder(options, std::move(layout), comm.rank(), comm.size(), share)) {}

  void sum(std::span<float> values, uint64_t step) override {
    encoder_->encode(values, step, out_);
    const std::vector<size_t> counts = message_sizes();
    size_t total = 0;
    for (const size_t count : counts) total += count;
    in_.resize(total);
    comm_.all_gather_v(out_, in_, counts);
    bytes_sent_ += out_.size() * (counts.size() - 1);

    std::fill(values.begin(), values.end(), 0.f);
    size_t at = 0;
    for (const size_t count : counts) {
      add_message(options_, group_, step, std::span(in_).subspan(at, count), values);
      at += count;
    }
  }
  void save(StatePieces& pieces) const override { encoder_->save(pieces); }
  void load(std::span<const StatePieces> by_rank) override { encoder_->load(by_rank); }
  void rescale(float factor) override { encoder_->rescale(factor); }
  uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  /// Of all ranks, in bytes.
  std::vector<size_t> message_sizes() {
    const auto ranks = static_cast<size_t>(comm_.size());
    std::vector<size_t> counts(ranks, out_.size());
    if (encoder_->same_size_everywhere()) return counts;
    const std::vector<int64_t> own = {static_cast<int64_t>(out_.size())};
    std::vector<int64_t> all(ranks);
    comm_.all_gather(own, all);
    bytes_sent_ += sizeof(int64_t) * (ranks - 1);
    std::copy(all.begin(), all.end(), counts.begin());
    return counts;
  }

  Communicator& comm_;
  CompressionOptions options_;
  std::string group_;
  std::unique_ptr<MessageEncoder> encoder_;
  std::vector<uint8_t> out_, in_;
  uint64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<Exchange> make_gather_exchange(Communicator& comm, const CompressionOptions& options,
                                               GroupLayout layout, double share) {
  return std::make_unique<GatherExchange>(comm, options, std::move(layout), share);
}

}  // namespace trireme
