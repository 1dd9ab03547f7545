#include "trireme/tensor/mesh_tensor.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/tensor/redistribute.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// All outer tensors of a device share one storage; it has no bytes, and throws if asked for them.
const c10::Storage& empty_storage(c10::Device device) {
  thread_local std::vector<std::pair<c10::Device, c10::Storage>> known;
  for (const auto& [of, storage] : known) {
    if (of == device) return storage;
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, device), nullptr, false);
  storage.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(
      "a mesh tensor has no data pointer: its elements lie on several ranks.\n"
      "  Take trireme::local(t) for this rank's part, or trireme::full(t) for all; save with a checkpoint."));
  return known.emplace_back(device, std::move(storage)).second;
}

/// The local strides scaled to the global sizes; dimensions keep their order in memory.
std::vector<int64_t> outer_strides(const at::Tensor& local, c10::IntArrayRef sizes) {
  const auto strides = local.strides();
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  std::vector<int64_t> outer(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t dim = order[i];
    outer[dim] = strides[dim] == 0 ? 0 : step;
    if (strides[dim] != 0) step *= std::max<int64_t>(sizes[dim], 1);
  }
  return outer;
}

at::Tensor wrap(StartedPart started, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                c10::IntArrayRef sizes, bool same_strides) {
  const at::Tensor& local = started.part;
  if (!local.defined()) return local;
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(empty_storage(local.device())),
                                                   local.key_set().add(c10::DispatchKey::Fake), local.dtype());
  if (!same_strides) {
    impl->set_sizes_contiguous(sizes);
  } else if (sizes == local.sizes()) {
    impl->set_sizes_and_strides(sizes, local.strides());
    // Autograd uses the offset to replay an in-place change of a view on its base.
    impl->set_storage_offset(local.storage_offset());
  } else if (local.is_contiguous()) {
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, outer_strides(local, sizes));
  }
  impl->set_backend_meta(
      c10::make_intrusive<MeshSpec>(std::move(started.part), mesh, layout, std::move(started.flight)));
  return at::Tensor(std::move(impl));
}

const MeshSpec& spec_of(const at::Tensor& tensor) {
  const MeshSpec* spec = tensor.defined() ? mesh_spec(tensor) : nullptr;
  if (!spec)
    throw UsageError("a mesh tensor was expected, this is a plain one", "call trireme::distribute on it first");
  return *spec;
}

/// The placements with partial sums reduced and shards unchanged.
std::vector<Placement> without_partials(std::vector<Placement> placements) {
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = Placement::replicate();
  }
  return placements;
}

/// A mesh and a layout, kept by an autograd node.
struct LayoutHolder : torch::CustomClassHolder {
  std::shared_ptr<DeviceMesh> mesh;
  const MeshLayout* layout = nullptr;
  std::vector<int64_t> sizes;
};

/// This rank's part of a mesh tensor, or of a plain one (replicated), in `layout`.
at::Tensor part_in(const at::Tensor& tensor, const LayoutHolder& holder, const MeshLayout* layout) {
  const MeshSpec* spec = mesh_spec(tensor);
  return redistribute_local(local_part(tensor), *holder.mesh, spec ? *spec->layout : *holder.mesh->replicated(),
                            *layout, holder.sizes);
}

/// The whole tensor redistributed to the holder's layout.
at::Tensor moved(const at::Tensor& tensor, const LayoutHolder& to, bool in_background) {
  if (!in_background) return wrap_local(part_in(tensor, to, to.layout), to.mesh, to.layout, to.sizes);
  const MeshSpec* spec = mesh_spec(tensor);
  return wrap_started(start_redistribute_local(local_part(tensor), *to.mesh,
                                               spec ? *spec->layout : *to.mesh->replicated(), *to.layout, to.sizes),
                      to.mesh, to.layout, to.sizes);
}

class Redistribute : public torch::autograd::Function<Redistribute> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, c10::intrusive_ptr<LayoutHolder> to,
                            bool in_background) {
    auto from = c10::make_intrusive<LayoutHolder>();
    const MeshSpec& spec = spec_of(tensor);
    from->mesh = spec.mesh;
    from->sizes = tensor.sizes().vec();
    from->layout = spec.mesh->layout(without_partials(spec.layout->placements), from->sizes);
    context->saved_data["from"] = c10::IValue::make_capsule(from);
    context->saved_data["in_background"] = in_background;
    return moved(tensor, *to, in_background);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto from = c10::static_intrusive_pointer_cast<LayoutHolder>(context->saved_data["from"].toCapsule());
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    return {moved(gradients[0], *from, context->saved_data["in_background"].toBool()), at::Tensor(), at::Tensor()};
  }
};

