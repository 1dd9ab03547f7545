// Convolution, BatchNorm, GroupNorm and pooling: images are sharded by samples and by channels.
#include "trireme/layout/rules.h"

namespace trireme {
namespace {

enum ImageLabel : int { kImage, kChannelIn, kChannelOut };

/// [samples, channels, …], or [channels, …] without samples.
Labels image(size_t num_dims, int channels, bool samples = true) {
  Labels labels(num_dims, kFixed);
  if (samples) labels[0] = kImage;
  labels[1] = channels;
  return labels;
}
Labels kernel(size_t num_dims, int first, int second) {
  Labels labels(num_dims, kFixed);
  labels[0] = first;
  labels[1] = second;
  return labels;
}

/// The arguments of a convolution: (input, weight, bias, stride, padding, dilation, transposed, …, groups).
struct Convolution {
  size_t num_dims;
  int in = kChannelIn, out = kChannelOut;
  Labels weight;
  Convolution(const OpCall& call, size_t input, size_t transposed) : num_dims(call.sizes(input).size()) {
    if (call.integer(transposed + 2, 1) != 1) in = out = kFixed;
    weight = call.flag(transposed) ? kernel(num_dims, in, out) : kernel(num_dims, out, in);
  }
};

OpRule convolution(const OpCall& call) {
  const Convolution c(call, 0, 6);
  if (call.sizes(1).size() != c.num_dims) return {};
  OpRule rule;
  rule.inputs = {image(c.num_dims, c.in), c.weight};
  if (call.index(2) >= 0) {
    rule.inputs.push_back({c.out});
    rule.addends = {2};
    rule.linear = {{0, 2}, {1, 2}};
  } else {
    rule.linear = {{0}, {1}};
  }
  rule.outputs = {image(c.num_dims, c.out)};
  if (c.in != kFixed) rule.reduced = {c.in};
  rule.never_empty = true;
  return rule;
}

/// (grad, input, weight, bias sizes, stride, padding, dilation, transposed, output padding, groups, mask)
OpRule convolution_backward(const OpCall& call) {
  const Convolution c(call, 1, 7);
  if (call.sizes(2).size() != c.num_dims) return {};
  OpRule rule;
  rule.inputs = {image(c.num_dims, c.out), image(c.num_dims, c.in), c.weight};
  rule.outputs = {image(c.num_dims, c.in), c.weight, {c.out}};
  rule.reduced = {kImage};
  if (c.in != kFixed) {
    rule.reduced.push_back(c.out);
    rule.whole = {{c.in, 2}};  // the bias gradient does not use the inputs
  }
  rule.never_empty = true;
  return rule;
}

/// Statistics are over the samples, so only channels may be sharded; both may, if the statistics are given. `first`:
/// number of tensors with the sizes of the image; the rest are [channels].
OpRule batch_norm_of(const OpCall& call, size_t first, bool training, std::vector<Labels> outputs) {
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), Labels{kChannelIn});
  for (size_t i = 0; i < first; ++i) rule.inputs[i] = image(call.tensors[0].size(), kChannelIn, !training);
  for (size_t i = first; i < call.tensors.size(); ++i) {
    if (call.tensors[i] == std::vector<int64_t>{0}) rule.inputs[i] = {kFixed};  // statistics that were not saved
  }
  rule.outputs = std::move(outputs);
  rule.never_empty = true;
  return rule;
}

/// (input, weight, bias, mean, variance, training, momentum, eps) → output, saved mean, saved inverse deviation
OpRule batch_norm(const OpCall& call) {
  const bool training = call.flag(5);
  const Labels saved = {training ? kChannelIn : kFixed};  // empty if the statistics are given
  OpRule rule = batch_norm_of(call, 1, training, {image(call.tensors[0].size(), kChannelIn, !training), saved, saved});
  if (!training) rule.whole = {{kChannelIn, 1}, {kChannelIn, 2}, {kImage, 1}, {kImage, 2}};
  return rule;
}

/// (grad, input, weight, mean, variance, saved mean, saved inverse deviation, train, eps, mask)
OpRule batch_norm_backward(const OpCall& call) {
  const bool training = call.flag(7);
  OpRule rule = batch_norm_of(call, 2, training,
                              {image(call.tensors[0].size(), kChannelIn, !training), {kChannelIn}, {kChannelIn}});
  if (!training) rule.reduced = {kImage};
  return rule;
}

/// (input, weight, bias, samples, channels, pixels, groups, eps) → output, mean, inverse deviation
OpRule group_norm(const OpCall& call) {
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), Labels{kFixed});
  rule.inputs[0] = image(call.sizes(0).size(), kFixed);
  rule.outputs = {rule.inputs[0], {kImage, kFixed}, {kImage, kFixed}};
  rule.counts = {{3, kImage}};
  rule.never_empty = true;
  return rule;
}

/// (grad, input, mean, inverse deviation, weight, samples, channels, pixels, groups, mask)
OpRule group_norm_backward(const OpCall& call) {
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), Labels{kFixed});
  rule.inputs[0] = rule.inputs[1] = image(call.sizes(0).size(), kFixed);
  rule.inputs[2] = rule.inputs[3] = {kImage, kFixed};
  rule.outputs = {rule.inputs[0], {kFixed}, {kFixed}};
  rule.reduced = {kImage};
  rule.counts = {{5, kImage}};
  rule.never_empty = true;
  return rule;
}

/// The last two dimensions are pooled; the others may be sharded.
OpRule pooled(const OpCall& call, size_t num_outputs) {
  const Labels labels = counting_labels(call.sizes(0).size(), {-1, -2});
  OpRule rule;
  rule.inputs.assign(call.tensors.size(), labels);
  rule.outputs.assign(num_outputs, labels);
  rule.never_empty = true;
  return rule;
}
OpRule pool(const OpCall& call) { return pooled(call, 1); }
OpRule pool_with_indices(const OpCall& call) { return pooled(call, 2); }
OpRule linear_pool(const OpCall& call) {
  OpRule rule = pooled(call, 1);
  rule.linear = {{0}};
  return rule;
}
/// (grad, output size, input size)
OpRule upsample_backward(const OpCall& call) {
  OpRule rule = linear_pool(call);
  rule.sizes_argument = 2;
  return rule;
}

}  // namespace

void add_image_rules(RuleTable& table) {
  table.add("convolution", convolution);
  table.add("convolution_backward", convolution_backward);
  table.add("native_batch_norm", batch_norm);
  table.add("native_batch_norm_backward", batch_norm_backward);
  table.add("native_group_norm", group_norm);
  table.add("native_group_norm_backward", group_norm_backward);
  table.add("max_pool2d_with_indices", pool_with_indices);
  table.add("max_pool2d_with_indices_backward", pool);
  table.add("avg_pool2d _adaptive_avg_pool2d upsample_nearest2d", linear_pool);
  table.add("avg_pool2d_backward _adaptive_avg_pool2d_backward", pool);
  table.add("upsample_nearest2d_backward", upsample_backward);
}

}  // namespace trireme
