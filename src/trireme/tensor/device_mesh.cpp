#include "trireme/tensor/device_mesh.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/tensor/decision.h"
#include "trireme/tensor/generator_scope.h"

namespace trireme {

std::shared_ptr<DeviceMesh> DeviceMesh::make(Communicator& comm, const Mesh& mesh) {
  if (mesh.size() != comm.size()) {
    throw UsageError(fmt::format("the mesh {} has {} ranks, the communicator \"{}\" has {}", mesh.to_string(),
                                 mesh.size(), comm.name(), comm.size()),
                     "sizes of the axes must multiply to the number of ranks");
  }
  return std::shared_ptr<DeviceMesh>(new DeviceMesh(comm, mesh));
}

DeviceMesh::DeviceMesh(Communicator& comm, const Mesh& mesh)
    : mesh_(mesh),
      rank_(comm.rank()),
      coordinates_(mesh.coordinates(comm.rank())),
      comm_(&comm),
      decisions_(std::make_unique<DecisionCache>()) {
  for (const Axis& axis : mesh.axes()) {
    axis_sizes_.push_back(axis.size);
    const std::vector<int> group = mesh.group_of(rank_, axis.name);
    axes_.push_back(comm.split(group.front(), rank_));
  }
  replicated_ = intern(std::vector<Placement>(axis_sizes_.size()));
}

// [Note: One stream]
// Ranks run the same program, so torch's generators stay in step if they were seeded alike. They may not be: a rank may
// shuffle its own data, or nobody has called manual_seed(), and then libtorch picks a different seed in each process.
// Masks that differ between ranks give a wrong result without an error. So rank 0's state is broadcast before each draw
// (5 KB, compared to the activations that a layer sends), and afterwards every generator that was in that state
// advances with it, so that subsequent draws of plain tensors stay in step, too. A generator in another state belongs
// to its rank and is left alone. Ranks that are threads of one process share a generator; the first one advances it.
// Inside a GeneratorScope ranks draw alike without communication.
void DeviceMesh::draw_random(const std::function<void(const at::Generator&)>& draw) {
  if (own_generator_.defined()) return draw(own_generator_);
  if (const at::Generator scoped = GeneratorScope::current(); scoped.defined()) return draw(scoped);
  at::Generator torchs = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = [&] {
    const std::lock_guard lock(torchs.mutex());
    return torchs.get_state().contiguous();
  }();
  comm_->broadcast(Data(before.data_ptr(), before.nbytes(), DataType::kUInt8), 0);
  at::Generator common = at::detail::createCPUGenerator();
  common.set_state(before);
  draw(common);
  const at::Tensor after = common.get_state();
  const std::lock_guard lock(torchs.mutex());
  if (torchs.get_state().equal(before)) torchs.set_state(after);
}

void DeviceMesh::seed(uint64_t seed) { own_generator_ = at::detail::createCPUGenerator(seed); }

DeviceMesh::~DeviceMesh() = default;

const MeshLayout* DeviceMesh::layout(std::vector<Placement> placements, const std::vector<int64_t>& sizes) {
  if (placements.size() != axis_sizes_.size()) {
    throw UsageError(fmt::format("{} placements for the mesh {}", placements.size(), mesh_.to_string()),
                     "give one placement for each axis");
  }
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    Placement& placement = placements[axis];
    if (!placement.is_shard()) {
      if (axis_sizes_[axis] == 1) placement = Placement::replicate();
      continue;
    }
    if (placement.dim < 0) placement.dim += static_cast<int>(sizes.size());
    if (placement.dim < 0 || placement.dim >= static_cast<int>(sizes.size())) {
      throw UsageError(fmt::format("{} along {} of a tensor with {} dimensions", placement.to_string(),
                                   mesh_.axes()[axis].name, sizes.size()));
    }
    const int64_t extent = sizes[static_cast<size_t>(placement.dim)];
    if (!fits(placement, extent)) {
      throw UsageError(fmt::format("{} does not divide a dimension of {}", placement.to_string(), extent));
    }
    placement = canonical(placement, extent, axis_sizes_[axis]);
  }
  return intern(std::move(placements));
}

const MeshLayout* DeviceMesh::intern(std::vector<Placement> placements) {
  std::string text;
  for (const Placement& placement : placements) text += (text.empty() ? "" : ", ") + placement.to_string();
  const MeshLayout*& known = by_text_[text];
  if (known != nullptr) return known;
  auto layout = std::make_unique<MeshLayout>();
  layout->is_replicated =
      std::all_of(placements.begin(), placements.end(), [](const Placement& p) { return p.is_replicate(); });
  layout->has_partial =
      std::any_of(placements.begin(), placements.end(), [](const Placement& p) { return p.is_partial(); });
  layout->text = fmt::format("{}: {}", mesh_.to_string(), text.empty() ? "replicate" : text);
  layout->placements = std::move(placements);
  known = layout.get();
  layouts_.push_back(std::move(layout));
  return known;
}

}  // namespace trireme
