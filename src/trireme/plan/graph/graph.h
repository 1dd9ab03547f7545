// The operator graph of a model as plain data: what is computed, in which sizes, by which layer, and at what cost.
//
// graph_of() writes it from a configuration; whoever runs a module on tensors without data can fill the same struct.
// Operators are named as libtorch names them, so that the rules of layout/ say how each can be cut: a placement that is
// chosen here is one that mesh tensors execute.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/model_config.h"
#include "trireme/layout/operator.h"
#include "trireme/simulate/kernel_cost.h"

namespace trireme {

/// Of a tensor, as a number to compute costs with.
double elements(const std::vector<int64_t>& sizes);

struct GraphTensor {
  std::string name;
  std::vector<int64_t> sizes;
  int producer = -1;          ///< operator; -1: an input or a parameter
  int batch_dim = -1;         ///< that counts samples; -1: none
  bool is_parameter = false;  ///< its gradient is summed over what is cut along samples
  bool transposed = false;    ///< a parameter that the operator sees as [inputs, outputs], and the module the other way
  /// Of a parameter that packs several (queries, keys, values): how its dimension `packed_dim` is cut, if it is.
  int packed_dim = -1;
  Placement packed = {};
  bool packs_modules = false;  ///< those are parameters of their own in the module, each cut for itself
  int recipe_dim = -1;         ///< of a parameter: that the trainer's tensor parallelism cuts; -1: none
  double kept_bytes = 0;       ///< of each element, from the forward to the backward pass
};

/// What an operator costs, whole. A cut divides it by the fraction of the first output that a rank has, but for linear
/// operators, whose products are taken from the sizes of the parts.
struct OperatorWork {
  bool is_linear = false;               ///< a product of two inputs, forward, for inputs and for weights
  std::array<int, 2> factors = {0, 1};  ///< which: rows, and weights
  double attention_flops = 0;
  std::vector<Product> forward_products, backward_products;
  std::vector<double> forward_bytes, backward_bytes, weight_bytes;  ///< memory traffic, one entry a start
};

struct GraphOperator {
  std::string name;  ///< "attention.qkv"
  OpCall call;       ///< tensors of the call are `inputs`, in their order
  std::vector<int> inputs, outputs;
  std::vector<int> written = {};  ///< inputs that it changes in place: they stay as they are
  int layer = 0;
  OperatorWork work;
  double small_parameters = 0;  ///< biases and norms, which every rank has whole
};

struct Graph {
  std::string name;
  int num_layers = 0;
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperator> operators;  ///< each behind those whose results it reads
  std::vector<std::string> layer_names;

  /// Trainable numbers; a parameter that several operators use counts once.
  double num_parameters() const;
  /// Throws Error that names the operator whose sizes, order or rule cannot be.
  void check() const;
};

struct GraphOptions {
  double element_bytes = 2;
  bool fused = true;         ///< attention keeps no matrix, and norms pass once over the residual stream
  double gated_traffic = 1;  ///< Stack::gated_traffic
};

/// Layers are those that the trainer cuts between: embedding, blocks and output, or the layers of an image model.
Graph graph_of(const ModelShape& model, int64_t micro_batch, const GraphOptions& options = {});

/// [Note: Folding layers]
/// Layers that do the same are represented by one of them. Neighbours alternate between `period` representatives, so
/// that a cut by outputs can be followed by one by inputs.
struct Folding {
  std::vector<int> layer_class;             ///< of each layer
  std::vector<int> representative;          ///< operator that stands for each operator
  std::vector<std::vector<int>> multiples;  ///< operators that each operator stands for; empty: represented itself
};
Folding fold_layers(const Graph& graph, int period = 2);

}  // namespace trireme
