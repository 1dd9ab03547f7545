// The parameters of a model in flat memory: float32 master weights that the optimizer updates in one pass, and, for
// mixed precision, the copies that the model computes with.
//
// What autocast would cast at each use (matrices, kernels, embeddings) is kept in the compute type; vectors (norms and
// biases) stay in float32. In float32 the master weights are the parameters themselves.
//
// [Note: Sharded parameters]
// Matrices may be sharded over replicas: each has the master weights of its part of every group (a Shard), and updates
// them alone. What the model computes with is gathered from all of them before its use: once after an update, or, where
// not even that is kept, before each use and freed behind it. A group's memory comes and goes under the tensors, which
// keep their storage; so what autograd has saved of them is gathered again with them, and nothing counts as a change.
//
// [Note: Weights elsewhere]
// Where groups come and go, a rank's own part need not lie where the model computes. It can lie in a file, or, for a
// GPU, in the host's memory: then a gather begins with a copy of that part to its place in the group, on a lane of its
// own, while the layer before computes. A worker without replicas does the same, and gathers from itself alone.
//
// Owner: the trainer; the model's parameters are views of it and must not outlive it. Threads: one at a time. Gathering
// is collective in the shard group, in the same order on all; it fails with CommError.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/compress/formats/block_format.h"
#include "trireme/compress/processor.h"
#include "trireme/runtime/flat_layout.h"
#include "trireme/runtime/group_buffers.h"
#include "trireme/tensor/device.h"

namespace trireme {

/// How parameters are sharded over replicas.
struct ParameterSharding {
  Communicator* shard_group = nullptr;  ///< null: nothing is sharded
  bool frees = false;                   ///< only its own shard is kept; the rest is there while it is used
  std::string offload = {};             ///< a folder for what lies elsewhere; empty: memory
  /// Master weights, also of float32 and of vectors, and what the optimizer alone touches lie in the host's memory,
  /// apart from what the model computes with: for an optimizer that runs there.
  bool masters_on_host = false;
  /// Where `frees`: how a group travels to those who compute with it; unset: as it is.
  std::optional<BlockFormat> format = std::nullopt;
  bool at_once = false;            ///< where `frees`: all groups may be gathered at the same time
  bool weights_elsewhere = false;  ///< where `frees`: own parts, too, lie on the host or in the folder
};

/// Parameters that are laid out together: those of a stage.
struct ParameterGroups {
  struct Item {
    std::string name;
    torch::Tensor parameter;
    bool is_owned = true;  ///< false: a copy of what another stage owns and updates
  };
  std::vector<Item> items;  ///< a second use that lies where the first does has an undefined tensor
  FlatLayout layout;        ///< of these items
};

class ParameterStore {
 public:
  struct Entry {
    std::string name;
    torch::Tensor parameter;  ///< the module's own; its memory is a view of the flat one
    torch::Tensor master;     ///< float32, in the parameter's shape (of a mesh tensor, this rank's part); undefined
                              ///< where it is sharded
    bool is_matrix = false;   ///< two dimensions or more
    bool is_sharded = false;
    size_t stage = 0, item = 0;  ///< where it is laid out
  };
  /// What this rank updates: elements first … first + count − 1 of an entry, or all of it.
  struct Shard {
    size_t entry = 0;
    int64_t first = 0, count = 0;
    torch::Tensor master;   ///< flat, float32
    torch::Tensor compute;  ///< flat: what the model computes with; undefined where that is the master
    int64_t offset = 0;     ///< in buffers of num_owned() elements, for the optimizer's state
    size_t stage = 0;       ///< where its gradient lies: elements at … of the shard of a group, or of the group
    int group = 0;
    int64_t at = 0;
  };