class Local : public torch::autograd::Function<Local> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, c10::intrusive_ptr<LayoutHolder> back) {
    context->saved_data["back"] = c10::IValue::make_capsule(back);
    return spec_of(tensor).local().detach();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto back = c10::static_intrusive_pointer_cast<LayoutHolder>(context->saved_data["back"].toCapsule());
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    return {wrap_local(gradients[0], back->mesh, back->layout, back->sizes), at::Tensor()};
  }
};

class FromLocal : public torch::autograd::Function<FromLocal> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local,
                            c10::intrusive_ptr<LayoutHolder> holder) {
    context->saved_data["holder"] = c10::IValue::make_capsule(holder);
    return wrap_local(local.detach(), holder->mesh, holder->layout, holder->sizes);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<LayoutHolder>(context->saved_data["holder"].toCapsule());
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    const MeshLayout* finished = holder->mesh->layout(without_partials(holder->layout->placements), holder->sizes);
    return {part_in(gradients[0], *holder, finished), at::Tensor()};
  }
};

c10::intrusive_ptr<LayoutHolder> hold(const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                                      std::vector<int64_t> sizes) {
  auto holder = c10::make_intrusive<LayoutHolder>();
  holder->mesh = mesh;
  holder->layout = layout;
  holder->sizes = std::move(sizes);
  return holder;
}

at::Tensor redistributed(const at::Tensor& tensor, const std::vector<Placement>& placements, bool in_background) {
  const MeshSpec& spec = spec_of(tensor);
  const MeshLayout* layout = spec.mesh->layout(placements, tensor.sizes().vec());
  if (layout == spec.layout) return tensor;
  return Redistribute::apply(tensor, hold(spec.mesh, layout, tensor.sizes().vec()), in_background);
}

}  // namespace

bool is_even(const MeshLayout& layout, const DeviceMesh& mesh, c10::IntArrayRef sizes) {
  std::vector<int64_t> left = sizes.vec();
  for (size_t axis = 0; axis < layout.placements.size(); ++axis) {
    const Placement& placement = layout.placements[axis];
    if (!placement.is_shard()) continue;
    int64_t& extent = left[static_cast<size_t>(placement.dim)];
    if (!is_even(placement, extent, mesh.axis_sizes()[axis])) return false;
    extent /= mesh.axis_sizes()[axis];
  }
  return true;
}

at::Tensor wrap_local(at::Tensor local, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                      c10::IntArrayRef sizes) {
  const bool even = is_even(*layout, *mesh, sizes);
  return wrap_local(std::move(local), mesh, layout, sizes, even);
}

at::Tensor wrap_started(StartedPart started, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                        c10::IntArrayRef sizes) {
  const bool even = is_even(*layout, *mesh, sizes);
  return wrap(std::move(started), mesh, layout, sizes, even);
}

at::Tensor wrap_local(at::Tensor local, const std::shared_ptr<DeviceMesh>& mesh, const MeshLayout* layout,
                      c10::IntArrayRef sizes, bool same_strides) {
  return wrap({std::move(local), nullptr}, mesh, layout, sizes, same_strides);
}

void MeshSpec::land() const {
  flight_->land();
  flight_.reset();
}

at::Tensor distribute(const at::Tensor& tensor, const std::shared_ptr<DeviceMesh>& mesh,
                      const std::vector<Placement>& placements) {
  if (is_mesh_tensor(tensor)) return redistribute(tensor, placements);
  const at::NoGradGuard no_grad;
  const at::Tensor whole = tensor.detach();
  const MeshLayout* layout = mesh->layout(placements, whole.sizes().vec());
  const at::Tensor part = redistribute_local(whole, *mesh, *mesh->replicated(), *layout, whole.sizes());
  return wrap_local(part.clone(at::MemoryFormat::Contiguous), mesh, layout, whole.sizes());
}

