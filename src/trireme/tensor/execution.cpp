#include "trireme/tensor/execution.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/tensor/redistribute.h"

namespace trireme {
namespace {

using torch::jit::Stack;

c10::IValue& argument(Stack& stack, const LocalCall& call, size_t i) {
  return stack[stack.size() - call.info.num_arguments + i];
}

template <typename... Results>
void give(Stack& stack, const LocalCall& call, Results... results) {
  torch::jit::drop(stack, call.info.num_arguments);
  (stack.emplace_back(std::move(results)), ...);
}

/// The one axis, if any, that shards a dimension of a tensor of the call; -1: none.
int axis_of_cut(const LocalCall& call, size_t tensor, int64_t dim) {
  const auto& placements = call.decision.inputs[tensor]->placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_shard(static_cast<int>(dim))) return static_cast<int>(axis);
  }
  return -1;
}

/// The range of a dimension of a tensor of the call that this rank holds.
Piece own_piece(const LocalCall& call, size_t tensor, int64_t dim, int64_t extent) {
  const int axis = axis_of_cut(call, tensor, dim);
  if (axis < 0) return {0, extent};
  const auto at = static_cast<size_t>(axis);
  return pieces(call.decision.inputs[tensor]->placements[at], extent, call.mesh.axis_sizes()[at],
                call.mesh.coordinates()[at])[0];
}

void reduce(const LocalCall& call, at::Tensor& values, int axis, ReduceOp op = ReduceOp::kSum) {
  if (axis < 0) return;
  values = values.contiguous();
  reduce_over_axis(values, call.mesh, axis, op);
}

/// Number of elements of `tensor` along the dimensions of an int[] argument; none or empty: all.
int64_t count_along(const at::Tensor& tensor, const c10::IValue& dims) {
  if (!dims.isIntList() || dims.toListRef().empty()) return tensor.numel();
  int64_t count = 1;
  for (const c10::IValue& dim : dims.toListRef()) count *= tensor.size(dim.toInt());
  return count;
}

void mean(const LocalCall& call, Stack& stack) {
  // The tensor is argument 0; in the backward of a loss, whose gradient comes first, argument 1.
  const size_t at = call.given[0].toTensor().dim() == 0 && call.given[1].isTensor() ? 1 : 0;
  const c10::IValue dims = call.given[1].isIntList() ? call.given[1] : c10::IValue();
  const int64_t local = count_along(argument(stack, call, at).toTensor(), dims);
  const int64_t all = count_along(call.given[at].toTensor(), dims);
  call.op.callBoxed(stack);
  at::Tensor result = stack.back().toTensor();
  if (local == 0) {
    result.zero_();  // the mean of no elements is NaN
  } else {
    result.mul_(static_cast<double>(local) / static_cast<double>(all));
  }
}

void vector_norm(const LocalCall& call, Stack& stack) {
  const double order = call.given[1].isNone() ? 2 : call.given[1].toScalar().toDouble();
  const at::Tensor input = argument(stack, call, 0).toTensor();
  call.op.callBoxed(stack);
  at::Tensor norm = stack.back().toTensor();
  const bool largest = std::isinf(order);
  const bool powers = !largest && order != 0;
  at::Tensor part = powers ? norm.pow(order) : norm.clone();
  if (input.numel() == 0) part.zero_();
  const auto& placements = call.decision.inputs[0]->placements;
  // Remaining dimensions stay sharded in the result; reduced ones are combined over ranks.
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (!placements[axis].is_shard() || call.decision.outputs[0].layout->placements[axis].is_shard()) continue;
    part = part.contiguous();
    reduce_over_axis(part, call.mesh, static_cast<int>(axis),
                     largest ? (order > 0 ? ReduceOp::kMax : ReduceOp::kMin) : ReduceOp::kSum);
  }
  stack.back() = powers ? part.pow(1 / order) : part;
}

void embedding(const LocalCall& call, Stack& stack) {
  const at::Tensor rows = argument(stack, call, 0).toTensor(), indices = argument(stack, call, 1).toTensor();
  const Piece own = own_piece(call, 0, 0, call.given[0].toTensor().size(0));
  at::Tensor result;
  if (own.length == 0) {
    auto sizes = indices.sizes().vec();
    sizes.push_back(rows.size(1));
    result = at::zeros(sizes, rows.options());
  } else {
    const at::Tensor here = indices - own.first;
    const at::Tensor outside = here.lt(0).logical_or_(here.ge(own.length));
    result = at::embedding(rows, here.clamp(0, own.length - 1));
    result.masked_fill_(outside.unsqueeze(-1), 0);
  }
  give(stack, call, result);
}

