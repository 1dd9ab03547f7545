// The fallback of DispatchKey::Fake: every operator with a mesh tensor comes here, below autograd.
#include <ATen/core/LegacyTypeDispatch.h>
#include <fmt/format.h>
#include <torch/library.h>

#include "trireme/base/error.h"
#include "trireme/tensor/arguments.h"
#include "trireme/tensor/capture.h"
#include "trireme/tensor/execution.h"
#include "trireme/tensor/redistribute.h"

namespace trireme {
namespace {

using torch::jit::Stack;
using KeptArguments = c10::SmallVector<c10::IValue, 8>;

/// What all mesh tensors of a call have in common.
struct Common {
  const MeshSpec* first = nullptr;
  bool all_replicated = true;
};

Common survey(const OperatorInfo& info, Arguments arguments) {
  Common common;
  each_tensor(arguments, [&](const at::Tensor& tensor) {
    const MeshSpec* spec = mesh_spec(tensor);
    if (!spec) return;
    if (!common.first) common.first = spec;
    common.all_replicated = common.all_replicated && spec->layout->is_replicated;
    if (spec->mesh != common.first->mesh) {
      throw Error(fmt::format("{} got tensors of two meshes, {} and {}", info.name, common.first->layout->text,
                              spec->layout->text),
                  "bring one of them over with distribute(full(t), mesh, placements)");
    }
  });
  return common;
}

/// For in-place operators that change sizes: updates the outer tensor from its local one.
void refresh(const at::Tensor& outer) {
  const MeshSpec* spec = mesh_spec(outer);
  if (!spec || outer.sizes() == spec->local().sizes()) return;
  outer.unsafeGetTensorImpl()->set_sizes_and_strides(spec->local().sizes(), spec->local().strides());
}

/// Copies the caller's arguments, if they are needed after the call.
KeptArguments keep(bool needed, Arguments arguments) {
  return needed ? KeptArguments(arguments.begin(), arguments.end()) : KeptArguments();
}

/// Wraps the results on the stack; results that alias arguments are returned as those arguments.
template <typename Wrap>
void wrap_results(const OperatorInfo& info, Arguments given, Stack& stack, Wrap wrap) {
  const size_t num_results = info.returned.size(), begin = stack.size() - num_results;
  size_t number = 0;
  for (size_t i = 0; i < num_results; ++i) {
    c10::IValue& result = stack[begin + i];
    if (info.returned[i] >= 0) {
      result = given[static_cast<size_t>(info.returned[i])];
      ++number;
    } else {
      change_tensors(result, [&](const at::Tensor& tensor) {
        const size_t own = number++;
        return tensor.defined() ? wrap(tensor, own) : tensor;
      });
    }
  }
}

/// No communication: every rank computes the whole. The fast path for replicated tensors and meshes of one rank.
void call_replicated(const c10::OperatorHandle& op, const OperatorInfo& info, const MeshSpec& spec, Arguments arguments,
                     Stack& stack) {
  const std::shared_ptr<DeviceMesh> mesh = spec.mesh;  // whose last tensor may be among the arguments
  const KeptArguments given = keep(info.changes_in_place, arguments);
  for (size_t i = stack.size() - info.num_arguments; i < stack.size(); ++i) {
    change_tensors(stack[i], [](const at::Tensor& tensor) { return tensor.defined() ? local_part(tensor) : tensor; });
  }
  op.callBoxed(stack);
  wrap_results(info, given, stack, [&](const at::Tensor& tensor, size_t) {
    return wrap_local(tensor, mesh, mesh->replicated(), tensor.sizes(), true);
  });
  if (info.family == OperatorInfo::Family::kResizing) each_tensor(given, refresh);
}

/// For lists of tensors, treated one by one: tensors of other lists are moved to the layout of the first list's.
void call_foreach(const c10::OperatorHandle& op, const OperatorInfo& info, Arguments arguments, Stack& stack) {
  const size_t begin = stack.size() - info.num_arguments;
  const KeptArguments given = keep(true, arguments);
  const auto leaders = given[0].toListRef();
  std::vector<const MeshSpec*> homes;
  for (const c10::IValue& leader : leaders) {
    homes.push_back(mesh_spec(leader.toTensor()));
    if (homes.back() && homes.back()->layout->has_partial) {
      throw Error(fmt::format("{} on a tensor that lies as {}", info.name, homes.back()->layout->text),
                  "redistribute it to replicate first");
    }
  }
  for (size_t i = 0; i < given.size(); ++i) {
    size_t at = 0;
    const bool is_list = given[i].isTensorList();
    change_tensors(stack[begin + i], [&](const at::Tensor& tensor) {
      const MeshSpec* home = is_list && at < homes.size() ? homes[at] : nullptr;
      ++at;
      const MeshSpec* spec = tensor.defined() ? mesh_spec(tensor) : nullptr;
      if (!tensor.defined() || (!spec && (!home || tensor.dim() == 0))) return tensor;
      DeviceMesh& mesh = spec ? *spec->mesh : *home->mesh;
      const MeshLayout& to = home && tensor.dim() > 0 ? *home->layout : *mesh.replicated();
      return redistribute_local(local_part(tensor), mesh, spec ? *spec->layout : *mesh.replicated(), to,
                                tensor.sizes());
    });
  }
  op.callBoxed(stack);
  wrap_results(info, given, stack, [&](const at::Tensor& tensor, size_t number) {
    const MeshSpec* home = homes[number % homes.size()];
    return home ? wrap_local(tensor, home->mesh, home->layout, leaders[number].toTensor().sizes()) : tensor;
  });
}

const Decision& find_decision(const OperatorInfo& info, Arguments arguments, DeviceMesh& mesh, Decision& made) {
  DecisionKey key;
  key.push_back(reinterpret_cast<int64_t>(&info));
  if (!append_key(info, arguments, key)) return made = decide(info, arguments, mesh);
  if (const Decision* known = mesh.decisions().find(key)) return *known;
  return *mesh.decisions().insert(key, decide(info, arguments, mesh));
}

/// Converts integer arguments from global to local sizes.
void localize(const Decision& decision, c10::IValue* arguments) {
  if (decision.sizes_argument >= 0) arguments[decision.sizes_argument] = decision.local_sizes;
  for (const auto& [argument, count] : decision.counted) arguments[argument] = count;
  for (const auto& [argument, factor] : decision.divided) {
    c10::IValue& value = arguments[argument];
    if (value.isInt()) {
      value = value.toInt() / factor;
    } else if (value.isIntList()) {
      std::vector<int64_t> list = value.toIntVector();
      for (int64_t& element : list) element /= factor;
      value = std::move(list);
    }
  }
}

/// Rejects in-place changes of views: autograd would replay them on the base with global strides, which parts do not
/// have.
void refuse_views(const OperatorInfo& info, Arguments arguments) {
  if (!at::GradMode::is_enabled()) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!info.written[i] || !arguments[i].isTensor()) continue;
    const at::Tensor& tensor = arguments[i].toTensor();
    const MeshSpec* spec = tensor.defined() ? mesh_spec(tensor) : nullptr;
    if (!spec || !tensor.requires_grad() || !tensor.is_view()) continue;
    throw Error(fmt::format("{} changes a view of a tensor that lies as {}, and a gradient goes through it", info.name,
                            spec->layout->text),
                "use the form that returns a new tensor, or redistribute the whole to replicate first");
  }
}

