#include "trireme/train/same_model.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "trireme/base/crc32c.h"
#include "trireme/parallel/data/same_on_all_ranks.h"
#include "trireme/runtime/pipeline_messages.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {

void check_same_model(Communicator& comm, const Model& model) {
  // Trireme's own modules have no values yet: these follow from the seed.
  if (comm.size() == 1 || model.modules_of() == Model::Modules::kTrireme) return;
  const torch::NoGradGuard no_grad;
  std::vector<std::string> lines;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      if (is_mesh_tensor(item.value()) || item.value().storage().data() == nullptr) continue;
      const torch::Tensor values = item.value().cpu().contiguous();
      const std::span bytes(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes());
      lines.push_back(
          fmt::format("{} {} with checksum {:08x}", item.key(), form_of(values).to_string(), crc32c(bytes)));
    }
  };
  add(model.named_parameters());
  add(model.named_buffers());
  check_same_on_all_ranks(comm, "model", lines,
                          "build the same weights on every rank: call torch::manual_seed() with the same number "
                          "before the model is built");
}

}  // namespace trireme
