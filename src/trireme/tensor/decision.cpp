#include "trireme/tensor/decision.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

std::atomic<bool> strict_mode = false;

/// Appends the length of a list of integers or booleans, and its elements.
template <typename Key>
void append_list(const c10::IValue& value, Key& key) {
  const auto elements = value.toListRef();
  key.push_back(static_cast<int64_t>(elements.size()));
  for (const c10::IValue& element : elements) key.push_back(element.isBool() ? element.toBool() : element.toInt());
}

void append_tensor(const at::Tensor& tensor, DecisionKey& key) {
  if (!tensor.defined()) return key.push_back(-2);
  const MeshSpec* spec = mesh_spec(tensor);
  const c10::IntArrayRef sizes = tensor.sizes();
  key.push_back(spec ? reinterpret_cast<int64_t>(spec->layout) : 0);
  key.push_back(static_cast<int64_t>(sizes.size()) << 8 | static_cast<int64_t>(tensor.scalar_type()));
  key.append(sizes.begin(), sizes.end());
}

std::string describe(const CallReading& reading) {
  std::string text = reading.call.name + "(";
  for (size_t i = 0; i < reading.tensors.size(); ++i) {
    const MeshSpec* spec = mesh_spec(reading.tensors[i]);
    std::string sizes;
    for (const int64_t size : reading.call.tensors[i]) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    text += fmt::format("{}[{}] {}", i == 0 ? "" : "; ", sizes, spec ? spec->layout->text : "plain");
  }
  return text + ")";
}

void note_missing_rule(const CallReading& reading, bool is_random) {
  if (is_random) {
    throw Error(fmt::format("{}: each rank would draw numbers of its own", describe(reading)),
                "use uniform_, normal_, bernoulli_, rand_like, randn_like or dropout, which mesh tensors know");
  }
  if (strict_mode) {
    throw Error(fmt::format("{}: no rule says how it works on parts, and strict mode is on", describe(reading)),
                "redistribute its inputs to replicate first, or write a rule (docs/mesh_tensors.md)");
  }
  static std::mutex mutex;
  static std::set<std::string> noted;
  const std::lock_guard lock(mutex);
  if (noted.insert(reading.call.name).second) {
    log_warn("{}: no rule says how it works on parts; its inputs are gathered", describe(reading));
  }
}

/// Whether two axes shard a dimension unevenly, or in stretches: a view could not express its pieces.
bool is_cut_twice(const CallReading& reading, const DeviceMesh& mesh) {
  const MeshSpec* spec = reading.tensors.empty() ? nullptr : mesh_spec(reading.tensors[0]);
  if (!spec) return false;
  const auto& placements = spec->layout->placements;
  for (size_t a = 0; a < placements.size(); ++a) {
    for (size_t b = a + 1; b < placements.size(); ++b) {
      if (!placements[a].is_shard() || !placements[b].is_shard(placements[a].dim)) continue;
      const int64_t parts = mesh.axis_sizes()[a] * mesh.axis_sizes()[b];
      const int64_t extent = reading.call.tensors[0][static_cast<size_t>(placements[a].dim)];
      if (extent % parts != 0 || placements[a].stretches * placements[b].stretches != 1) return true;
    }
  }
  return false;
}

/// Approximate elements per rank; the same number on all ranks, since choices depend on it.
double elements_of_a_rank(const at::Tensor& tensor, const DeviceMesh& mesh) {
  auto elements = static_cast<double>(tensor.numel());
  const MeshSpec* spec = mesh_spec(tensor);
  for (size_t axis = 0; spec && axis < mesh.axis_sizes().size(); ++axis) {
    if (spec->layout->placements[axis].is_shard()) elements /= mesh.axis_sizes()[axis];
  }
  return elements;
}

/// Applies a rule, one axis after another.
class Decider {
 public:
  Decider(const OperatorInfo& info, const CallReading& reading, DeviceMesh& mesh)
      : info_(info), reading_(reading), mesh_(mesh), num_axes_(mesh.axis_sizes().size()) {}

