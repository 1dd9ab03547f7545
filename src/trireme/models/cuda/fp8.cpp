#include "trireme/models/fp8.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/gpu/device.h"
#include "trireme/models/cuda/fp8_linear.h"
#include "trireme/models/modules.h"

namespace trireme {
namespace {

using gpu::Fp8;
using gpu::Fp8Scale;
using ops::on_gpu::Fp8Linear;
using ops::on_gpu::Fp8LinearPtr;
using ops::on_gpu::Fp8Place;

constexpr int64_t kPlaces = 3;  // of a linear layer: weight, x, dy
constexpr int64_t kWords = sizeof(Fp8Scale) / sizeof(int32_t);
constexpr int64_t kAmaxWord = offsetof(Fp8Scale, amax) / sizeof(int32_t);

// Layers that a scope has enabled, by parameter. Looked up for every matmul unless the step is a graph.
struct Registry {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Fp8LinearPtr> all;
};
Registry& registry() {
  static auto* kept = new Registry;
  return *kept;
}

void demand_gpu(const at::Device& device) {
  const std::string key = "precision.matmul = \"fp8\"";
  if (!device.is_cuda()) {
    throw UsageError(key + " needs a GPU, but the model is on the CPU", "set train.device = \"cuda\"");
  }
  const auto devices = gpu::survey().devices;
  const auto index = static_cast<size_t>(device.index());
  if (index >= devices.size() || gpu::has_fp8(devices[index])) return;
  throw UsageError(fmt::format("{}: {} (compute capability {}.{}) has no products in 8 bits", key, devices[index].name,
                               devices[index].major, devices[index].minor),
                   "they came with 8.9: set precision.matmul = \"compute\"");
}

// A scale as text: 8 digits for the scale's bits, 1 for the position, 4 per value of the history. The values are
// bfloat16 in origin, so the upper half of their bits is enough.
constexpr size_t kTextLength = 8 + 1 + 4 * Fp8Scale::kHistory;

uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }

std::string to_text(const Fp8Scale& scale) {
  std::string text = fmt::format("{:08x}{:x}", bits_of(scale.scale), scale.position);
  for (const float value : scale.history) text += fmt::format("{:04x}", bits_of(value) >> 16);
  return text;
}

/// Returns false if `text` is malformed.
bool from_text(std::string_view text, Fp8Scale& scale) {
  const auto number = [&](size_t first, size_t count, uint32_t& to) {
    const char *begin = text.data() + first, *end = begin + count;
    const auto [stop, error] = std::from_chars(begin, end, to, 16);
    return error == std::errc() && stop == end;
  };
  uint32_t bits = 0, position = 0;
  if (text.size() != kTextLength || !number(0, 8, bits) || !number(8, 1, position)) return false;
  scale.scale = __builtin_bit_cast(float, bits);
  scale.inverse = 1 / scale.scale;
  scale.position = static_cast<int32_t>(position);
  scale.amax = 0;
  for (size_t i = 0; i < Fp8Scale::kHistory; ++i) {
    uint32_t half = 0;
    if (!number(9 + 4 * i, 4, half)) return false;
    scale.history[i] = __builtin_bit_cast(float, half << 16);
  }
  return true;
}

bool was_seen(const Fp8Scale& scale) {
  return std::any_of(std::begin(scale.history), std::end(scale.history), [](float value) { return value > 0; });
}

}  // namespace

struct Fp8Products::Inside {
  struct Item {
    const c10::TensorImpl* parameter;
    Fp8LinearPtr linear;
  };
  std::vector<Item> items;
  at::Tensor scales;  ///< bytes: kPlaces of Fp8Scale per item

  int64_t num_scales() const { return static_cast<int64_t>(items.size()) * kPlaces; }
  Fp8Scale* device_scales() const { return static_cast<Fp8Scale*>(scales.mutable_data_ptr()); }
  static std::array<Fp8Place*, kPlaces> places(Fp8Linear& linear) {
    return {&linear.of_weight, &linear.of_x, &linear.of_dy};
  }

  std::vector<Fp8Scale> fresh() const {
    std::vector<Fp8Scale> all(static_cast<size_t>(num_scales()));
    for (size_t i = 0; i < all.size(); ++i) {
      all[i].largest = gpu::largest_of(i % kPlaces == kPlaces - 1 ? Fp8::kE5M2 : Fp8::kE4M3);
    }
    return all;
  }
  void write(std::vector<Fp8Scale>& all) {
    scales.copy_(at::from_blob(all.data(), {static_cast<int64_t>(all.size() * sizeof(Fp8Scale))}, at::kByte));
    for (size_t i = 0; i < items.size(); ++i) {
      const auto own = places(*items[i].linear);
      for (size_t j = 0; j < own.size(); ++j) own[j]->is_known = was_seen(all[i * kPlaces + j]);
    }
  }
};

