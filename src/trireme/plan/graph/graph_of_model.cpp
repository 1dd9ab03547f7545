// Builds graphs from configurations: the forward operators of the built-in models.
#include <fmt/format.h>

#include <array>

#include "trireme/plan/graph/graph.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

double real(int64_t n) { return static_cast<double>(n); }

class Builder {
 public:
  Builder(const ModelShape& model, int64_t micro_batch, const GraphOptions& options)
      : m_(model),
        b_(micro_batch),
        e_(options.element_bytes),
        fused_(options.fused),
        gated_(options.gated_traffic * e_) {}

  Graph language() {
    graph_.name = fmt::format("{} of {} layers", name_of(m_.kind), m_.layers);
    const bool llama = m_.kind == ModelKind::kLlama;
    next_layer("embedding");
    const int tokens = add_tensor({.name = "tokens", .sizes = {b_, m_.seq}, .batch_dim = 0});
    const int table = parameter("embedding.token.weight", {m_.vocab, m_.hidden});
    recipe(table, 0);
    int stream = add("embedding", "embedding", {table, tokens}, {}, {b_, m_.seq, m_.hidden});
    op().work.forward_bytes = {tokens_() * real(m_.hidden) * 2 * e_};
    op().work.weight_bytes = {tokens_() * real(m_.hidden) * 3 * e_};
    if (!llama) op().small_parameters = real(m_.seq * m_.hidden);
    keep(stream, 0);
    for (int64_t layer = 0; layer < m_.layers; ++layer) {
      next_layer(fmt::format("layers.{}", layer));
      stream = block(stream);
    }
    next_layer("output");
    output(stream, table);
    return std::move(graph_);
  }

  Graph mlp() {
    graph_.name = fmt::format("mlp of {} layers", m_.layers);
    int64_t in = m_.channels * m_.image * m_.image;
    int x = add_tensor({.name = "images", .sizes = {b_, in}, .batch_dim = 0});
    for (int64_t layer = 0; layer < m_.layers; ++layer, in = m_.hidden) {
      next_layer(fmt::format("layers.{}", layer));
      x = linear("linear", x, in, m_.hidden, fmt::format("layers.{}.linear.weight", layer));
      recipe(op().inputs[1], layer % 2 == 0 ? 1 : 0);
      op().small_parameters = real(m_.hidden);
      x = add("relu", "relu", {x}, {}, {b_, m_.hidden});
      op().work.forward_bytes = {real(b_ * m_.hidden) * 2 * e_};
      op().work.backward_bytes = {real(b_ * m_.hidden) * 3 * e_};
      keep(x, e_);
    }
    next_layer("output");
    x = linear("head", x, in, m_.classes, "head.weight");
    if (m_.layers % 2 == 1) cut_inputs();
    op().small_parameters = real(m_.classes);
    return std::move(graph_);
  }

  Graph resnet() {
    const bool bottleneck = m_.depth >= 50;
    const std::array<int, 4> counts = m_.depth == 18    ? std::array{2, 2, 2, 2}
                                      : m_.depth == 101 ? std::array{3, 4, 23, 3}
                                                        : std::array{3, 4, 6, 3};
    graph_.name = fmt::format("resnet-{}", m_.depth);
    next_layer("stem");
    int64_t side = m_.image;
    int x = add_tensor({.name = "images", .sizes = {b_, m_.channels, side, side}, .batch_dim = 0});
    side = m_.has_small_image() ? side : side / 2;
    x = convolution("conv1", x, 64, side, m_.has_small_image() ? 3 : 7, true);
    if (!m_.has_small_image()) {
      side /= 2;
      x = add("maxpool", "avg_pool2d", {x}, {Sizes{3, 3}}, {b_, 64, side, side});
      op().work.forward_bytes = {real(b_ * 64 * side * side) * 5 * e_};
    }
    int64_t in = 64;
    for (size_t stage = 0; stage < counts.size(); ++stage) {
      const int64_t width = int64_t{64} << stage, out = bottleneck ? 4 * width : width;
      for (int block = 0; block < counts[stage]; ++block) {
        next_layer(fmt::format("layer{}.{}", stage + 1, block));
        const int64_t before = side;
        if (stage > 0 && block == 0) side = (side + 1) / 2;
        int y = x;
        if (bottleneck) {
          y = convolution("conv1", y, width, before, 1, true);
          y = convolution("conv2", y, width, side, 3, true, 0);
          y = convolution("conv3", y, out, side, 1, false, 1);
        } else {
          y = convolution("conv1", y, width, side, 3, true, 0);
          y = convolution("conv2", y, out, side, 3, false, 1);
        }
        const int skip = block == 0 && in != out ? convolution("downsample", x, out, side, 1, false) : x;
        x = add("add", "add.Tensor", {y, skip}, {}, {b_, out, side, side});
        x = pointwise("relu", x, 2, 3);
        keep(x, e_);
        in = out;
      }
    }
    next_layer("output");
    x = add("pool", "mean.dim", {x}, {Sizes{2, 3}, false}, {b_, in});
    x = linear("head", x, in, m_.classes, "fc.weight");
    op().small_parameters = real(m_.classes);
    return std::move(graph_);
  }

