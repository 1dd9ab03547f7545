// How an operator runs on mesh tensors: decided once per combination of layouts, sizes and arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/layout/operator.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {

/// What an operator's schema says, read once.
struct OperatorInfo {
  enum class Family : uint8_t { kNormal, kForeach, kAsItIs, kTurning, kResizing, kStrided };

  std::string name;  ///< name with the overload
  size_t num_arguments = 0;
  std::vector<char> keyed;    ///< non-tensor arguments that decisions depend on
  std::vector<char> written;  ///< arguments that are changed in place
  std::vector<int> returned;  ///< the argument that each result aliases, or -1
  bool changes_in_place = false;
  bool is_composite = false;  ///< libtorch decomposes it into other operators, and it has no rule of its own
  bool is_random = false;
  Family family = Family::kNormal;

  static const OperatorInfo& of(const c10::OperatorHandle& op);
};

/// A call as the rules see it, with its tensors in order.
struct CallReading {
  OpCall call;
  std::vector<at::Tensor> tensors;
  std::vector<int> written;  ///< indices of tensors that are changed in place

  CallReading(const OperatorInfo& info, std::span<const c10::IValue> arguments);

 private:
  int add(const at::Tensor& tensor);
  Argument read(const c10::IValue& value);
};

struct Decision {
  struct Output {
    const MeshLayout* layout = nullptr;
    std::vector<std::pair<int, int64_t>> extents;  ///< global extents of sharded dimensions
  };
  std::vector<const MeshLayout*> inputs;  ///< layouts that the tensors must have, in their order
  std::vector<Output> outputs;            ///< one for all results, or one per result
  Execution execution = Execution::kPlain;
  bool same_strides = true;  ///< all ranks have the same strides, for all results
  int sizes_argument = -1;
  std::vector<int64_t> local_sizes;
  std::vector<std::pair<int, int>> divided;      ///< argument, and the factor by which it is divided
  std::vector<std::pair<int, int64_t>> counted;  ///< argument, and its local value
};

/// Decisions of a mesh, keyed by everything they depend on.
class DecisionCache {
 public:
  using Key = std::vector<int64_t>;
  const Decision* find(std::span<const int64_t> key) const;
  const Decision* insert(std::span<const int64_t> key, Decision decision);
  size_t size() const { return decisions_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::span<const int64_t> key) const noexcept;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(std::span<const int64_t> a, std::span<const int64_t> b) const noexcept;
  };
  std::unordered_map<Key, Decision, Hash, Equal> decisions_;
};

/// Makes the decision for a call with `arguments`. Throws Error if an operand written in place would have to move, or
/// if there is no rule in strict mode.
Decision decide(const OperatorInfo& info, std::span<const c10::IValue> arguments, DeviceMesh& mesh);

/// Appends what a decision depends on. Returns false if an argument cannot be a key; the decision is then not cached.
using DecisionKey = c10::SmallVector<int64_t, 64>;
bool append_key(const OperatorInfo& info, std::span<const c10::IValue> arguments, DecisionKey& key);

/// In strict mode an operator without a rule is an error; otherwise its inputs are gathered, with one warning.
void set_strict(bool strict);
bool is_strict();

}  // namespace trireme
