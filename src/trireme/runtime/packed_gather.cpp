#include "trireme/runtime/packed_gather.h"

#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {

PackedGather::PackedGather(Communicator& comm, Processor& processor, const torch::Device& device, BlockFormat format,
                           std::vector<size_t> counts)
    : comm_(comm),
      processor_(processor),
      device_(device),
      format_(format),
      rank_(static_cast<size_t>(comm.rank())),
      counts_(std::move(counts)) {
  for (const size_t count : counts_) {
    wire_counts_.push_back(encoded_bytes(format_, count));
    packed_bytes_ += static_cast<int64_t>(wire_counts_.back());
  }
  own_ = host_shared_zeros(&comm_, static_cast<int64_t>(wire_counts_[rank_]),
                           torch::TensorOptions().device(device_).dtype(torch::kUInt8));
}

Handle PackedGather::start(const torch::Tensor& own, const torch::Tensor& packed) {
  if (!is_packed_) {
    const torch::Tensor values = own.to(device_, torch::kFloat32);
    processor_.encode(format_, {values.const_data_ptr<float>(), counts_[rank_]},
                      {own_.data_ptr<uint8_t>(), wire_counts_[rank_]}, {}, 0);
    is_packed_ = true;
  }
  return comm_.start_all_gather_v(data_of(own_), data_of(packed.narrow(0, 0, packed_bytes_)), wire_counts_,
                                  call_options(device_));
}

void PackedGather::unpack(const torch::Tensor& packed, const torch::Tensor& whole) const {
  torch::Tensor values = whole.scalar_type() == torch::kFloat32 ? whole : torch::empty_like(whole, torch::kFloat32);
  const uint8_t* from = packed.const_data_ptr<uint8_t>();
  float* to = values.data_ptr<float>();
  for (size_t rank = 0; rank < counts_.size(); ++rank) {
    processor_.decode(format_, {from, wire_counts_[rank]}, {to, counts_[rank]}, /*add=*/false);
    from += wire_counts_[rank];
    to += counts_[rank];
  }
  if (whole.scalar_type() != torch::kFloat32) torch::Tensor(whole).copy_(values);
}

}  // namespace trireme
