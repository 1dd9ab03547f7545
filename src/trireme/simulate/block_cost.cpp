#include "trireme/simulate/block_cost.h"

#include <algorithm>

#include "trireme/simulate/collective_cost.h"
#include "trireme/simulate/kernel_cost.h"

namespace trireme {
namespace {

// [Note: Eager sharding]
// Published trainings with ZeRO-3 ran PyTorch's FSDP, the others Megatron or llm.c. FSDP does not overlap
// tensor-parallel collectives. Its GPTs ran eagerly under autocast, with a residual stream in float32 and unfused
// operators, which move more bytes than fused ones. Its Llamas were compiled.

/// Sizes of a transformer block on one rank.
struct Sizes {
  explicit Sizes(const Job& job)
      : model(job.model),
        layout(job.layout),
        e(bytes_of(layout.compute)),
        t(real(layout.tp)),
        tokens(real(layout.micro_batch) * real(model.seq) / real(layout.cp)),
        h(real(model.hidden)),
        kv(real(model.hidden / model.heads * model.key_heads())),
        ffn(real(model.ffn)),
        gates(model.kind == ModelKind::kLlama ? 2 : 1),
        norm_tokens(layout.sequence ? tokens / t : tokens) {}

  const ModelShape& model;
  const Layout& layout;
  double e;  ///< bytes per element
  double t, tokens, h, kv, ffn;
  double gates;        ///< matmuls that enter the feed-forward layer
  double norm_tokens;  ///< tokens that norms and residuals process
};

/// Accumulates the time of a block's operators.
class Adder {
 public:
  Adder(const Job& job, const Cluster& cluster, bool fp8)
      : device_(device_of(job, cluster)),
        type_(job.layout.compute),
        product_type_(fp8 ? NumberType::kFp8 : type_),
        fp8_(fp8),
        traffic_(job.model.kind == ModelKind::kGpt2 && behaviour_of(job, cluster).eager_sharding
                     ? cluster.stack.eager_traffic
                     : 1) {}

  /// Linear layer: [m, k] x [k, n].
  void linear(double m, double n, double k, double count = 1) {
    if (fp8_) {  // operands are scaled and stored again
      memory_forward((m * k + k * n) * count * (bytes_of(type_) + 1));
      memory_backward(m * n * count * (bytes_of(type_) + 2));
    }
    const double forward = product_seconds({m, n, k, count}, device_, product_type_);
    cost.forward += forward;
    products += forward;
    cost.backward_input += product_seconds({m, k, n, count}, device_, product_type_);
    cost.backward_weight += product_seconds({k, n, m, count}, device_, product_type_);
  }
  void product_forward(const Product& product) { cost.forward += product_seconds(product, device_, type_); }
  void product_backward(const Product& product) { cost.backward_input += product_seconds(product, device_, type_); }
  void memory_forward(double bytes) { cost.forward += memory_seconds(traffic_ * bytes, device_); }
  void memory_backward(double bytes) { cost.backward_input += memory_seconds(traffic_ * bytes, device_); }
  void attention(double flops) {
    cost.forward += attention_seconds(flops, device_, type_);
    cost.backward_input += attention_seconds(2.5 * flops, device_, type_);  // five matmuls, two in the forward pass
  }

  BlockCost cost;
  double products = 0;  ///< time of matmuls in cost.forward