 private:
  double tokens_() const { return real(b_ * m_.seq); }
  GraphOperator& op() { return graph_.operators.back(); }
  void next_layer(std::string name) {
    graph_.layer_names.push_back(std::move(name));
    graph_.num_layers = static_cast<int>(graph_.layer_names.size());
  }
  int add_tensor(GraphTensor tensor) {
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<int>(graph_.tensors.size()) - 1;
  }
  int parameter(std::string name, Sizes sizes) {
    return add_tensor({.name = std::move(name), .sizes = std::move(sizes), .is_parameter = true});
  }
  void recipe(int tensor, int dim) { graph_.tensors[static_cast<size_t>(tensor)].recipe_dim = dim; }
  /// Weight of the operator that was added last.
  void cut_outputs() { recipe(op().inputs[1], 1); }
  void cut_inputs() { recipe(op().inputs[1], 0); }
  void keep(int tensor, double bytes) { graph_.tensors[static_cast<size_t>(tensor)].kept_bytes = bytes; }

  /// Adds an operator whose first arguments are tensors; returns its first result.
  int add(std::string name, const std::string& aten, const std::vector<int>& inputs, std::vector<Argument> rest,
          Sizes sizes) {
    return add_many(std::move(name), aten, inputs, std::move(rest), {std::move(sizes)})[0];
  }
  std::vector<int> add_many(std::string name, const std::string& aten, const std::vector<int>& inputs,
                            std::vector<Argument> rest, std::vector<Sizes> outputs) {
    GraphOperator made;
    made.name = std::move(name);
    made.layer = graph_.num_layers - 1;
    made.call.name = "aten::" + aten;
    made.inputs = inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      made.call.arguments.emplace_back(TensorArgument{static_cast<int>(i)});
      made.call.tensors.push_back(graph_.tensors[static_cast<size_t>(inputs[i])].sizes);
      made.call.masks.push_back(false);
    }
    for (Argument& argument : rest) made.call.arguments.push_back(std::move(argument));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string suffix = outputs.size() > 1 ? fmt::format(".{}", i) : "";
      const int batch = !outputs[i].empty() && outputs[i][0] % b_ == 0 ? 0 : -1;
      made.outputs.push_back(add_tensor({.name = made.name + suffix,
                                         .sizes = outputs[i],
                                         .producer = static_cast<int>(graph_.operators.size()),
                                         .batch_dim = batch}));
    }
    graph_.operators.push_back(std::move(made));
    return op().outputs;
  }
  int view(int x, Sizes sizes) {
    Sizes copy = sizes;
    return add("view", "view", {x}, {std::move(copy)}, std::move(sizes));
  }
  int pointwise(const char* name, int x, double forward, double backward) {
    const Sizes sizes = graph_.tensors[static_cast<size_t>(x)].sizes;
    const int y = add(name, name, {x}, {}, sizes);
    double count = 1;
    for (const int64_t size : sizes) count *= real(size);
    op().work.forward_bytes = {count * forward * e_};
    op().work.backward_bytes = {count * backward * e_};
    return y;
  }
  int linear(std::string name, int x, int64_t in, int64_t out, std::string weight) {
    const int w = add_tensor({.name = std::move(weight), .sizes = {in, out}, .is_parameter = true, .transposed = true});
    const int64_t rows = graph_.tensors[static_cast<size_t>(x)].sizes[0];
    const int y = add(std::move(name), "mm", {x, w}, {}, {rows, out});
    op().work.is_linear = true;
    return y;
  }

  /// Fused attention computes only the half below the diagonal.
  int attention(const std::vector<int>& qkv, double width) {
    const Sizes sizes = graph_.tensors[static_cast<size_t>(qkv[0])].sizes;
    const int y = add("attention", "_scaled_dot_product_flash_attention", qkv, {0.0, true}, sizes);
    const double s = real(m_.seq), batch = real(b_ * m_.heads), matrix = batch * s * s;
    OperatorWork& work = op().work;
    if (fused_) {
      work.attention_flops = 2 * matrix * width;
    } else {
      work.forward_products = {{s, s, width, batch}, {s, width, s, batch}};
      work.forward_bytes = {matrix * 2 * e_, matrix * (2 * e_ + 1)};
      work.backward_products = {{s, s, width, batch}, {s, width, s, batch}, {s, width, s, batch}, {s, width, s, batch}};
      work.backward_bytes = {matrix * (2 * e_ + 1), matrix * 1.5 * e_};
    }
    return y;
  }

  int norm(const std::string& name, int x) {
    const bool llama = m_.kind == ModelKind::kLlama;
    const Sizes sizes = {b_, m_.seq, m_.hidden};
    const double count = tokens_() * real(m_.hidden);
    const int y = add_many(name, llama ? "_fused_rms_norm" : "native_layer_norm", {x}, {Sizes{m_.hidden}},
                           {sizes, {b_, m_.seq, 1}})[0];
    op().work.forward_bytes = {count * 2 * e_};
    op().work.backward_bytes = {count * 3 * e_};
    op().small_parameters = (llama ? 1 : 2) * real(m_.hidden);
    keep(y, e_);
    return y;
  }
  int residual(const std::string& name, int x, int stream) {
    const int y = add(name, "add.Tensor", {x, stream}, {}, {b_, m_.seq, m_.hidden});
    const double count = tokens_() * real(m_.hidden);
    if (fused_) {  // fused with the following norm
      op().work.forward_bytes = {count * 4 * e_};
      op().work.backward_bytes = {count * 4 * e_};
    } else {
      op().work.forward_bytes = {count * (3 * e_ + 1)};
      op().work.backward_bytes = {count * (2 * e_ + 1)};
    }
    keep(y, e_ + (m_.kind == ModelKind::kLlama ? 0 : 1));
    return y;
  }
  int block_norm(const std::string& name, int x) {
    const int y = norm(name, x);
    if (fused_) op().work.forward_bytes = op().work.backward_bytes = {};
    return y;
  }

  int block(int stream) {
    const bool llama = m_.kind == ModelKind::kLlama;
    const std::string prefix = graph_.layer_names.back();
    const int64_t rows = b_ * m_.seq, h = m_.hidden, w = h / m_.heads;
    const int64_t kv_heads = llama ? m_.kv_heads : m_.heads, kv = w * kv_heads;
    int x = view(block_norm("norm1", stream), {rows, h});
    x = linear("attention.qkv", x, h, h + 2 * kv, prefix + ".attention.qkv.weight");
    cut_outputs();
    if (!llama) op().small_parameters = real(h + 2 * kv);
    keep(x, e_);
    GraphTensor& weight = graph_.tensors[static_cast<size_t>(op().inputs[1])];
    weight.packed_dim = 1;
    weight.packed = Placement::shard(1);
    if (kv == h) {
      weight.packed.stretches = 3;
    } else {
      weight.packed.ratio = {static_cast<int16_t>(m_.heads / kv_heads), 1, 1};
    }
    x = view(x, {b_, m_.seq, h + 2 * kv});
    std::vector<int> parts = add_many("split", "split_with_sizes", {x}, {Sizes{h, kv, kv}, int64_t{2}},
                                      {{b_, m_.seq, h}, {b_, m_.seq, kv}, {b_, m_.seq, kv}});
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t heads = i == 0 ? m_.heads : kv_heads;
      parts[i] = view(parts[i], {b_, m_.seq, heads, w});
      parts[i] = add("transpose", "transpose.int", {parts[i]}, {int64_t{1}, int64_t{2}}, {b_, heads, m_.seq, w});
    }
    x = attention(parts, real(w));
    if (llama) {  // rotary positions
      op().work.forward_bytes.push_back(tokens_() * real(h + kv) * 2 * gated_);
      op().work.backward_bytes.push_back(tokens_() * real(h + kv) * 2 * gated_);
    }
    x = add("transpose", "transpose.int", {x}, {int64_t{1}, int64_t{2}}, {b_, m_.seq, m_.heads, w});
    x = view(x, {rows, h});
    keep(x, e_);
    x = linear("attention.output", x, h, h, prefix + ".attention.output.weight");
    cut_inputs();
    if (!llama) op().small_parameters = real(h);
    stream = residual("add1", view(x, {b_, m_.seq, h}), stream);

    x = view(block_norm("norm2", stream), {rows, h});
    if (llama) {
      // One matmul for both gates, as in the cost model.
      x = linear("mlp.gate_up", x, h, 2 * m_.ffn, prefix + ".mlp.(gate|up).weight");
      cut_outputs();
      GraphTensor& gates = graph_.tensors[static_cast<size_t>(op().inputs[1])];
      gates.packed_dim = 1;
      gates.packed = Placement::shard(1, 2);
      gates.packs_modules = true;
      keep(x, e_);
      const std::vector<int> gates_up = add_many("split", "split_with_sizes", {x}, {Sizes{m_.ffn, m_.ffn}, int64_t{1}},
                                                 {{rows, m_.ffn}, {rows, m_.ffn}});
      x = add("swiglu", "mul.Tensor", gates_up, {}, {rows, m_.ffn});
      op().work.forward_bytes = {tokens_() * real(m_.ffn) * 3 * gated_};
      op().work.backward_bytes = {tokens_() * real(m_.ffn) * 5 * gated_};
    } else {
      x = linear("mlp.up", x, h, m_.ffn, prefix + ".mlp.up.weight");
      cut_outputs();
      op().small_parameters = real(m_.ffn);
      keep(x, e_);
      x = pointwise("gelu", x, fused_ ? 1 : 2, 3);
      if (!fused_) op().work.backward_bytes.push_back(tokens_() * real(3 * h + m_.ffn) * e_);  // gradients of biases
    }
    keep(x, e_);
    x = linear("mlp.down", x, m_.ffn, h, prefix + ".mlp.down.weight");
    cut_inputs();
    if (!llama) op().small_parameters = real(h);
    return residual("add2", view(x, {b_, m_.seq, h}), stream);
  }

  void output(int stream, int table) {
    const int64_t rows = b_ * m_.seq;
    int x = view(norm("norm", stream), {rows, m_.hidden});
    if (m_.tied) {
      const int turned = add("t", "t", {table}, {}, {m_.hidden, m_.vocab});
      graph_.tensors[static_cast<size_t>(turned)].batch_dim = -1;
      x = add("head", "mm", {x, turned}, {}, {rows, m_.vocab});
      op().work.is_linear = true;
    } else {
      x = linear("head", x, m_.hidden, m_.vocab, "head.weight");
      cut_outputs();
    }
    const double logits = real(rows) * real(m_.vocab);
    x = add("log_softmax", "_log_softmax", {x}, {int64_t{1}, false}, {rows, m_.vocab});
    op().work.forward_bytes = {logits * (fused_ ? 2 * e_ : e_ + 12)};
    op().work.backward_bytes = {logits * (fused_ ? e_ : e_ + 4)};
  }

  int convolution(const std::string& name, int x, int64_t out, int64_t side, int64_t kernel, bool relu,
                  int cut_dim = -1) {
    const Sizes from = graph_.tensors[static_cast<size_t>(x)].sizes;
    const int w =
        parameter(fmt::format("{}.{}.weight", graph_.layer_names.back(), name), {out, from[1], kernel, kernel});
    recipe(w, cut_dim);
    const int64_t stride = from[2] / side;
    int y = add(name, "convolution", {x, w},
                {std::monostate{}, Sizes{stride, stride}, Sizes{kernel / 2, kernel / 2}, Sizes{1, 1}, false,
                 Sizes{0, 0}, int64_t{1}},
                {b_, out, side, side});
    op().work.is_linear = true;
    keep(y, e_);
    op().small_parameters = real(2 * out);
    // BatchNorm has per-replica statistics, so samples may be sharded; fused with ReLU it is memory-bound.
    y = pointwise(relu ? "relu" : "clone", y, 5, 8);
    keep(y, e_);
    return y;
  }

  const ModelShape& m_;
  const int64_t b_;
  const double e_;
  const bool fused_;
  const double gated_;  ///< bytes per element of gates and rotary positions
  Graph graph_;
};

}  // namespace

Graph graph_of(const ModelShape& model, int64_t micro_batch, const GraphOptions& options) {
  Builder builder(model, micro_batch, options);
  if (model.is_language()) return builder.language();
  return model.kind == ModelKind::kMlp ? builder.mlp() : builder.resnet();
}

}  // namespace trireme
