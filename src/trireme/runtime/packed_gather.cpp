#include "trireme/runtime/packed_gather.h"

#include "trireme/tensor/shared_tensor.h"

namespace trireme {

PackedGather::PackedGather(Communicator& comm, BlockFormat format, std::vector<size_t> counts)
    : comm_(comm), format_(format), rank_(static_cast<size_t>(comm.rank())), counts_(std::move(counts)) {
  for (const size_t count : counts_) {
    wire_counts_.push_back(encoded_bytes(format_, count));
    packed_bytes_ += static_cast<int64_t>(wire_counts_.back());
  }
  own_ = shared_zeros(&comm_, static_cast<int64_t>(wire_counts_[rank_]), torch::kUInt8);
}

Handle PackedGather::start(const torch::Tensor& own, const torch::Tensor& packed) {
  if (!is_packed_) {
    const torch::Tensor values = own.to(torch::kFloat32);
    encode_blocks(format_, {values.const_data_ptr<float>(), counts_[rank_]},
                  {own_.data_ptr<uint8_t>(), wire_counts_[rank_]});
    is_packed_ = true;
  }
  return comm_.start_all_gather_v(data_of(own_), data_of(packed.narrow(0, 0, packed_bytes_)), wire_counts_);
}

void PackedGather::unpack(const torch::Tensor& packed, const torch::Tensor& whole) const {
  torch::Tensor values = whole.scalar_type() == torch::kFloat32 ? whole : torch::empty_like(whole, torch::kFloat32);
  const uint8_t* from = packed.const_data_ptr<uint8_t>();
  float* to = values.data_ptr<float>();
  for (size_t rank = 0; rank < counts_.size(); ++rank) {
    decode_blocks(format_, {from, wire_counts_[rank]}, {to, counts_[rank]});
    from += wire_counts_[rank];
    to += counts_[rank];
  }
  if (whole.scalar_type() != torch::kFloat32) torch::Tensor(whole).copy_(values);
}

}  // namespace trireme