  /// Returns nullopt if a view would shard a dimension of its result in a way that no layout can express.
  std::optional<Decision> decide(const OpRule& rule) {
    Decision decision;
    wanted_.assign(reading_.tensors.size(), Layout(num_axes_));
    for (size_t axis = 0; axis < num_axes_; ++axis) take(choose(rule, axis), axis, decision);
    if (rule.map && !can_be_said()) return std::nullopt;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      decision.inputs.push_back(mesh_.layout(wanted_[i], reading_.call.tensors[i]));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) outputs_[i].layout = mesh_.layout(results_[i], sizes_of(outputs_[i]));
    localize(rule, decision);
    decision.same_strides = is_even_everywhere(decision);
    // A view of a tensor that only looks contiguous.
    if (!decision.same_strides && rule.sizes_argument >= 0 && rule.map && decision.execution == Execution::kPlain &&
        info_.name.find("view") != std::string::npos && !decision.local_sizes.empty()) {
      decision.execution = Execution::kReshape;
    }
    decision.outputs = std::move(outputs_);
    return decision;
  }

 private:
  using Layout = std::vector<Placement>;

  Strategy choose(const OpRule& rule, size_t axis) {
    AxisState state;
    state.axis_size = mesh_.axis_sizes()[axis];
    state.written = reading_.written;
    state.cut_labels = cut_labels_;
    for (const at::Tensor& tensor : reading_.tensors) {
      const MeshSpec* spec = mesh_spec(tensor);
      state.current.push_back(spec ? spec->layout->placements[axis] : Placement::replicate());
      state.local_elements.push_back(elements_of_a_rank(tensor, mesh_));
    }
    for (size_t result = 0; result < info_.returned.size(); ++result) {
      if (info_.returned[result] < 0) continue;
      const int tensor = reading_.call.index(static_cast<size_t>(info_.returned[result]));
      if (tensor >= 0) state.returned.emplace_back(static_cast<int>(result), tensor);
    }
    std::optional<Strategy> strategy = choose_strategy(rule, reading_.call, state);
    if (strategy) return std::move(*strategy);
    throw Error(fmt::format("{} writes in place into a tensor that cannot stay as it lies along {}", describe(reading_),
                            mesh_.mesh().axes()[axis].name),
                "redistribute that tensor first (a partial sum to replicate), or use the form that returns a new one");
  }

  void take(const Strategy& strategy, size_t axis, Decision& decision) {
    for (size_t i = 0; i < wanted_.size(); ++i) wanted_[i][axis] = strategy.inputs[i];
    if (strategy.execution != Execution::kPlain) decision.execution = strategy.execution;
    if (strategy.label != kFixed) cut_labels_.push_back(strategy.label);
    for (const int argument : strategy.divided) decision.divided.emplace_back(argument, mesh_.axis_sizes()[axis]);
    if (outputs_.size() < strategy.outputs.size()) {
      outputs_.resize(strategy.outputs.size(), outputs_.empty() ? Decision::Output{} : outputs_[0]);
      results_.resize(outputs_.size(), results_.empty() ? Layout(num_axes_) : results_[0]);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Cut& cut = strategy.outputs[std::min(i, strategy.outputs.size() - 1)];
      results_[i][axis] = cut.placement;
      if (cut.placement.is_shard()) outputs_[i].extents.emplace_back(cut.placement.dim, cut.extent);
    }
  }

  /// Two axes may shard one dimension of a view's result only as they shard one of its input, and evenly.
  bool can_be_said() const {
    for (size_t i = 0; i < results_.size(); ++i) {
      const std::vector<int64_t> sizes = sizes_of(outputs_[i]);
      for (size_t a = 0; a < num_axes_; ++a) {
        for (size_t b = a + 1; b < num_axes_; ++b) {
          const Placement &first = results_[i][a], &second = results_[i][b];
          if (!first.is_shard() || !second.is_shard(first.dim)) continue;
          const int64_t parts =
              mesh_.axis_sizes()[a] * mesh_.axis_sizes()[b] * std::max(first.stretches, second.stretches);
          if (wanted_[0][a].dim != wanted_[0][b].dim || sizes[static_cast<size_t>(first.dim)] % parts != 0)
            return false;
        }
      }
    }
    return true;
  }

  bool is_even_everywhere(const Decision& decision) const {
    for (size_t i = 0; i < reading_.tensors.size(); ++i) {
      const MeshSpec* spec = mesh_spec(reading_.tensors[i]);
      const std::vector<int64_t>& sizes = reading_.call.tensors[i];
      if (!is_even(*decision.inputs[i], mesh_, sizes) || (spec && !is_even(*spec->layout, mesh_, sizes))) return false;
    }
    return std::all_of(outputs_.begin(), outputs_.end(), [&](const Decision::Output& output) {
      return is_even(*output.layout, mesh_, sizes_of(output));
    });
  }

  /// Sizes that are right for sharded dimensions, the only ones that layout() reads.
  static std::vector<int64_t> sizes_of(const Decision::Output& output) {
    std::vector<int64_t> sizes;
    for (const auto& [dim, extent] : output.extents) {
      sizes.resize(std::max(sizes.size(), static_cast<size_t>(dim) + 1), 1);
      sizes[static_cast<size_t>(dim)] = extent;
    }
    return sizes;
  }

  /// Converts arguments that contain sizes.
  void localize(const OpRule& rule, Decision& decision) const {
    const auto local = [&](const std::vector<int64_t>& sizes, const MeshLayout& layout) {
      return local_sizes(sizes, layout.placements, mesh_.axis_sizes(), mesh_.coordinates());
    };
    const Decision::Output& first = outputs_[0];
    if (!rule.sizes.empty() || rule.execution == Execution::kReshape ||
        (rule.sizes_argument >= 0 && !first.extents.empty())) {
      decision.sizes_argument = rule.sizes_argument;
      decision.local_sizes = rule.sizes_argument >= 0 && rule.sizes.empty()
                                 ? reading_.call.integers(static_cast<size_t>(rule.sizes_argument))
                                 : rule.sizes;
      const std::vector<int64_t> here = local(sizes_of(first), *first.layout);
      for (const auto& [dim, extent] : first.extents) {
        decision.local_sizes[static_cast<size_t>(dim)] = here[static_cast<size_t>(dim)];
      }
    }
    for (const auto& [argument, label] : rule.counts) {
      const Labels& labels = rule.inputs[0];
      const auto dim = static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
      decision.counted.emplace_back(argument, local(reading_.call.tensors[0], *decision.inputs[0])[dim]);
    }
  }

  const OperatorInfo& info_;
  const CallReading& reading_;
  DeviceMesh& mesh_;
  size_t num_axes_;
  std::vector<Layout> wanted_, results_;
  std::vector<Decision::Output> outputs_;
  std::vector<int> cut_labels_;
};

}  // namespace