void softmax(const LocalCall& call, Stack& stack) {
  const at::Tensor x = argument(stack, call, 0).toTensor();
  const std::string& name = call.info.name;
  const bool logarithm = name.starts_with("aten::_log");
  if (name.ends_with("_backward_data")) {
    const at::Tensor output = argument(stack, call, 1).toTensor();
    const int64_t dim = at::maybe_wrap_dim(argument(stack, call, 2).toInt(), x.dim());
    const auto type = argument(stack, call, 3).toScalarType();
    at::Tensor sum = logarithm ? at::sum(x, dim, true) : at::sum(x * output, dim, true);
    reduce(call, sum, axis_of_cut(call, 0, dim));
    give(stack, call, (logarithm ? x - output.exp() * sum : output * (x - sum)).to(type));
    return;
  }
  const int64_t dim = at::maybe_wrap_dim(argument(stack, call, 1).toInt(), x.dim());
  const int axis = axis_of_cut(call, 0, dim);
  const at::Tensor wide = argument(stack, call, 2).toBool() ? x.to(at::kFloat) : x;
  auto reduced = wide.sizes().vec();
  reduced[static_cast<size_t>(dim)] = 1;
  at::Tensor most = wide.numel() == 0 ? at::full(reduced, -std::numeric_limits<double>::infinity(), wide.options())
                                      : at::amax(wide, dim, true);
  reduce(call, most, axis, ReduceOp::kMax);
  const at::Tensor shifted = wide - most;
  const at::Tensor power = shifted.exp();
  at::Tensor sum = at::sum(power, dim, true);
  reduce(call, sum, axis);
  give(stack, call, logarithm ? shifted - sum.log() : power / sum);
}

/// For each target: its index among this rank's classes, whether it is one of them, and its weight.
struct OwnTargets {
  at::Tensor index, is_here, weight;
  OwnTargets(const Piece& own, const at::Tensor& target, const c10::IValue& weights, int64_t ignored,
             at::ScalarType type) {
    const at::Tensor here = target - own.first;
    const at::Tensor counts = target.ne(ignored);
    is_here = here.ge(0).logical_and_(here.lt(own.length)).logical_and_(counts);
    index = here.clamp(0, std::max<int64_t>(own.length - 1, 0)).unsqueeze(-1);
    weight = counts.to(type);
    if (weights.isTensor() && weights.toTensor().defined()) {
      const at::Tensor& given = weights.toTensor();
      const at::Tensor known = target.clamp(0, given.size(0) - 1).reshape({-1});
      weight = weight * given.index_select(0, known).view(target.sizes());
    }
  }
};

void negative_likelihood(const LocalCall& call, Stack& stack) {
  const bool backward = call.info.name == "aten::nll_loss_backward";
  const size_t at = backward ? 1 : 0;
  const at::Tensor input = argument(stack, call, at).toTensor(), target = argument(stack, call, at + 1).toTensor();
  const int64_t reduction = argument(stack, call, at + 3).toInt(), ignored = argument(stack, call, at + 4).toInt();
  const int64_t class_dim = input.dim() - 1;
  const Piece classes = own_piece(call, at, class_dim, call.given[at].toTensor().size(class_dim));
  const OwnTargets own(classes, target, argument(stack, call, at + 2), ignored, input.scalar_type());
  if (!backward) {
    at::Tensor picked = at::zeros(target.sizes(), input.options());
    if (classes.length > 0) picked = at::where(own.is_here, -input.gather(-1, own.index).squeeze(-1), 0.0);
    reduce(call, picked, axis_of_cut(call, at, class_dim));
    picked = picked * own.weight;
    if (reduction == at::Reduction::None) return give(stack, call, picked, at::zeros({}, input.options()));
    at::Tensor sums = at::stack({picked.sum(), own.weight.sum()});
    if (input.dim() == 2) reduce(call, sums, axis_of_cut(call, at, 0));
    const at::Tensor loss = sums[0], total = sums[1];
    return give(stack, call, reduction == at::Reduction::Mean ? loss / total : loss.clone(), total.clone());
  }
  at::Tensor factor = argument(stack, call, 0).toTensor() * own.weight;
  if (reduction == at::Reduction::Mean) factor = factor / argument(stack, call, 6).toTensor();
  at::Tensor gradient = at::zeros_like(input);
  if (classes.length > 0) gradient.scatter_(-1, own.index, at::where(own.is_here, -factor, 0.0).unsqueeze(-1));
  give(stack, call, gradient);
}

