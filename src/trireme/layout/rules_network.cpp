// Operators of networks: norms, softmax, losses, embedding, attention. Images are in rules_image.cpp.
#include <algorithm>

#include "trireme/layout/rules.h"

namespace trireme {
namespace {

/// Dimensions before the normalized ones may be sharded; the normalized ones stay whole.
struct NormLabels {
  Labels input, statistics;
  std::vector<int> outside;
  NormLabels(size_t num_dims, size_t normalized) {
    for (size_t d = 0; d < num_dims; ++d) {
      const bool inside = d >= num_dims - normalized;
      input.push_back(inside ? kFixed : static_cast<int>(d));
      statistics.push_back(input.back());
      if (!inside) outside.push_back(static_cast<int>(d));
    }
  }
};

/// (input, normalized_shape, weight, bias, eps) → output, mean, rstd
OpRule layer_norm(const OpCall& call) {
  const NormLabels norm(call.sizes(0).size(), call.integers(1).size());
  const Labels parameter(call.integers(1).size(), kFixed);
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), parameter);
  rule.inputs[0] = norm.input;
  rule.outputs = {norm.input, norm.statistics, norm.statistics};
  return rule;
}

/// (grad, input, normalized_shape, mean, rstd, weight, bias, mask) → gradients of input, weight, bias
OpRule layer_norm_backward(const OpCall& call) {
  const NormLabels norm(call.sizes(1).size(), call.integers(2).size());
  const Labels parameter(call.integers(2).size(), kFixed);
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), parameter);
  rule.inputs[0] = rule.inputs[1] = norm.input;
  rule.inputs[2] = rule.inputs[3] = norm.statistics;
  rule.outputs = {norm.input, parameter, parameter};
  rule.reduced = norm.outside;
  return rule;
}

/// (input, normalized_shape, weight, eps) → output, rstd
OpRule rms_norm(const OpCall& call) {
  OpRule rule = layer_norm(call);
  rule.outputs.resize(2);
  return rule;
}

/// (grad, input, normalized_shape, rstd, weight, mask) → gradients of input, weight
OpRule rms_norm_backward(const OpCall& call) {
  const NormLabels norm(call.sizes(1).size(), call.integers(2).size());
  const Labels parameter(call.integers(2).size(), kFixed);
  OpRule rule;
  rule.inputs = {norm.input, norm.input, norm.statistics};
  rule.inputs.resize(call.tensors.size(), parameter);
  rule.outputs = {norm.input, parameter};
  rule.reduced = norm.outside;
  return rule;
}

OpRule softmax_of(const OpCall& call, size_t dim_argument) {
  OpRule rule;
  const Labels all = counting_labels(call.tensors[0].size());
  rule.inputs.assign(call.tensors.size(), all);
  rule.outputs = {all};
  rule.special = {{wrap_dim(call.integer(dim_argument, 0), all.size()), Execution::kSoftmax}};
  return rule;
}
OpRule softmax(const OpCall& call) { return softmax_of(call, 1); }
OpRule softmax_backward(const OpCall& call) { return softmax_of(call, 2); }

enum LossLabel : int { kBatch, kClass };
constexpr int64_t kNoReduction = 0, kMeanReduction = 1;

/// (input, target, weight, reduction, ignored) → loss, total weight. Input [batch, classes] or [classes].
OpRule negative_likelihood(const OpCall& call) {
  const bool one = call.sizes(0).size() == 1;
  const Labels target = one ? Labels{} : Labels{kBatch};
  OpRule rule;
  rule.inputs = {one ? Labels{kClass} : Labels{kBatch, kClass}, target};
  rule.inputs.resize(call.tensors.size(), Labels{kFixed});
  const bool whole = call.integer(3, kMeanReduction) != kNoReduction;
  rule.outputs = {whole ? Labels{} : target, Labels{}};
  rule.reduced = {kBatch, kClass};
  rule.special = {{kBatch, Execution::kNegativeLikelihood}, {kClass, Execution::kNegativeLikelihood}};
  return rule;
}

/// (grad, input, target, weight, reduction, ignored, total weight) → gradient of the input
OpRule negative_likelihood_backward(const OpCall& call) {
  const bool one = call.sizes(1).size() == 1;
  const Labels target = one ? Labels{} : Labels{kBatch}, input = one ? Labels{kClass} : Labels{kBatch, kClass};
  OpRule rule;
  rule.inputs = {call.sizes(0).empty() ? Labels{} : target, input, target};
  rule.inputs.resize(call.tensors.size(), Labels{kFixed});
  rule.inputs.back() = {};
  rule.outputs = {input};
  rule.special = {{kClass, Execution::kNegativeLikelihood}};
  return rule;
}

