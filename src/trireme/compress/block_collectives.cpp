#include "trireme/compress/block_collectives.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void check_count(const char* what, size_t count, size_t wanted) {
  if (count != wanted) throw UsageError(fmt::format("{} has {} elements, but needs {}", what, count, wanted));
}

}  // namespace

BlockCollectives::BlockCollectives(Communicator& comm, BlockFormat format, std::vector<size_t> counts,
                                   Processor& processor)
    : comm_(comm),
      processor_(processor),
      format_(format),
      rank_(static_cast<size_t>(comm.rank())),
      counts_(std::move(counts)),
      gathered_(processor, 0),
      own_(processor, 0) {
  check_count("the list of parts", counts_.size(), static_cast<size_t>(comm.size()));
  size_t num_bytes = 0, num_blocks = 0;
  for (const size_t count : counts_) {
    firsts_.push_back(count_);
    wire_firsts_.push_back(num_bytes);
    block_firsts_.push_back(num_blocks);
    wire_counts_.push_back(encoded_bytes(format_, count));
    count_ += count;
    num_bytes += wire_counts_.back();
    num_blocks += (count + kBlockElements - 1) / kBlockElements;
  }
  const size_t own_bytes = wire_counts_[rank_] * counts_.size();
  gathered_ = {processor_.allocate_for(comm_, num_bytes), num_bytes};
  own_ = {processor_.allocate_for(comm_, own_bytes), own_bytes};
}

void BlockCollectives::all_gather(std::span<const float> part, std::span<float> out, const RandomKey& random) {
  check_count("the part of this rank", part.size(), own_count());
  processor_.encode(format_, part, own_wire(), random, random_first(rank_));
  gather_wire(out);
}

void BlockCollectives::all_gather_keeping_rest(std::span<float> part, std::span<float> out, const RandomKey& random) {
  check_count("the part of this rank", part.size(), own_count());
  processor_.encode_keeping_rest(format_, part, own_wire(), random, random_first(rank_));
  gather_wire(out);
}

void BlockCollectives::gather_wire(std::span<float> out) {
  check_count("the gathered array", out.size(), count_);
  comm_.all_gather_v(processor_.data_of(own_wire()), processor_.data_of(gathered_.span()), wire_counts_,
                     processor_.call_options());
  bytes_sent_ += wire_counts_[rank_] * (counts_.size() - 1);
  for (size_t r = 0; r < counts_.size(); ++r) {
    processor_.decode(format_, wire_of(r), out.subspan(firsts_[r], counts_[r]), false);
  }
}

void BlockCollectives::reduce_scatter(std::span<const float> whole, std::span<float> out, const RandomKey& random) {
  check_count("the array to be summed", whole.size(), count_);
  for (size_t r = 0; r < counts_.size(); ++r) {
    processor_.encode(format_, whole.subspan(firsts_[r], counts_[r]), wire_of(r), random, random_first(r));
  }
  scatter_wire(out);
}

void BlockCollectives::reduce_scatter_keeping_rest(std::span<float> whole, std::span<float> out,
                                                   const RandomKey& random) {
  check_count("the array to be summed", whole.size(), count_);
  for (size_t r = 0; r < counts_.size(); ++r) {
    processor_.encode_keeping_rest(format_, whole.subspan(firsts_[r], counts_[r]), wire_of(r), random, random_first(r));
  }
  scatter_wire(out);
}

void BlockCollectives::scatter_wire(std::span<float> out) {
  check_count("the sum of this rank's part", out.size(), own_count());
  const size_t own_bytes = wire_counts_[rank_];
  const std::vector<size_t> own_everywhere(counts_.size(), own_bytes);
  comm_.all_to_all_v(processor_.data_of(gathered_.span()), wire_counts_, processor_.data_of(own_.span()),
                     own_everywhere, processor_.call_options());
  bytes_sent_ += gathered_.size() - own_bytes;
  for (size_t r = 0; r < counts_.size(); ++r) {
    processor_.decode(format_, own_.span().subspan(r * own_bytes, own_bytes), out, r > 0);
  }
}

}  // namespace trireme
