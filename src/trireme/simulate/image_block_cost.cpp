// Costs of MLP and ResNet blocks: fully connected layers, and convolutions as the matmuls that libraries lower them to.
#include <algorithm>
#include <array>

#include "trireme/simulate/block_cost.h"
#include "trireme/simulate/collective_cost.h"
#include "trireme/simulate/kernel_cost.h"

namespace trireme {
namespace {

/// How tensor ranks shard a layer: not at all, by outputs (the gradient of its input is all-reduced), or by inputs (its
/// output is all-reduced).
enum class Cut { kWhole, kOutputs, kInputs };

struct Builder {
  const Job& job;
  const Cluster& cluster;
  std::vector<BlockCost> blocks = {};

  /// Layer with weights: [m, k] x [k, n]. `norm`: followed by BatchNorm and ReLU.
  void add(const char* name, double m, double n, double k, double bias, bool norm, Cut cut) {
    Device device = device_of(job, cluster);
    if (norm) device.product_efficiency *= device.convolution_efficiency;
    const NumberType type = job.layout.compute;
    const double t = real(job.layout.tp);
    const double e = bytes_of(type), own_n = cut == Cut::kOutputs ? n / t : n, own_k = cut == Cut::kInputs ? k / t : k;
    const double out = m * own_n;
    BlockCost cost;
    cost.name = name;
    cost.forward = product_seconds({m, own_n, own_k}, device, type) + memory_seconds(out * e * (norm ? 5 : 2), device);
    cost.backward_input =
        product_seconds({m, own_k, own_n}, device, type) + memory_seconds(out * e * (norm ? 8 : 3), device);
    cost.backward_weight = product_seconds({own_k, own_n, m}, device, type);
    cost.longest_tensor = own_n * own_k;
    cost.parameters = cost.longest_tensor + (cut == Cut::kOutputs ? bias / t : bias);
    cost.activation_bytes = out * e * (norm ? 2 : 1);
    cost.model_flops = 6 * m * n * k;
    const RankGroup group = group_on(cluster, job.layout.tp, 1);
    if (cut == Cut::kInputs) {
      const double sum = collective_seconds(CollectiveKind::kAllReduce, m * n * e, group, cluster);
      cost.forward += sum;
      cost.exposed += sum;
    } else if (cut == Cut::kOutputs && !blocks.empty()) {  // images need no gradient
      const double sum = collective_seconds(CollectiveKind::kAllReduce, m * k * e, group, cluster);
      cost.backward_input += sum;
      cost.exposed += sum;
    }
    if (job.layout.recompute.kind == RecomputeKind::kFull) {
      cost.backward_input += cost.forward;
      cost.repeated_flops = 2 * m * n * k;
    }
    blocks.push_back(cost);
  }

  void mlp() {
    const double b = real(job.layout.micro_batch), h = real(job.model.hidden);
    double in = real(job.model.channels * job.model.image * job.model.image);
    for (int64_t layer = 0; layer < job.model.layers; ++layer, in = h) {
      add("linear", b, h, in, h, false, layer % 2 == 0 ? Cut::kOutputs : Cut::kInputs);
    }
    add("output", b, real(job.model.classes), h, real(job.model.classes), false,
        job.model.layers % 2 == 1 ? Cut::kInputs : Cut::kWhole);
  }

  /// Merges the blocks from `first` on into one.
  void join(size_t first) {
    BlockCost sum = blocks[first];
    for (size_t i = first + 1; i < blocks.size(); ++i) {
      const BlockCost& next = blocks[i];
      sum.forward += next.forward;
      sum.backward_input += next.backward_input;
      sum.backward_weight += next.backward_weight;
      sum.exposed += next.exposed;
      sum.parameters += next.parameters;
      sum.longest_tensor = std::max(sum.longest_tensor, next.longest_tensor);
      sum.activation_bytes += next.activation_bytes;
      sum.model_flops += next.model_flops;
      sum.repeated_flops += next.repeated_flops;
    }
    sum.name = "block";
    blocks.resize(first);
    blocks.push_back(sum);
  }

  void convolution(double in, double out, double side, double kernel, Cut cut = Cut::kWhole) {
    add("convolution", real(job.layout.micro_batch) * side * side, out, in * kernel * kernel, 2 * out, true, cut);
  }

  void resnet() {
    const int64_t depth = job.model.depth;
    const bool bottleneck = depth >= 50, small = job.model.has_small_image();
    const std::array<int, 4> counts = depth == 18    ? std::array{2, 2, 2, 2}
                                      : depth == 101 ? std::array{3, 4, 23, 3}
                                                     : std::array{3, 4, 6, 3};
    double side = real(job.model.image) / (small ? 1 : 2);
    convolution(real(job.model.channels), 64, side, small ? 3 : 7);
    if (!small) side /= 2;
    double in = 64;
    for (size_t stage = 0; stage < counts.size(); ++stage) {
      const double width = 64.0 * (1 << stage), out = bottleneck ? 4 * width : width;
      for (int block = 0; block < counts[stage]; ++block) {
        const size_t first = blocks.size();
        const bool shrinks = stage > 0 && block == 0;
        const double before = side;
        if (shrinks) side /= 2;
        if (bottleneck) {
          convolution(in, width, before, 1);
          convolution(width, width, side, 3, Cut::kOutputs);
          convolution(width, out, side, 1, Cut::kInputs);
        } else {
          convolution(in, width, side, 3, Cut::kOutputs);
          convolution(width, out, side, 3, Cut::kInputs);
        }
        if (block == 0 && in != out) convolution(in, out, side, 1);
        join(first);
        in = out;
      }
    }
    const double classes = real(job.model.classes);
    add("output", real(job.layout.micro_batch), classes, in, classes, false, Cut::kWhole);
  }
};

}  // namespace

std::vector<BlockCost> image_block_costs(const Job& job, const Cluster& cluster) {
  Builder builder{job, cluster};
  if (job.model.kind == ModelKind::kMlp) {
    builder.mlp();
  } else {
    builder.resnet();
  }
  return builder.blocks;
}

}  // namespace trireme