  /// Takes over the parameters that need gradients: their values move to flat memory.
  ParameterStore(const torch::nn::Module& model, torch::ScalarType compute_type);
  /// The same in given groups, sharded. `value(name, parameter)` gives what a parameter begins with: of a mesh tensor,
  /// this rank's part.
  using Value = std::function<torch::Tensor(const std::string& name, const torch::Tensor& parameter)>;
  ParameterStore(std::vector<ParameterGroups> stages, torch::ScalarType compute_type, const ParameterSharding& sharding,
                 const Value& value);
  ~ParameterStore();

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Shard>& shards() const { return shards_; }
  /// Elements of all shards, with gaps.
  int64_t num_owned() const { return num_owned_; }
  /// The number of an entry, or -1.
  int find(const std::string& name) const;
  torch::Device device() const { return device_; }
  torch::ScalarType compute_type() const { return compute_type_; }
  bool masters_on_host() const { return sharding_.masters_on_host; }
  /// `count` zeros for what the optimizer alone touches: in memory or in a file.
  torch::Tensor optimizer_zeros(int64_t count) const;
  /// A tensor of this rank's part of an entry, such as its master weights, as the whole tensor: a mesh tensor where the
  /// parameter is one.
  static torch::Tensor as_whole(const Entry& entry, const torch::Tensor& part);
  /// After the masters have changed: those that the model computes with follow, and what is sharded must be gathered. A
  /// GPU copies those of the host in its turn: they may change again when it has come to a later synchronize().
  void publish();
  /// The same for one shard alone, which is not sharded.
  void publish(const Shard& shard) const;

  /// This rank's part of a float32 tensor that is laid out as the shards are (`of_shard(i)`), of the whole shard group,
  /// in the shape of the entry. Collective where the entry is sharded.
  torch::Tensor gather_entry(size_t entry, const std::function<torch::Tensor(size_t shard)>& of_shard) const;
  /// And back: `whole` has the shape of the entry.
  void scatter_entry(size_t entry, const torch::Tensor& whole,
                     const std::function<torch::Tensor(size_t shard)>& of_shard) const;

  // Of a sharded group.
  bool frees() const { return sharding_.frees; }
  /// Begins to gather it, unless it is there or under way.
  void start_gather(size_t stage, int group);
  /// Returns when it is there; begins it where nobody has.
  void finish_gather(size_t stage, int group);
  /// Nothing where all is kept.
  void free(size_t stage, int group);
  /// The elements of an item of a sharded group that lie in this rank's part, as the model computes with them.
  torch::Tensor own_part(size_t stage, size_t item) const;
  /// Its shards have changed: it must be gathered again.
  void mark_stale(size_t stage, int group);
  void mark_all_stale();
  /// All groups that are kept whole.
  void gather_all();

  /// Of weights, those of the optimizer among them; and of groups that are gathered for a while.
  size_t num_bytes() const;
  size_t buffer_bytes() const { return buffers_.num_bytes() + packed_buffers_.num_bytes(); }
  /// That this rank has sent of its parts to those who gathered them.
  uint64_t bytes_gathered() const { return bytes_gathered_; }

 private:
  struct Group;
  torch::Tensor zeros_elsewhere(int64_t count, torch::ScalarType type) const;
  void add_group(size_t stage, int number, const ParameterGroups& all, const Value& value);
  Group& group_at(size_t stage, int group) const;

  const torch::ScalarType compute_type_;
  const ParameterSharding sharding_;
  torch::Device device_{torch::kCPU};
  std::vector<Entry> entries_;
  std::vector<Shard> shards_;
  int64_t num_owned_ = 0;
  std::vector<FlatLayout> layouts_;                          ///< of stages
  std::vector<std::vector<std::unique_ptr<Group>>> groups_;  ///< by stage
  std::vector<std::vector<size_t>> entry_of_item_;           ///< by stage; SIZE_MAX: none
  GroupBuffers buffers_, packed_buffers_;                    ///< for gathered groups
  std::unique_ptr<Processor> processor_;                     ///< packs on a GPU; null: the host does
  std::unique_ptr<UploadLane> lane_;                         ///< to a GPU, where own parts lie on the host
  size_t num_turns_ = 2;                                     ///< in these
  bool next_is_odd_ = false;
  uint64_t bytes_gathered_ = 0;
};

}  // namespace trireme