Fp8Products::Fp8Products(const Model& model) : inside_(std::make_unique<Inside>()) {
  const at::NoGradGuard no_grad;
  demand_gpu(model.parameters().at(0).device());  // once, since it asks the driver
  for (const auto& layer : model.layers()) {
    if (!layer->is_numbered()) continue;
    for (const auto& module : layer->modules()) {
      const auto* found = dynamic_cast<const Linear*>(module.get());
      if (!found) continue;
      const auto weight = found->weight.detach();
      if (weight.scalar_type() != at::kBFloat16 || !weight.is_contiguous() || weight.size(0) % gpu::kFp8Multiple != 0 ||
          weight.size(1) % gpu::kFp8Multiple != 0 ||
          reinterpret_cast<uintptr_t>(weight.const_data_ptr()) % gpu::kFp8Multiple != 0) {
        continue;
      }
      auto linear = c10::make_intrusive<Fp8Linear>();
      const auto bytes = weight.options().dtype(at::kByte);
      linear->weight = weight;
      linear->values = at::empty(weight.sizes(), bytes);
      linear->transposed = at::empty({weight.size(1), weight.size(0)}, bytes);
      inside_->items.push_back({found->weight.unsafeGetTensorImpl(), std::move(linear)});
    }
  }
  if (inside_->items.empty()) {
    throw UsageError("precision.matmul = \"fp8\": no matrix of the model's layers can be used in 8 bits",
                     "their sizes must be multiples of 16, and precision.compute bfloat16");
  }
  inside_->scales = at::empty({inside_->num_scales() * static_cast<int64_t>(sizeof(Fp8Scale))},
                              inside_->items[0].linear->values.options());
  Fp8Scale* next = inside_->device_scales();
  for (const Inside::Item& item : inside_->items) {
    item.linear->scales = inside_->scales;
    for (Fp8Place* place : Inside::places(*item.linear)) place->scale = next++;
  }
  auto all = inside_->fresh();
  inside_->write(all);
}

Fp8Products::~Fp8Products() = default;

void Fp8Products::copy_weights() {
  const gpu::Stream stream = ops::on_gpu::current_stream();
  for (const Inside::Item& item : inside_->items) {
    Fp8Linear& linear = *item.linear;
    const void* weight = linear.weight.const_data_ptr();
    if (!linear.of_weight.is_known) {
      gpu::measure(weight, linear.weight.numel(), linear.of_weight.scale, stream);
      gpu::update_scales(linear.of_weight.scale, 1, stream);
      linear.of_weight.is_known = true;
    }
    gpu::quantise(weight, linear.weight.size(0), linear.weight.size(1), Fp8::kE4M3, linear.of_weight.scale,
                  linear.values.mutable_data_ptr(), linear.transposed.mutable_data_ptr(), stream);
  }
}

void Fp8Products::update_scales(const std::function<void(at::Tensor&)>& largest_over_ranks) {
  if (largest_over_ranks) {
    const at::NoGradGuard no_grad;
    const auto noted = inside_->scales.view(at::kInt).view({-1, kWords}).select(1, kAmaxWord);
    auto together = noted.contiguous();
    largest_over_ranks(together);
    noted.copy_(together);
  }
  gpu::update_scales(inside_->device_scales(), inside_->num_scales(), ops::on_gpu::current_stream());
}

std::string Fp8Products::state() const {
  const auto on_host = inside_->scales.cpu();
  std::vector<Fp8Scale> all(static_cast<size_t>(inside_->num_scales()));
  std::memcpy(static_cast<void*>(all.data()), on_host.const_data_ptr(), on_host.nbytes());
  std::string text;
  for (const Fp8Scale& scale : all) text += to_text(scale);
  return text;
}

bool Fp8Products::restore(const std::string& state) {
  auto all = inside_->fresh();
  bool fits = state.size() == all.size() * kTextLength;
  for (size_t i = 0; i < all.size() && fits; ++i) {
    fits = from_text(std::string_view(state).substr(i * kTextLength, kTextLength), all[i]);
  }
  if (!fits) all = inside_->fresh();
  inside_->write(all);
  return fits;
}

size_t Fp8Products::num_bytes() const {
  size_t sum = inside_->scales.nbytes();
  for (const Inside::Item& item : inside_->items) sum += 2 * item.linear->values.nbytes();
  return sum;
}

Fp8Scope::Fp8Scope(Fp8Products* products) : products_(products) {
  if (!products_) return;
  const std::lock_guard lock(registry().mutex);
  for (const auto& item : products_->inside_->items) registry().all.emplace(item.parameter, item.linear);
}

Fp8Scope::~Fp8Scope() {
  if (!products_) return;
  const std::lock_guard lock(registry().mutex);
  for (const auto& item : products_->inside_->items) registry().all.erase(item.parameter);
}

namespace ops::on_gpu {

Fp8LinearPtr find_fp8(const at::Tensor& weight) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().all.find(weight.unsafeGetTensorImpl());
  return found == registry().all.end() ? Fp8LinearPtr() : found->second;
}

}  // namespace ops::on_gpu
}  // namespace trireme