/// Elementwise losses of pairs: (input, target, …, reduction).
OpRule paired(const OpCall& call, size_t reduction_argument, size_t num_gradients) {
  const int64_t reduction = call.integer(reduction_argument, kMeanReduction);
  const std::vector<int64_t>& sizes = call.tensors[num_gradients];
  OpRule rule;
  Labels all;
  const std::vector<std::vector<int64_t>> pairs(call.tensors.begin() + static_cast<std::ptrdiff_t>(num_gradients),
                                                call.tensors.end());
  rule.inputs = broadcast_labels(pairs, &all);
  if (all.size() != sizes.size() || call.tensors[num_gradients] != call.tensors[num_gradients + 1]) return {};
  const bool is_mean = reduction == kMeanReduction;
  if (num_gradients == 1) rule.inputs.insert(rule.inputs.begin(), call.tensors[0].empty() ? Labels{} : all);
  const bool whole = num_gradients == 0 && reduction != kNoReduction;
  rule.outputs = {whole ? Labels{} : all};
  if (whole) rule.reduced = all;
  for (const int label : all) {
    if (is_mean) rule.special.emplace_back(label, Execution::kMean);
  }
  return rule;
}
OpRule paired_loss(const OpCall& call) { return paired(call, 2, 0); }
OpRule paired_loss_backward(const OpCall& call) { return paired(call, 3, 1); }
OpRule binary_loss(const OpCall& call) { return paired(call, 3, 0); }
OpRule binary_loss_with_logits(const OpCall& call) { return paired(call, 4, 0); }
OpRule binary_loss_backward(const OpCall& call) { return paired(call, 4, 1); }

enum EmbeddingLabel : int { kRow = 100, kHidden };

/// (weight [rows, hidden], indices)
OpRule embedding(const OpCall& call) {
  Labels indices = counting_labels(call.sizes(1).size());
  OpRule rule;
  rule.inputs = {{kRow, kHidden}, indices};
  indices.push_back(kHidden);
  rule.outputs = {indices};
  rule.reduced = {kRow};
  rule.linear = {{0}};
  rule.special = {{kRow, Execution::kEmbedding}};
  return rule;
}

/// (grad, indices, rows, padding row, scale by frequency)
OpRule embedding_backward(const OpCall& call) {
  Labels indices = counting_labels(call.sizes(1).size());
  OpRule rule;
  if (!call.flag(4)) rule.reduced = indices;
  if (call.flag(4)) std::fill(indices.begin(), indices.end(), kFixed);
  rule.inputs = {indices, indices};
  rule.inputs[0].push_back(kHidden);
  rule.outputs = {{kFixed, kHidden}};
  rule.linear = {{0}};
  return rule;
}

enum AttentionLabel : int { kSample, kHead };
const Labels kSequences = {kSample, kHead, kFixed, kFixed};

/// Labels of a mask that is broadcast to [batch, heads, queries, keys].
Labels mask_labels(const std::vector<int64_t>& sizes) {
  Labels labels(sizes.size(), kFixed);
  for (size_t d = 0; d + 2 < sizes.size(); ++d) {
    if (sizes[d] != 1) labels[d] = d + 3 == sizes.size() ? kHead : kSample;
  }
  return labels;
}

bool drops(const OpCall& call, size_t argument) {
  const double* p = argument < call.arguments.size() ? std::get_if<double>(&call.arguments[argument]) : nullptr;
  return p != nullptr && *p > 0;  // each rank would draw its own numbers
}

OpRule attention(const OpCall& call, std::optional<size_t> mask, size_t dropout, std::vector<Labels> outputs) {
  if (call.sizes(0).size() != 4 || drops(call, dropout)) return {};
  OpRule rule;
  rule.inputs = {kSequences, kSequences, kSequences};
  if (mask && call.index(*mask) >= 0) rule.inputs.push_back(mask_labels(call.sizes(*mask)));
  rule.outputs = std::move(outputs);
  rule.proportional = kHead;  // several queries may share a key
  rule.like.assign(rule.outputs.size(), 0);
  for (size_t i = 0; i < rule.outputs.size(); ++i) {  // dropout seeds, and lengths that are not given
    if (rule.outputs[i].empty())
      rule.whole.insert(rule.whole.end(), {{kSample, static_cast<int>(i)}, {kHead, static_cast<int>(i)}});
  }
  rule.never_empty = true;
  return rule;
}
const Labels kOfQueries = {kSample, kHead, kFixed};