CallReading::CallReading(const OperatorInfo& info, std::span<const c10::IValue> arguments) {
  call.name = info.name;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t before = tensors.size();
    call.arguments.push_back(read(arguments[i]));
    for (size_t t = before; info.written[i] && t < tensors.size(); ++t) written.push_back(static_cast<int>(t));
  }
}

int CallReading::add(const at::Tensor& tensor) {
  if (!tensor.defined()) return -1;
  tensors.push_back(tensor);
  call.tensors.push_back(tensor.sizes().vec());
  call.masks.push_back(tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
  return static_cast<int>(tensors.size()) - 1;
}

Argument CallReading::read(const c10::IValue& value) {
  if (value.isTensor()) return TensorArgument{add(value.toTensor())};
  if (value.isTensorList() || value.isOptionalTensorList()) {
    TensorListArgument list;
    for (const c10::IValue& element : value.toListRef()) {
      list.indices.push_back(element.isTensor() ? add(element.toTensor()) : -1);
    }
    return list;
  }
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return value.toBool();
  if (value.isIntList() || value.isBoolList()) {
    std::vector<int64_t> list;
    append_list(value, list);
    list.erase(list.begin());
    return list;
  }
  if (value.isString()) return value.toStringRef();
  return {};
}

void set_strict(bool strict) { strict_mode = strict; }
bool is_strict() { return strict_mode; }

bool append_key(const OperatorInfo& info, std::span<const c10::IValue> arguments, DecisionKey& key) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      append_tensor(value.toTensor(), key);
    } else if (value.isNone()) {
      key.push_back(-3);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      const auto elements = value.toListRef();
      key.push_back(static_cast<int64_t>(elements.size()));
      for (const c10::IValue& element : elements) {
        append_tensor(element.isTensor() ? element.toTensor() : at::Tensor(), key);
      }
    } else if (info.keyed[i]) {
      if (value.isInt()) {
        key.push_back(value.toInt());
      } else if (value.isBool()) {
        key.push_back(value.toBool());
      } else if (value.isIntList() || value.isBoolList()) {
        append_list(value, key);
      } else if (value.isString()) {
        key.push_back(static_cast<int64_t>(std::hash<std::string>()(value.toStringRef())));
      } else {
        return false;
      }
    }
  }
  return true;
}

Decision decide(const OperatorInfo& info, std::span<const c10::IValue> arguments, DeviceMesh& mesh) {
  const CallReading reading(info, arguments);
  const std::optional<OpRule> rule = find_rule(reading.call);
  if (!rule && mesh.mesh().size() > 1) note_missing_rule(reading, info.is_random);
  if (rule && !(rule->map && is_cut_twice(reading, mesh))) {
    if (std::optional<Decision> decision = Decider(info, reading, mesh).decide(*rule)) return std::move(*decision);
  }
  OpRule gathers;
  gathers.outputs.resize(1);
  if (rule && rule->execution == Execution::kReshape) {
    gathers.execution = Execution::kReshape;
    gathers.sizes = rule->sizes;
  }
  return *Decider(info, reading, mesh).decide(gathers);
}

size_t DecisionCache::Hash::operator()(std::span<const int64_t> key) const noexcept {
  uint64_t hash = 0x9E3779B97F4A7C15;
  for (const int64_t value : key) hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccd, hash ^= hash >> 32;
  return hash;
}

bool DecisionCache::Equal::operator()(std::span<const int64_t> a, std::span<const int64_t> b) const noexcept {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

const Decision* DecisionCache::find(std::span<const int64_t> key) const {
  const auto at = decisions_.find(key);
  return at == decisions_.end() ? nullptr : &at->second;
}

const Decision* DecisionCache::insert(std::span<const int64_t> key, Decision decision) {
  return &decisions_.insert_or_assign(Key(key.begin(), key.end()), std::move(decision)).first->second;
}

}  // namespace trireme
