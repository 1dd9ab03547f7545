// The operator graph of a model as plain data: operators, sizes, layers and costs.
//
// graph_of() builds it from a configuration; parallelize() captures modules into the same struct. Operators have
// libtorch's names, so that the rules of layout/ apply: mesh tensors can execute every placement chosen here. Plain
// values. Threads: all.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/config/model_config.h"
#include "trireme/layout/operator.h"
#include "trireme/simulate/kernel_cost.h"

namespace trireme {

/// A tensor size as a double, for cost formulas.
double elements(const std::vector<int64_t>& sizes);

struct GraphTensor {
  std::string name;
  std::vector<int64_t> sizes;
  int producer = -1;          ///< the operator that computes it; -1: an input or a parameter
  int batch_dim = -1;         ///< the dim that counts samples; -1: none
  bool is_parameter = false;  ///< its gradient is reduced over ranks that shard samples
  /// A parameter that the operator takes as [inputs, outputs], and the module stores as [outputs, inputs].
  bool transposed = false;
  /// Of a packed parameter (queries, keys, values): how its dim `packed_dim` is sharded, if it is.
  int packed_dim = -1;
  Placement packed = {};
  bool packs_modules = false;  ///< the packed parameters are separate in the module, and sharded separately
  int recipe_dim = -1;         ///< the dim of a parameter that the trainer's tensor parallelism shards; -1: none
  double kept_bytes = 0;       ///< bytes per element kept from the forward pass to the backward pass
};

/// Cost of an unsharded operator. Sharding scales it by the fraction of the first output that a rank holds; costs of
/// linear operators are computed from the sizes of the shards.
struct OperatorWork {
  bool is_linear = false;               ///< matmuls of two inputs: forward, for input gradients, for weight gradients
  std::array<int, 2> factors = {0, 1};  ///< which inputs: rows, weights
  double attention_flops = 0;
  std::vector<Product> forward_products, backward_products;
  std::vector<double> forward_bytes, backward_bytes, weight_bytes;  ///< memory traffic, one entry per kernel
};

struct GraphOperator {
  std::string name;  ///< "attention.qkv"
  OpCall call;       ///< tensors of the call are `inputs`, in order
  std::vector<int> inputs, outputs;
  std::vector<int> written = {};  ///< inputs that it changes in place, which keep their placements
  int layer = 0;
  OperatorWork work;
  double small_parameters = 0;  ///< biases and norms, which every rank replicates
};

struct Graph {
  std::string name;
  int num_layers = 0;
  std::vector<GraphTensor> tensors;
  std::vector<GraphOperator> operators;  ///< in topological order
  std::vector<std::string> layer_names;

  /// Trainable parameters; a parameter that several operators use counts once.
  double num_parameters() const;
  /// Throws Error that names an operator with invalid sizes, order or rule.
  void check() const;
};

struct GraphOptions {
  double element_bytes = 2;
  bool fused = true;         ///< fused attention, and norms that make one pass over the residual stream
  double gated_traffic = 1;  ///< Stack::gated_traffic
};

/// Layers are the trainer's: embedding, blocks and output, or the layers of an image model.
Graph graph_of(const ModelShape& model, int64_t micro_batch, const GraphOptions& options = {});

/// [Note: Folding layers]
/// Equal layers are represented by one of them. Neighbours alternate between `period` representatives, so that a layer
/// sharded by outputs can be followed by one sharded by inputs.
struct Folding {
  std::vector<int> layer_class;     ///< class of each layer
  std::vector<int> representative;  ///< representative of each operator
  /// Operators that each operator represents; empty: it is represented by another.
  std::vector<std::vector<int>> multiples;
};
Folding fold_layers(const Graph& graph, int period = 2);

}  // namespace trireme