at::Tensor from_local(const at::Tensor& local, const std::shared_ptr<DeviceMesh>& mesh,
                      const std::vector<Placement>& placements, std::vector<int64_t> sizes) {
  if (sizes.empty() && local.dim() > 0) {
    sizes = local.sizes().vec();
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      const Placement& placement = placements[axis];
      if (!placement.is_shard()) continue;
      const auto dim = static_cast<size_t>(placement.dim < 0 ? placement.dim + local.dim() : placement.dim);
      if (dim < sizes.size()) sizes[dim] *= mesh->axis_sizes()[axis];
    }
  }
  const MeshLayout* layout = mesh->layout(placements, sizes);
  const auto expected = local_sizes(sizes, layout->placements, mesh->axis_sizes(), mesh->coordinates());
  if (local.sizes() != c10::IntArrayRef(expected)) {
    throw UsageError(fmt::format("this rank's part of {} on {} must be {}, but it is {}", sizes_text(sizes),
                                 layout->text, sizes_text(expected), sizes_text(local.sizes())));
  }
  return FromLocal::apply(local, hold(mesh, layout, sizes));
}

at::Tensor redistribute(const at::Tensor& tensor, const std::vector<Placement>& placements) {
  return redistributed(tensor, placements, false);
}
at::Tensor start_redistribute(const at::Tensor& tensor, const std::vector<Placement>& placements) {
  return redistributed(tensor, placements, true);
}

at::Tensor local(const at::Tensor& tensor, const std::vector<Placement>& gradient) {
  const MeshSpec* spec = mesh_spec(tensor);
  if (!spec) return tensor;
  if (!tensor.requires_grad() || !at::GradMode::is_enabled()) return spec->local();
  std::vector<int64_t> sizes = tensor.sizes().vec();
  const MeshLayout* layout =
      spec->mesh->layout(gradient.empty() ? without_partials(spec->layout->placements) : gradient, sizes);
  return Local::apply(tensor, hold(spec->mesh, layout, std::move(sizes)));
}

at::Tensor full(const at::Tensor& tensor) {
  const MeshSpec* spec = mesh_spec(tensor);
  if (!spec) return tensor;
  return local(redistribute(tensor, std::vector<Placement>(spec->layout->placements.size())));
}

const std::vector<Placement>& placements_of(const at::Tensor& tensor) { return spec_of(tensor).layout->placements; }
const std::shared_ptr<DeviceMesh>& mesh_of(const at::Tensor& tensor) { return spec_of(tensor).mesh; }

std::string to_string(const at::Tensor& tensor) {
  const MeshSpec& spec = spec_of(tensor);
  std::ostringstream values;
  values << spec.local().detach();
  return fmt::format("mesh tensor {} {} on {}; rank {} holds {}\n{}", sizes_text(tensor.sizes()),
                     c10::toString(tensor.scalar_type()), spec.layout->text, spec.mesh->rank(),
                     sizes_text(spec.local().sizes()), values.str());
}

std::string describe_shards(const at::Tensor& tensor) {
  const MeshSpec& spec = spec_of(tensor);
  const Mesh& mesh = spec.mesh->mesh();
  std::string text;
  for (const int rank : mesh.ranks()) {
    const std::vector<int> at = mesh.coordinates(rank);
    std::string line;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      // Indices along the dimension, sharded by one axis after another.
      std::vector<int64_t> own(static_cast<size_t>(tensor.size(dim)));
      std::iota(own.begin(), own.end(), int64_t{0});
      for (size_t axis = 0; axis < at.size(); ++axis) {
        const Placement& placement = spec.layout->placements[axis];
        if (!placement.is_shard(static_cast<int>(dim))) continue;
        std::vector<int64_t> kept;
        for (const Piece& piece :
             pieces(placement, static_cast<int64_t>(own.size()), mesh.axes()[axis].size, at[axis])) {
          kept.insert(kept.end(), own.begin() + piece.first, own.begin() + piece.first + piece.length);
        }
        own = std::move(kept);
      }
      std::string ranges;
      for (size_t i = 0; i < own.size();) {
        size_t last = i;
        while (last + 1 < own.size() && own[last + 1] == own[last] + 1) ++last;
        ranges += fmt::format("{}{}", ranges.empty() ? "" : "+", own[i]);
        if (last > i) ranges += fmt::format("-{}", own[last]);
        i = last + 1;
      }
      line += fmt::format("{}{}", line.empty() ? "" : ", ", ranges.empty() ? "none" : ranges);
    }
    text += fmt::format("rank {}: [{}]\n", rank, line);
  }
  return text;
}

}  // namespace trireme
