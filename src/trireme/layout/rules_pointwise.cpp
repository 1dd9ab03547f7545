// Elementwise operators, with broadcasting.
#include <algorithm>

#include "trireme/layout/rules.h"

namespace trireme {
namespace {

OpRule pointwise(const OpCall& call, size_t num_outputs = 1) {
  OpRule rule;
  Labels output;
  rule.inputs = broadcast_labels(call.tensors, &output);
  rule.outputs.assign(num_outputs, output);
  return rule;
}

OpRule plain(const OpCall& call) { return pointwise(call); }

/// f(a + b) = f(a) + f(b) in the first tensor.
OpRule linear(const OpCall& call) {
  OpRule rule = pointwise(call);
  rule.linear = {{0}};
  return rule;
}

OpRule sum_of_two(const OpCall& call) {
  OpRule rule = pointwise(call);
  if (call.tensors.size() == 2) rule.linear = {{0, 1}};
  return rule;
}

OpRule product_of_two(const OpCall& call) {
  OpRule rule = pointwise(call);
  if (call.tensors.size() == 2) rule.linear = {{0}, {1}};
  if (call.tensors.size() == 1) rule.linear = {{0}};
  return rule;
}

/// Sets some elements to a value; in a partial sum, only one rank may add it.
OpRule masked_fill(const OpCall& call) {
  OpRule rule = linear(call);
  rule.linear_execution = Execution::kOnce;
  return rule;
}

/// The old values do not matter, but filling a partial sum on each rank would add the value many times.
OpRule filled(const OpCall& call) { return pointwise(call); }
/// Zeros on every rank are a valid partial sum.
OpRule zeroed(const OpCall& call) { return linear(call); }

/// Uses the sizes of another tensor, not its values.
OpRule made_alike(const OpCall& call) {
  OpRule rule = pointwise(call);
  rule.unread = {0};
  return rule;
}

/// (self, dtype, …): rounding to integers is not linear.
OpRule converted(const OpCall& call) {
  constexpr int64_t kHalf = 5, kComplexDouble = 10, kBFloat16 = 15;
  OpRule rule = pointwise(call);
  const int64_t type = call.integer(1, kHalf);
  if ((type >= kHalf && type <= kComplexDouble) || type == kBFloat16) rule.linear = {{0}};
  return rule;
}

/// Returns output and buffer (which is empty on a GPU).
OpRule log_sigmoid(const OpCall& call) { return pointwise(call, 2); }
OpRule log_sigmoid_backward(const OpCall& call) {
  OpRule rule = pointwise(call);
  if (call.sizes(2) != call.sizes(1)) rule.inputs[2] = Labels(call.sizes(2).size(), kFixed);
  return rule;
}

/// (grad, input, weight) → gradients of both, of the same sizes
OpRule prelu_backward(const OpCall& call) { return pointwise(call, 2); }

OpRule random(const OpCall& call) {
  OpRule rule = pointwise(call);
  rule.execution = Execution::kRandom;
  return rule;
}

OpRule dropout(const OpCall& call) {
  OpRule rule = pointwise(call, 2);
  rule.execution = Execution::kRandom;
  return rule;
}

}  // namespace

void add_pointwise_rules(RuleTable& table) {
  table.add(
      "abs acos acosh angle asin asinh atan atanh bitwise_not ceil cos cosh digamma elu erf erfc erfinv exp exp2 expm1 "
      "floor frac gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 "
      "logical_not logit mish nan_to_num reciprocal relu round rsqrt sgn sigmoid sign signbit "
      "silu sin sinc sinh softplus softshrink sqrt tan tanh threshold trunc isnan isinf "
      "clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor "
      "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar fmod.Scalar fmod.Tensor remainder.Scalar remainder.Tensor "
      "remainder.Scalar_Tensor atan2 copysign.Tensor floor_divide floor_divide.Scalar div.Tensor_mode div.Scalar_mode "
      "maximum minimum fmax fmin hypot xlogy.Tensor add.Scalar sub.Scalar rsub.Scalar rsub.Tensor "
      "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor "
      "ge.Scalar logical_and logical_or logical_xor bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor "
      "bitwise_or.Scalar bitwise_xor.Tensor bitwise_xor.Scalar where.self masked_fill.Tensor "
      "addcmul addcdiv lerp.Tensor lerp.Scalar "
      "gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward elu_backward hardtanh_backward "
      "hardsigmoid_backward hardswish_backward leaky_relu_backward softplus_backward "
      "mish_backward logit_backward hardshrink_backward softshrink_backward "
      "celu deg2rad rad2deg logaddexp logaddexp2 heaviside sign signbit isposinf isneginf special_entr special_i0e "
      "special_i1 special_i1e special_erfcx special_log_ndtr special_ndtri special_xlog1py i0 ldexp.Tensor nextafter "
      "gcd lcm "
      "bitwise_left_shift.Tensor bitwise_right_shift.Tensor isin.Tensor_Scalar _prelu_kernel native_dropout_backward "
      "fmod.Scalar xlogy.Scalar_Other xlogy.Scalar_Self igamma igammac polygamma",
      plain);
  table.add(
      "abs_ ceil_ clamp_ clamp_max_ clamp_min_ clamp_.Tensor clamp_max_.Tensor clamp_min_.Tensor cos_ exp_ floor_ "
      "gelu_ hardtanh_ leaky_relu_ log_ reciprocal_ relu_ "
      "round_ rsqrt_ sigmoid_ sign_ silu_ sin_ sqrt_ tanh_ threshold_ trunc_ add_.Scalar sub_.Scalar "
      "pow_.Scalar pow_.Tensor div_.Tensor_mode floor_divide_.Scalar remainder_.Scalar remainder_.Tensor "
      "masked_fill_.Tensor addcmul_ addcdiv_ lerp_.Tensor lerp_.Scalar logical_and_ logical_or_ "
      "bitwise_and_.Tensor bitwise_or_.Tensor eq_.Tensor ne_.Tensor gt_.Tensor lt_.Tensor ge_.Tensor le_.Tensor "
      "elu_ celu_ hardswish_ hardsigmoid_ mish_ erf_ expm1_ log1p_ log2_ log10_ tan_ sinh_ cosh_ frac_ nan_to_num_ "
      "logical_not_ "
      "fmod_.Scalar atan_ xlogy_.Tensor",
      plain);
  table.add("ones_like zeros_like full_like empty_like", made_alike);
  table.add("masked_fill.Scalar masked_fill_.Scalar", masked_fill);
  table.add("_to_copy", converted);
  table.add("log_sigmoid_forward", log_sigmoid);
  table.add("log_sigmoid_backward", log_sigmoid_backward);
  table.add("_prelu_kernel_backward", prelu_backward);
  table.add("clone detach alias neg neg_ mul.Scalar div.Scalar lift lift_fresh lift_fresh_copy", linear);
  table.add("add.Tensor sub.Tensor add_.Tensor sub_.Tensor", sum_of_two);
  table.add("mul.Tensor mul_.Tensor mul_.Scalar", product_of_two);
  table.add("div.Tensor div_.Tensor div_.Scalar", linear);
  table.add("fill_.Scalar fill_.Tensor fill.Scalar fill.Tensor", filled);
  table.add("zero_", zeroed);
  table.add("copy_", plain);
  table.add("bernoulli_.float normal_ uniform_ exponential_ random_ random_.from random_.to rand_like randn_like",
            random);
  table.add("native_dropout", dropout);
}

}  // namespace trireme
