#include "trireme/train/weight_update.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <span>

#include "trireme/optimizer/kernels.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

constexpr int64_t kBlocksPerThread = 16;  // minimum

size_t blocks_of(int64_t count) { return (static_cast<size_t>(count) + kSquaresBlock - 1) / kSquaresBlock; }

}  // namespace

WeightUpdate::WeightUpdate(const Config& config, ModelPart& part)
    : part_(part), optimizer_(config.optimizer, part.parameters()) {
  if (!part.parameters().device().is_cuda() || !part.parameters().masters_on_host()) return;
  for (size_t i = 0; i < part.parameters().shards().size(); ++i) {
    copies_.push_back(torch::empty(part.gradient(i).sizes(), torch::TensorOptions().pinned_memory(true)));
  }
}

void WeightUpdate::fetch() {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < copies_.size(); ++i) copies_[i].copy_(part_.gradient(i), /*non_blocking=*/true);
  if (!copies_.empty()) synchronize(part_.parameters().device());
}

torch::Tensor WeightUpdate::gradient(size_t shard) const {
  return copies_.empty() ? part_.gradient(shard).to(torch::kFloat32) : copies_[shard];
}

void WeightUpdate::apply(int64_t update, double lr, double factor) {
  optimizer_.update([this](size_t shard) { return gradient(shard); }, factor, lr, update);
}

std::vector<double> WeightUpdate::block_squares() {
  std::vector<double> sums;
  const std::vector<ParameterStore::Shard>& shards = part_.parameters().shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    const torch::Tensor gradient = this->gradient(i);
    const float* const values = gradient.const_data_ptr<float>();
    const size_t count = static_cast<size_t>(shards[i].count), num_blocks = blocks_of(shards[i].count);
    sums.resize(sums.size() + num_blocks);
    double* const own = sums.data() + sums.size() - num_blocks;
    at::parallel_for(0, static_cast<int64_t>(num_blocks), kBlocksPerThread, [&](int64_t begin, int64_t end) {
      for (auto block = static_cast<size_t>(begin); block < static_cast<size_t>(end); ++block) {
        const size_t at = block * kSquaresBlock;
        own[block] = trireme::block_squares(values + at, std::min(kSquaresBlock, count - at));
      }
    });
  }
  return sums;
}

std::vector<double> WeightUpdate::squares(const RankGroups& groups) {
  const ParameterStore& parameters = part_.parameters();
  std::vector<size_t> first = {0};
  for (const ParameterStore::Entry& entry : parameters.entries()) {
    first.push_back(first.back() + blocks_of(local_part(entry.parameter).numel()));
  }
  std::vector<double> blocks(first.back(), 0.0);
  Communicator* const shard_group = groups.shard_group();
  const std::vector<double> own = block_squares();
  auto next = own.begin();
  for (const ParameterStore::Shard& shard : parameters.shards()) {
    const auto from = next;
    next += static_cast<std::ptrdiff_t>(blocks_of(shard.count));
    // Replicated entries count once.
    if (shard_group && shard_group->rank() > 0 && !parameters.entries()[shard.entry].is_sharded) continue;
    const size_t at = first[shard.entry] + static_cast<size_t>(shard.first) / kSquaresBlock;
    std::copy(from, next, blocks.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (shard_group) shard_group->all_reduce(blocks);
  std::vector<double> squares;
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    squares.push_back(add_block_squares(std::span(blocks).subspan(first[i], first[i + 1] - first[i])));
  }
  return squares;
}

}  // namespace trireme