 private:
  const Device device_;
  const NumberType type_, product_type_;
  const bool fp8_;
  const double traffic_;  ///< factor on the traffic of fused operators
};

/// Attention without its projections. Returns the forward seconds.
double add_attention(Adder& adder, const Sizes& z, const Job& job, bool flash, const Cluster& cluster) {
  const double before = adder.cost.forward;
  const double rows = real(z.model.seq) / real(z.layout.cp), columns = real(z.model.seq);
  const double heads = real(z.model.heads) / z.t, width = z.h / real(z.model.heads);
  const double batch = real(z.layout.micro_batch) * heads;
  if (flash) {
    adder.attention(2 * rows * columns * width * batch);  // 2 instead of 4: only the half below the diagonal
  } else {
    const double matrix = batch * rows * columns;
    adder.product_forward({rows, columns, width, batch});
    adder.memory_forward(matrix * 2 * z.e);        // softmax
    adder.memory_forward(matrix * (2 * z.e + 1));  // dropout and its mask
    adder.product_forward({rows, width, columns, batch});
    adder.product_backward({rows, columns, width, batch});
    adder.product_backward({columns, width, rows, batch});
    adder.memory_backward(matrix * (2 * z.e + 1));
    adder.memory_backward(matrix * 1.5 * z.e);  // only below the diagonal: two reads, one write
    adder.product_backward({rows, width, columns, batch});
    adder.product_backward({columns, width, rows, batch});
  }
  const double seconds = adder.cost.forward - before;
  if (job.layout.cp > 1) {  // keys and values are sent around the ring while each block is computed
    const double bytes = 2 * z.tokens * z.kv / z.t * z.e * real(job.layout.cp - 1);
    const double ring = message_seconds(bytes, job.layout.tp, cluster);
    const double forward = std::max(0.0, ring - seconds), backward = std::max(0.0, 2 * ring - 2.5 * seconds);
    adder.cost.forward += forward;
    adder.cost.backward_input += backward;
    adder.cost.exposed += forward + backward;
  }
  return seconds;
}

void add_elementwise(Adder& adder, const Sizes& z, bool fused, double gated_traffic) {
  const double vector = z.norm_tokens * z.h, inner = z.tokens * z.ffn / z.t * real(z.model.active_experts);
  for (int i = 0; i < 2; ++i) {
    if (fused) {
      adder.memory_forward(vector * 4 * z.e);  // residual and norm
    } else {
      adder.memory_forward(vector * 2 * z.e);        // norm
      adder.memory_forward(vector * (3 * z.e + 1));  // residual, with dropout
    }
    adder.memory_backward(vector * (fused ? 4 : 3) * z.e);
    if (!fused) adder.memory_backward(vector * (2 * z.e + 1));
  }
  if (z.model.kind == ModelKind::kLlama) {
    const double rotated = z.tokens * (z.h + z.kv) / z.t;
    adder.memory_forward(gated_traffic * rotated * 2 * z.e);
    adder.memory_backward(gated_traffic * rotated * 2 * z.e);
    adder.memory_forward(gated_traffic * inner * 3 * z.e);
    adder.memory_backward(gated_traffic * inner * 5 * z.e);
  } else {
    adder.memory_forward(inner * (fused ? 1 : 2) * z.e);  // fused: the preceding matmul writes both
    adder.memory_backward(inner * 3 * z.e);
    if (!fused) adder.memory_backward(z.tokens * (3 * z.h / z.t + z.ffn / z.t) * z.e);  // gradients of biases
  }
}

/// Tensor-parallel collectives: two in the forward pass, two in the backward pass.
void add_tensor_sums(Adder& adder, const Sizes& z, const Job& job, const Cluster& cluster) {
  if (z.layout.tp == 1) return;
  const bool overlaps = cluster.stack.overlaps_tensor && !behaviour_of(job, cluster).eager_sharding;
  const RankGroup group = group_on(cluster, z.layout.tp, 1);
  const double sum = collective_seconds(CollectiveKind::kAllReduce, z.tokens * z.h * z.e, group, cluster);
  double forward = 2 * sum, backward = 2 * sum;
  if (overlaps && z.layout.sequence) {
    // Gathers and scatters are pipelined in quarters with the matmuls that use them; the first quarter is exposed.
    forward = std::max(forward / 4, forward - 0.9 * adder.products);
    backward = std::max(backward / 4, backward - 0.9 * adder.products);
  } else if (overlaps) {
    // All-reduces overlap with the weight-gradient matmuls of the backward pass.
    backward = std::max(0.0, backward - adder.products);
  }
  adder.cost.forward += forward;
  adder.cost.backward_input += backward;
  adder.cost.exposed += forward + backward;
}

/// All-to-alls that send tokens to their experts and back, in both passes.
void add_expert_exchange(Adder& adder, const Sizes& z, const Cluster& cluster) {
  if (z.layout.ep == 1) return;
  const RankGroup group = group_on(cluster, z.layout.ep, z.layout.tp * z.layout.cp);
  const double bytes = z.norm_tokens * z.h * z.e * real(z.model.active_experts);
  const double seconds = 2 * collective_seconds(CollectiveKind::kAllToAll, bytes, group, cluster);
  adder.cost.forward += seconds;
  adder.cost.backward_input += seconds;
  adder.cost.exposed += 2 * seconds;
}

BlockCost transformer_block(const Job& job, const Cluster& cluster) {
  const Sizes z(job);
  const bool flash = behaviour_of(job, cluster).flash_attention;
  Adder adder(job, cluster, job.layout.fp8_products);
  const double experts = real(job.model.experts), used = real(job.model.active_experts);
  adder.linear(z.tokens, (z.h + 2 * z.kv) / z.t, z.h);
  const double attention = add_attention(adder, z, job, flash, cluster);
  adder.linear(z.tokens, z.h, z.h / z.t);
  const double local_experts = experts / real(job.layout.ep);
  const double expert_tokens = z.tokens * used / local_experts;
  adder.linear(expert_tokens, z.gates * z.ffn / z.t, z.h, local_experts);
  adder.linear(expert_tokens, z.h, z.ffn / z.t, local_experts);
  add_elementwise(adder, z, flash, cluster.stack.gated_traffic);
  const double computing = adder.cost.forward;
  add_tensor_sums(adder, z, job, cluster);
  add_expert_exchange(adder, z, cluster);

  BlockCost cost = adder.cost;
  cost.name = "block";
  const bool llama = job.model.kind == ModelKind::kLlama;
  const double bias = llama ? 0 : 1;
  const double norms = llama ? 2 * z.h : 4 * z.h + 2 * z.h;  // and the biases that tensor ranks replicate
  cost.expert_parameters = experts > 1 ? ((z.gates + 1) * z.h * z.ffn + bias * (z.ffn + z.h)) / z.t * local_experts : 0;
  const double dense_ffn =
      experts > 1 ? z.h * experts : ((z.gates + 1) * z.h * z.ffn + bias * z.ffn) / z.t;  // with experts: the router
  cost.parameters =
      (2 * z.h * z.h + 2 * z.h * z.kv + bias * (z.h + 2 * z.kv)) / z.t + norms + dense_ffn + cost.expert_parameters;

  cost.longest_tensor = z.h * std::max(z.h + 2 * z.kv, z.gates * z.ffn) / z.t;

  const double all_tokens = z.tokens * real(job.layout.cp);
  const double products = 2 * all_tokens * (2 * z.h * z.h + 2 * z.h * z.kv + (z.gates + 1) * z.h * z.ffn * used);
  const double attention_flops = 4 * all_tokens * real(job.model.seq) * z.h;
  cost.model_flops = 3 * (products + attention_flops);
  const bool own_fraction = llama && cluster.stack.gated_share > 0;
  const double fraction = own_fraction ? cluster.stack.gated_share : cluster.stack.activation_share;
  cost.activation_bytes = activation_bytes(job, flash) * fraction;
  if (job.layout.recompute.kind == RecomputeKind::kFull) {
    cost.backward_input += adder.cost.forward;
    cost.exposed += adder.cost.forward - computing;
    cost.repeated_flops = products + attention_flops;
    Job kept = job;
    kept.layout.recompute = RecomputeKind::kNone;
    cost.activation_bytes /= fraction;  // only the input, which every stack keeps
    cost.working_bytes = activation_bytes(kept, flash) * fraction;
  } else if (job.layout.recompute.kind == RecomputeKind::kSelective) {
    // Unfused stacks recompute attention. Fused stacks for Llama keep attention and every second matmul.
    cost.backward_input += flash && llama ? computing - attention - adder.products / 2 : attention;
    cost.repeated_flops = flash && llama ? products / 2 : attention_flops;
  }
  return cost;
}

BlockCost embedding(const Job& job, const Cluster& cluster) {
  const Sizes z(job);
  BlockCost cost;
  cost.name = "embedding";
  const Device device = device_of(job, cluster);
  cost.forward = memory_seconds(z.tokens * z.h * 2 * z.e, device);
  cost.backward_weight = memory_seconds(z.tokens * z.h * 3 * z.e, device);
  cost.parameters = cost.longest_tensor = real(job.model.vocab) * z.h / z.t;
  if (job.model.kind == ModelKind::kGpt2) cost.parameters += real(job.model.seq) * z.h;
  return cost;
}

BlockCost output(const Job& job, const Cluster& cluster) {
  const Sizes z(job);
  const bool flash = behaviour_of(job, cluster).flash_attention;
  Adder adder(job, cluster, false);
  const double vocab = real(job.model.vocab) / z.t, logits = z.tokens * vocab;
  adder.linear(z.tokens, vocab, z.h);
  adder.memory_forward(z.norm_tokens * z.h * 2 * z.e);
  adder.memory_backward(z.norm_tokens * z.h * 3 * z.e);
  // Softmax and loss in float32: one pass per operator, or fused.
  const double moved = logits * cluster.stack.loss_traffic;
  adder.memory_forward(moved * (flash ? 2 * z.e : z.e + 12));
  adder.memory_backward(moved * (flash ? z.e : z.e + 4));
  if (z.layout.tp > 1) {
    const double sum = collective_seconds(CollectiveKind::kAllReduce, z.tokens * z.h * z.e,
                                          group_on(cluster, z.layout.tp, 1), cluster);
    adder.cost.backward_input += sum;
    adder.cost.exposed += sum;
  }
  BlockCost cost = adder.cost;
  cost.name = "output";
  const double norm = job.model.kind == ModelKind::kLlama ? z.h : 2 * z.h;
  const bool own_weights = !job.model.tied || job.layout.pp > 1;
  cost.parameters = norm + (own_weights ? vocab * z.h : 0);
  cost.longest_tensor = vocab * z.h;
  cost.model_flops = 3 * 2 * z.tokens * real(job.layout.cp) * z.h * real(job.model.vocab);
  cost.activation_bytes = 2 * z.norm_tokens * z.h * z.e;
  const double of_logit = cluster.stack.logit_bytes;
  cost.working_bytes = logits * (of_logit > 0 ? of_logit : 4 + z.e);
  if (cluster.stack.loss_bytes > 0) cost.working_bytes = std::min(cost.working_bytes, cluster.stack.loss_bytes);
  cost.forward_working_bytes = cost.working_bytes;
  cost.working_bytes += vocab * z.h * cluster.stack.embedding_bytes / (own_weights ? 2 : 1);
  return cost;
}

std::vector<BlockCost> language_block_costs(const Job& job, const Cluster& cluster) {
  std::vector<BlockCost> blocks = {embedding(job, cluster)};
  blocks.insert(blocks.end(), static_cast<size_t>(job.model.layers), transformer_block(job, cluster));
  if (!job.layout.recompute.ranges.empty()) {
    Job again = job;
    again.layout.recompute = RecomputeKind::kFull;
    const BlockCost repeated = transformer_block(again, cluster);
    for (const auto& [first, last] : job.layout.recompute.ranges) {
      for (int64_t layer = first; layer <= std::min(last, job.model.layers - 1); ++layer) {
        blocks[static_cast<size_t>(layer) + 1] = repeated;
      }
    }
  }
  blocks.push_back(output(job, cluster));
  return blocks;
}

}  // namespace

double activation_bytes(const Job& job, bool flash) {
  const Sizes z(job);
  const Layout& layout = job.layout;
  const double vector = z.tokens * z.h;
  if (layout.recompute.kind == RecomputeKind::kFull) return vector * z.e / (layout.sequence ? z.t : 1);
  const bool llama = job.model.kind == ModelKind::kLlama;
  const double masks = llama ? 0 : 2;
  const double inner = z.ffn / z.h * real(job.model.active_experts);
  // `whole`: inputs of norms and of the matmuls after them. `cut`: what tensor ranks shard: queries, keys, values,
  // attention, ffn.
  double whole = 4 * z.e + masks;
  double cut = llama ? z.e * (2 + 2 * z.kv / z.h + 3 * inner) : z.e * (4 + 2 * inner);
  if (llama && flash && layout.recompute.kind == RecomputeKind::kSelective) {
    whole /= 2;
    cut = z.e * (2 + 2 * z.kv / z.h) + z.e * 1.5 * inner;
  }
  if (!flash && layout.recompute.kind == RecomputeKind::kNone) {
    cut += (2 * z.e + 1) * real(job.model.heads) * real(job.model.seq) / z.h;
  }
  return vector * (whole / (layout.sequence ? z.t : 1) + cut / z.t);
}

double message_bytes(const Job& job) {
  if (!job.model.is_language()) {
    return real(job.layout.micro_batch * job.model.hidden) * bytes_of(job.layout.compute);
  }
  const Sizes z(job);
  // Each tensor rank sends its shard; the shards are gathered inside the receiving host.
  return z.tokens * z.h * z.e / z.t;
}

double total_parameters(const ModelShape& model) {
  const Job job{.model = model, .layout = {}};
  Cluster none;
  none.device.peak_flops.fill(1);
  none.device.memory_bandwidth = 1;
  double sum = 0;
  for (const BlockCost& block : block_costs(job, none)) sum += block.parameters;
  return sum;
}

Device device_of(const Job& job, const Cluster& cluster) {
  Device device = cluster.device;
  if (job.layout.tp > 1) device.kernel_us += cluster.stack.tensor_us;
  return device;
}

std::vector<BlockCost> block_costs(const Job& job, const Cluster& cluster) {
  std::vector<BlockCost> blocks =
      job.model.is_language() ? language_block_costs(job, cluster) : image_block_costs(job, cluster);
  for (BlockCost& block : blocks) {
    const double bytes = block.parameters * cluster.stack.accumulation_bytes;
    if (bytes > 0) block.backward_weight += bytes / cluster.device.memory_bandwidth;
  }
  return blocks;
}

}  // namespace trireme