/// (query, key, value, dropout, causal, mask) → output, log-sum-exp
OpRule attention_cpu(const OpCall& call) { return attention(call, 5, 3, {kSequences, kOfQueries}); }

OpRule attention_flash(const OpCall& call) {
  return attention(call, std::nullopt, 3, {kSequences, kOfQueries, {}, {}, {}, {}, {}});
}
OpRule attention_efficient(const OpCall& call) { return attention(call, 3, 5, {kSequences, kOfQueries, {}, {}}); }
OpRule attention_cudnn(const OpCall& call) {
  return attention(call, 3, 5, {kSequences, kSequences, {}, {}, {}, {}, {}});
}

OpRule attention_backward(const OpCall& call, std::optional<size_t> mask, size_t dropout) {
  if (call.sizes(1).size() != 4 || drops(call, dropout)) return {};
  OpRule rule;
  for (const std::vector<int64_t>& sizes : call.tensors) {
    const bool by_heads = sizes.size() >= 3;  // seeds and offsets are scalars; lists of lengths are empty
    rule.inputs.push_back(
        by_heads ? Labels(kSequences.begin(), kSequences.begin() + static_cast<std::ptrdiff_t>(sizes.size()))
                 : Labels(sizes.size(), kFixed));
  }
  if (mask && call.index(*mask) >= 0) {
    rule.inputs[static_cast<size_t>(call.index(*mask))] = mask_labels(call.sizes(*mask));
  }
  rule.outputs = {kSequences, kSequences, kSequences};
  rule.proportional = kHead;
  rule.like = {1, 2, 3};
  rule.never_empty = true;
  return rule;
}
/// (grad, query, key, value, output, log-sum-exp, dropout, causal, mask)
OpRule attention_cpu_backward(const OpCall& call) { return attention_backward(call, 8, 6); }
OpRule attention_flash_backward(const OpCall& call) { return attention_backward(call, std::nullopt, 10); }
OpRule attention_cudnn_backward(const OpCall& call) { return attention_backward(call, 8, 13); }
/// Here the bias also has a gradient.
OpRule attention_efficient_backward(const OpCall& call) {
  OpRule rule = attention_backward(call, 4, 9);
  if (rule.outputs.empty()) return rule;
  rule.outputs.push_back(call.index(4) >= 0 ? mask_labels(call.sizes(4)) : Labels{});
  rule.like.push_back(1);
  if (call.index(4) < 0) {
    rule.whole = {{kSample, 3}, {kHead, 3}};
  } else {
    rule.reduced = {kSample, kHead};
  }
  return rule;
}

}  // namespace

void add_network_rules(RuleTable& table) {
  table.add("native_layer_norm", layer_norm);
  table.add("native_layer_norm_backward", layer_norm_backward);
  table.add("_fused_rms_norm", rms_norm);
  table.add("_fused_rms_norm_backward", rms_norm_backward);
  table.add("_softmax _log_softmax", softmax);
  table.add("_softmax_backward_data _log_softmax_backward_data", softmax_backward);
  table.add("nll_loss_forward", negative_likelihood);
  table.add("nll_loss_backward", negative_likelihood_backward);
  table.add("mse_loss smooth_l1_loss huber_loss", paired_loss);
  table.add("mse_loss_backward smooth_l1_loss_backward huber_loss_backward", paired_loss_backward);
  table.add("binary_cross_entropy", binary_loss);
  table.add("binary_cross_entropy_with_logits", binary_loss_with_logits);
  table.add("binary_cross_entropy_backward", binary_loss_backward);
  table.add("embedding", embedding);
  table.add("embedding_dense_backward", embedding_backward);
  table.add("_scaled_dot_product_flash_attention_for_cpu", attention_cpu);
  table.add("_scaled_dot_product_flash_attention_for_cpu_backward", attention_cpu_backward);
  table.add("_scaled_dot_product_flash_attention", attention_flash);
  table.add("_scaled_dot_product_flash_attention_backward", attention_flash_backward);
  table.add("_scaled_dot_product_efficient_attention", attention_efficient);
  table.add("_scaled_dot_product_efficient_attention_backward", attention_efficient_backward);
  table.add("_scaled_dot_product_cudnn_attention", attention_cudnn);
  table.add("_scaled_dot_product_cudnn_attention_backward", attention_cudnn_backward);
}

}  // namespace trireme