/// The local part of a whole tensor computed on this rank.
at::Tensor cut_all(at::Tensor whole, const LocalCall& call, const MeshLayout& layout) {
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    if (!layout.placements[axis].is_shard()) continue;
    whole = cut_out(whole, layout.placements[axis], call.mesh.axis_sizes()[axis], call.mesh.coordinates()[axis]);
  }
  return whole;
}

/// Draws the numbers of the whole tensor, from the generator that all ranks share, so they equal those of a plain
/// tensor.
void random(const LocalCall& call, Stack& stack) {
  const at::Tensor given = call.given[0].toTensor();
  const at::Tensor local = argument(stack, call, 0).toTensor();
  const MeshLayout& layout = *call.decision.inputs[0];
  const std::string& name = call.info.name;
  if (name == "aten::native_dropout") {
    const double p = argument(stack, call, 1).toDouble();
    const c10::IValue train = argument(stack, call, 2);
    const bool active = (train.isNone() || train.toBool()) && p > 0;
    at::Tensor mask = at::ones(given.sizes(), at::kBool);
    if (active) call.mesh.draw_random([&](const at::Generator& common) { mask.bernoulli_(1 - p, common); });
    const at::Tensor own = cut_all(mask, call, layout).contiguous().to(local.device());
    give(stack, call, active ? (p == 1 ? at::zeros_like(local) : local.mul(own).mul_(1 / (1 - p))) : local.clone(),
         own);
    return;
  }
  at::Tensor whole = at::empty(given.sizes(), local.scalar_type());
  if (name == "aten::rand_like" || name == "aten::randn_like") {
    call.mesh.draw_random([&](const at::Generator& common) {
      name == "aten::rand_like" ? whole.uniform_(0, 1, common) : whole.normal_(0, 1, common);
    });
    give(stack, call, cut_all(whole, call, layout).contiguous().to(local.device()));
  } else if (call.info.changes_in_place) {  // uniform_, normal_, bernoulli_ and similar
    argument(stack, call, 0) = whole;
    c10::IValue& generator = argument(stack, call, call.info.num_arguments - 1);
    if (generator.isNone()) {
      call.mesh.draw_random([&](const at::Generator& common) {
        generator = common;
        call.op.callBoxed(stack);
      });
    } else {
      call.op.callBoxed(stack);
    }
    local.copy_(cut_all(whole, call, layout));
    stack.back() = local;
  } else {
    throw Error(fmt::format("{} draws random numbers in a way that mesh tensors do not know", name),
                "use uniform_, normal_, bernoulli_, rand_like, randn_like or dropout");
  }
}

void reshape(const LocalCall& call, Stack& stack) {
  give(stack, call, argument(stack, call, 0).toTensor().reshape(call.decision.local_sizes));
}

/// masked_fill of a partial sum: only one rank fills in the value, which is the last argument.
void once(const LocalCall& call, Stack& stack) {
  const auto& placements = call.decision.inputs[0]->placements;
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    if (placements[axis].is_partial() && call.mesh.coordinates()[axis] != 0) {
      argument(stack, call, call.info.num_arguments - 1) = 0;
    }
  }
  call.op.callBoxed(stack);
}

}  // namespace

void execute(const LocalCall& call, Stack& stack) {
  switch (call.decision.execution) {
    case Execution::kPlain:
      return call.op.callBoxed(stack);
    case Execution::kMean:
      return mean(call, stack);
    case Execution::kEmbedding:
      return embedding(call, stack);
    case Execution::kSoftmax:
      return softmax(call, stack);
    case Execution::kNegativeLikelihood:
      return negative_likelihood(call, stack);
    case Execution::kVectorNorm:
      return vector_norm(call, stack);
    case Execution::kReshape:
      return reshape(call, stack);
    case Execution::kEmpty:
      return give(stack, call, argument(stack, call, 0).toTensor().new_empty(call.decision.local_sizes));
    case Execution::kOnce:
      return once(call, stack);
    case Execution::kRandom:
      return random(call, stack);
  }
}

}  // namespace trireme
