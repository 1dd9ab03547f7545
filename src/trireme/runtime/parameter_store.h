// The parameters of a model in flat memory: float32 master weights that the optimizer updates in one pass, and, for
// mixed precision, the copies that the model computes with.
//
// What autocast would cast at each use (matrices, kernels, embeddings) is kept in the compute type; vectors (norms and
// biases) stay in float32. In float32 the master weights are the parameters themselves.
// Owner: the trainer; the model's parameters are views of it and must not outlive it. Threads: one at a time.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace trireme {

class ParameterStore {
 public:
  struct Entry {
    std::string name;
    torch::Tensor parameter;  ///< the module's own; its memory is a view of the flat one
    torch::Tensor master;     ///< float32, in the parameter's shape; of a mesh tensor, this rank's part
    int64_t offset = 0;       ///< in the flat buffers
    bool is_matrix = false;   ///< two dimensions or more
  };

  /// Takes over the parameters that need gradients: their values move to flat memory.
  ParameterStore(const torch::nn::Module& model, torch::ScalarType compute_type);

  const std::vector<Entry>& entries() const { return entries_; }
  /// The number of an entry, or -1.
  int find(const std::string& name) const;
  /// All master weights; entries begin at multiples of 64 bytes, gaps are 0.
  const torch::Tensor& master() const { return master_; }
  torch::ScalarType compute_type() const { return compute_type_; }
  /// A tensor of this rank's part of an entry, such as its master weights, as the whole tensor: a mesh tensor where the
  /// parameter is one.
  static torch::Tensor as_whole(const Entry& entry, const torch::Tensor& part);
  /// Copies master weights to those that the model computes with, after master weights were loaded.
  void publish();
  size_t num_bytes() const;

 private:
  std::vector<Entry> entries_;
  torch::Tensor master_, compute_;
  torch::ScalarType compute_type_;
};

}  // namespace trireme