void call_sharded(const c10::OperatorHandle& op, const OperatorInfo& info, const MeshSpec& first, Arguments arguments,
                  Stack& stack) {
  const size_t begin = stack.size() - info.num_arguments;
  const std::shared_ptr<DeviceMesh> mesh = first.mesh;
  if (info.changes_in_place) refuse_views(info, arguments);
  Decision made;
  const Decision& decision = find_decision(info, arguments, *mesh, made);
  const bool is_plain = decision.execution == Execution::kPlain;
  const KeptArguments given = keep(info.changes_in_place || !is_plain, arguments);
  size_t number = 0;
  for (size_t i = begin; i < stack.size(); ++i) {
    change_tensors(stack[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      const MeshLayout* wanted = decision.inputs[number++];
      const MeshSpec* spec = mesh_spec(tensor);
      const MeshLayout* now = spec ? spec->layout : mesh->replicated();
      const at::Tensor& part = spec ? spec->local() : tensor;
      return now == wanted ? part : redistribute_local(part, *mesh, *now, *wanted, tensor.sizes());
    });
  }
  localize(decision, &stack[begin]);
  if (is_plain) {
    op.callBoxed(stack);
  } else {
    execute({op, info, decision, *mesh, given}, stack);
  }
  wrap_results(info, given, stack, [&](const at::Tensor& tensor, size_t result) {
    const Decision::Output& output = decision.outputs[std::min(result, decision.outputs.size() - 1)];
    if (output.extents.empty()) {
      return wrap_local(decision.same_strides ? tensor : tensor.contiguous(), mesh, output.layout, tensor.sizes(),
                        true);
    }
    c10::SmallVector<int64_t, 6> sizes(tensor.sizes().begin(), tensor.sizes().end());
    for (const auto& [dim, extent] : output.extents) {
      if (static_cast<size_t>(dim) >= sizes.size()) {  // a buffer that is empty on some devices
        return wrap_local(tensor, mesh, mesh->replicated(), tensor.sizes(), true);
      }
      sizes[static_cast<size_t>(dim)] = extent;
    }
    return wrap_local(tensor, mesh, output.layout, sizes, decision.same_strides);
  });
}

