// Visits or replaces the tensors among an operator's boxed arguments.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <span>

namespace trireme {

using Arguments = std::span<const c10::IValue>;

/// Calls `visit` with each defined tensor among the arguments, including those in lists.
template <typename Visit>
void each_tensor(Arguments arguments, Visit visit) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor() && element.toTensor().defined()) visit(element.toTensor());
      }
    }
  }
}

/// The same for a result, including undefined tensors.
template <typename Visit>
void each_result(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& element : value.toListRef()) visit(element.isTensor() ? element.toTensor() : at::Tensor());
  }
}

/// Replaces each tensor, defined or not, by what `change` returns for it. Other values stay.
template <typename Change>
void change_tensors(c10::IValue& value, Change change) {
  if (value.isTensor()) {
    value = c10::IValue(change(value.toTensor()));
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(change(element.toTensor()));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isTensor() ? std::optional(change(element.toTensor())) : std::nullopt);
    }
    value = std::move(list);
  }
}

}  // namespace trireme
