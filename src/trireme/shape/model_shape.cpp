#include "trireme/shape/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"

namespace trireme {
bool is_built_in(std::string_view name) {
  const auto kind = named<ModelKind>(name);
  return kind && *kind != ModelKind::kOwn;
}

ModelKind model_kind(std::string_view name) {
  if (is_built_in(name)) return *named<ModelKind>(name);
  throw UsageError(fmt::format("\"{}\" is not a kind of model", name),
                   "there are mlp, resnet, gpt2 and llama, and those of model.library");
}

int num_layers(const ModelShape& model) {
  // A file may contain any number, which is rejected later.
  const int layers = static_cast<int>(std::clamp<int64_t>(model.layers, 0, std::numeric_limits<int>::max() - 2));
  if (model.is_language()) return layers + 2;
  if (model.kind == ModelKind::kMlp) return layers + 1;
  if (model.is_own()) throw Error("how many layers a library's model has is known where it is built");
  return 2 + (model.depth == 18 ? 8 : model.depth == 101 ? 33 : 16);
}

}  // namespace trireme