/// t_() and similar: calls the out-of-place variant, and turns the outer tensor into its result.
void call_turning(const OperatorInfo& info, Stack& stack) {
  std::string name = info.name.substr(0, info.name.find('.'));
  std::string overload = info.name.size() > name.size() ? info.name.substr(name.size() + 1) : "";
  name.pop_back();
  if (name == "aten::transpose") overload = "int";
  const at::Tensor outer = stack[stack.size() - info.num_arguments].toTensor();
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()).callBoxed(stack);
  const at::Tensor turned = stack.back().toTensor();
  outer.unsafeGetTensorImpl()->set_sizes_and_strides(turned.sizes(), turned.strides());
  outer.unsafeGetTensorImpl()->set_backend_meta(turned.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr());
  stack.back() = outer;
}

[[noreturn]] void refuse_resizing(const OperatorInfo& info, const MeshSpec& spec) {
  throw Error(fmt::format("{} would change the sizes of a tensor that lies as {}", info.name, spec.layout->text),
              "use the form that returns a new tensor");
}
[[noreturn]] void refuse_strides(const OperatorInfo& info, const MeshSpec& spec) {
  throw Error(fmt::format("{} speaks of strides in memory, but the tensor lies as {}", info.name, spec.layout->text),
              "if this is the backward of an operator in place on a view, use the form that returns a new tensor");
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  const OperatorInfo& info = OperatorInfo::of(op);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Arguments arguments(stack->data() + stack->size() - info.num_arguments, info.num_arguments);
  const Common common = survey(info, arguments);
  using Family = OperatorInfo::Family;
  if (!common.first) return op.callBoxed(stack);
  if (info.is_composite) {
    return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);
  }
  if (info.family == Family::kTurning) return call_turning(info, *stack);
  if (!common.first->mesh) return record_call(op, info, *stack);
  if (info.family == Family::kAsItIs || (common.all_replicated && !info.is_random)) {
    return call_replicated(op, info, *common.first, arguments, *stack);
  }
  if (info.family == Family::kForeach) return call_foreach(op, info, arguments, *stack);
  if (info.family == Family::kResizing) refuse_resizing(info, *common.first);
  if (info.family == Family::kStrided) refuse_strides(info, *common.first);
  call_sharded(op, info, *common.first, arguments, *stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace trireme
