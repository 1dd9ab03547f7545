// The parameters of a model in flat memory: float32 master weights that the optimizer updates in one pass and, for
// mixed precision, the copies that the model computes with.
//
// What autocast would cast at each use (matrices, kernels, embeddings) is stored in the compute dtype; vectors (norms
// and biases) stay in float32. In float32 the master weights are the parameters themselves.
//
// [Note: Sharded parameters]
// Matrices may be sharded over replicas. Each replica holds the master weights of its part of every group (a Shard),
// and only updates those. The weights that the model computes with are gathered from all replicas before use: once per
// update, or, if whole groups are not kept, before each use, to be freed after it. The memory of a group then comes and
// goes, but its tensors keep their storage; so whatever autograd has saved of them is gathered again with them, and
// autograd sees no change.
//
// [Note: Weights elsewhere]
// If groups come and go, a rank's own part need not be where the model computes: it can be in a file or, for a GPU, in
// host memory. A gather then begins with a copy of that part to its place in the group, on a stream of its own, while
// the previous layer computes. A worker without replicas does the same, and gathers from itself alone.
//
// Owner: a StageSet. The model's parameters are views of the store and must not outlive it. Threads: one at a time.
// Gathering is collective in the shard group, in the same order on all ranks; it fails with CommError.
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
  Communicator* shard_group = nullptr;  ///< ranks that hold the shards; null: nothing is sharded
  bool frees = false;        ///< whether a rank only keeps its own part, and groups are gathered for each use
  std::string offload = {};  ///< folder of the files that offloaded tensors are in; empty: host memory
  /// Whether all master weights (of float32 parameters and vectors, too) and the optimizer's state are in host memory,
  /// apart from what the model computes with: for an optimizer that runs there.
  bool masters_on_host = false;
  /// Format in which groups are gathered; unset: as they are. Only used with `frees`.
  std::optional<BlockFormat> format = std::nullopt;
  bool at_once = false;            ///< whether all groups may be there at the same time; only used with `frees`
  bool weights_elsewhere = false;  ///< whether own parts are on the host or in the folder, too; needs `frees`
};

/// Parameters that are laid out together: those of one stage.
struct ParameterGroups {
  struct Item {
    std::string name;
    torch::Tensor parameter;
    bool is_owned = true;  ///< false: a copy of a parameter that another stage owns and updates
  };
  std::vector<Item> items;  ///< a second use in the first one's memory has an undefined tensor
  FlatLayout layout;        ///< layout of these items
};

class ParameterStore {
 public:
  struct Entry {
    std::string name;
    torch::Tensor parameter;  ///< the module's own; its memory is a view of the flat one
    torch::Tensor master;     ///< float32, in the parameter's shape (this rank's part of a mesh tensor); undefined
                              ///< if it is sharded
    bool is_matrix = false;   ///< whether it has two dims or more
    bool is_sharded = false;
    size_t stage = 0, item = 0;  ///< index of its stage, and of its item there
  };
  /// A part that this rank updates: elements first … first + count − 1 of an entry.
  struct Shard {
    size_t entry = 0;
    int64_t first = 0, count = 0;
    torch::Tensor master;   ///< flat, float32
    torch::Tensor compute;  ///< flat: what the model computes with; undefined if that is `master`
    int64_t offset = 0;     ///< offset in optimizer state of num_owned() elements
    size_t stage = 0;       ///< place of its gradient: from element `at` of the group, or of the group's shard
    int group = 0;
    int64_t at = 0;
  };

  /// Takes over the parameters that require gradients: their values move to flat memory.
  ParameterStore(const torch::nn::Module& model, torch::ScalarType compute_type);
  /// The same with given groups, which may be sharded. `value(name, parameter)` returns a parameter's initial value: of
  /// a mesh tensor, this rank's part.
  using Value = std::function<torch::Tensor(const std::string& name, const torch::Tensor& parameter)>;
  ParameterStore(std::vector<ParameterGroups> stages, torch::ScalarType compute_type, const ParameterSharding& sharding,
                 const Value& value);
  ~ParameterStore();

  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Shard>& shards() const { return shards_; }
  /// Number of elements of all shards, including alignment padding.
  int64_t num_owned() const { return num_owned_; }
  /// Index of an entry; -1: no entry has this name.
  int find(const std::string& name) const;
  torch::Device device() const { return device_; }
  torch::ScalarType compute_type() const { return compute_type_; }
  bool masters_on_host() const { return sharding_.masters_on_host; }
  /// Returns `count` zeros for optimizer state: on the optimizer's device, or in a file.
  torch::Tensor optimizer_zeros(int64_t count) const;
  /// Wraps this rank's part of an entry, such as its master weights, as the whole tensor: a mesh tensor if the
  /// parameter is one.
  static torch::Tensor as_whole(const Entry& entry, const torch::Tensor& part);
  /// Call after the masters have changed: updates what the model computes with, and marks sharded groups stale. A GPU
  /// copies masters from the host in stream order: they must not change again before a later synchronize().
  void publish();
  /// The same for the shard of an entry that is not sharded.
  void publish(const Shard& shard) const;

  /// Gathers, over the shard group, an entry of a float32 tensor that is laid out like the shards: of_shard(i) is this
  /// rank's part for shard i. The result has the shape of the entry (this rank's part of a mesh tensor). Collective if
  /// the entry is sharded.
  torch::Tensor gather_entry(size_t entry, const std::function<torch::Tensor(size_t shard)>& of_shard) const;
  /// The reverse: copies this rank's parts of `whole`, which has that shape, to of_shard(i). Not collective.
  void scatter_entry(size_t entry, const torch::Tensor& whole,
                     const std::function<torch::Tensor(size_t shard)>& of_shard) const;

  // For sharded groups:
  bool frees() const { return sharding_.frees; }
  /// Starts to gather a group, unless it is there or in flight.
  void start_gather(size_t stage, int group);
  /// Returns when the group is there; starts to gather it if nobody has.
  void finish_gather(size_t stage, int group);
  /// Frees a group. No-op if whole groups are kept.
  void free(size_t stage, int group);
  /// The elements of an item that are in this rank's part of its group, as the model computes with them.
  torch::Tensor own_part(size_t stage, size_t item) const;
  /// Call when shards of a group have changed: it must be gathered again.
  void mark_stale(size_t stage, int group);
  void mark_all_stale();
  /// Gathers all stale groups if whole groups are kept. No-op with `frees`.
  void gather_all();

  /// Bytes of weights, including master weights; and of groups while they are gathered.
  size_t num_bytes() const;
  size_t buffer_bytes() const { return buffers_.num_bytes() + packed_buffers_.num_bytes(); }
  /// Bytes of its own parts that this rank has sent to the ranks that gather them.
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
  std::vector<FlatLayout> layouts_;                          ///< indexed by stage
  std::vector<std::vector<std::unique_ptr<Group>>> groups_;  ///< indexed by stage and group
  std::vector<std::vector<size_t>> entry_of_item_;           ///< indexed by stage and item; SIZE_MAX: none
  GroupBuffers buffers_, packed_buffers_;                    ///< memory of gathered groups
  std::unique_ptr<Processor> processor_;                     ///< packs on a GPU; null: the host packs
  std::unique_ptr<UploadLane> lane_;  ///< copies own parts from the host to a GPU; null: they are not there
  size_t num_turns_ = 2;              ///< turns in buffers_: two for alternate groups, then one per group with its own
  bool next_is_odd_ = false;
  uint64_t bytes_gathered_ = 0;
};

}  // namespace trireme
