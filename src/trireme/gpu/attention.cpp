#include "trireme/gpu/attention.h"

#include <cuda_runtime.h>
#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "trireme/base/error.h"

namespace trireme::gpu {
namespace {

namespace fe = cudnn_frontend;

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : int64_t { kQ = 1, kK, kV, kO, kLogSums, kDo, kDq, kDk, kDv };

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw Error(fmt::format("{} failed: {}", call, cudnnGetErrorString(status)));
}

/// One for each thread: a handle carries the stream of its next call.
cudnnHandle_t handle_for(Stream stream) {
  struct Owned {
    cudnnHandle_t handle = nullptr;
    int device = -1;
    ~Owned() {
      if (handle) cudnnDestroy(handle);
    }
  };
  thread_local Owned owned;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (owned.device != device) {
    if (owned.handle) cudnnDestroy(owned.handle);
    check_cudnn(cudnnCreate(&owned.handle), "cudnnCreate");
    owned.device = device;
  }
  check_cudnn(cudnnSetStream(owned.handle, stream), "cudnnSetStream");
  return owned.handle;
}

struct Plan {
  fe::graph::Graph graph;
  int64_t scratch_bytes = 0;
};

auto key_of(const AttentionShape& s, bool backward) {
  const auto strides = [](const HeadStrides& x) { return std::tuple(x.sample, x.token, x.head); };
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return std::tuple(device, backward, s.batch, s.seq, s.heads, s.kv_heads, s.head_dim, s.type, s.deterministic,
                    std::tuple(strides(s.q), strides(s.k), strides(s.v), strides(s.o)),
                    backward ? std::tuple(strides(s.dq), strides(s.dk), strides(s.dv), strides(s.d_o))
                             : std::tuple(strides({}), strides({}), strides({}), strides({})));
}

std::string words_of(const AttentionShape& s) {
  return fmt::format("attention of batch {}, {} tokens, {} heads ({} of keys) of {}", s.batch, s.seq, s.heads,
                     s.kv_heads, s.head_dim);
}

/// The graph of one call, not yet built.
class Builder {
 public:
  Builder(const AttentionShape& shape, fe::graph::Graph& graph) : s_(shape), graph_(graph) {
    graph_.set_io_data_type(s_.type == Type::kHalf ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    q_ = input("q", kQ, s_.heads, s_.q);
    k_ = input("k", kK, s_.kv_heads, s_.k);
    v_ = input("v", kV, s_.kv_heads, s_.v);
  }

  void forward() {
    auto [o, log_sums] = graph_.sdpa(q_, k_, v_,
                                     fe::graph::SDPA_attributes()
                                         .set_name("attention")
                                         .set_generate_stats(true)
                                         .set_causal_mask(true)
                                         .set_attn_scale(scale()));
    output(o, kO, s_.heads, s_.o);
    log_sums->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kLogSums);
    log_sums->set_dim({s_.batch, s_.heads, s_.seq, 1}).set_stride({s_.heads * s_.seq, s_.seq, 1, 1});
  }

  void backward() {
    const Tensor o = input("o", kO, s_.heads, s_.o), d_o = input("do", kDo, s_.heads, s_.d_o);
    const Tensor log_sums = graph_.tensor(fe::graph::Tensor_attributes()
                                              .set_name("log_sums")
                                              .set_uid(kLogSums)
                                              .set_data_type(fe::DataType_t::FLOAT)
                                              .set_dim({s_.batch, s_.heads, s_.seq, 1})
                                              .set_stride({s_.heads * s_.seq, s_.seq, 1, 1}));
    auto [dq, dk, dv] = graph_.sdpa_backward(q_, k_, v_, o, d_o, log_sums,
                                             fe::graph::SDPA_backward_attributes()
                                                 .set_name("attention_backward")
                                                 .set_causal_mask(true)
                                                 .set_deterministic_algorithm(s_.deterministic)
                                                 .set_attn_scale(scale()));
    output(dq, kDq, s_.heads, s_.dq);
    output(dk, kDk, s_.kv_heads, s_.dk);
    output(dv, kDv, s_.kv_heads, s_.dv);
  }

 private:
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(s_.head_dim))); }
  std::vector<int64_t> sizes(int64_t heads) const { return {s_.batch, heads, s_.seq, s_.head_dim}; }
  static std::vector<int64_t> strides(const HeadStrides& x) { return {x.sample, x.head, x.token, 1}; }

  Tensor input(const char* name, Uid uid, int64_t heads, const HeadStrides& x) {
    return graph_.tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(sizes(heads)).set_stride(strides(x)));
  }
  void output(const Tensor& tensor, Uid uid, int64_t heads, const HeadStrides& x) {
    tensor->set_output(true).set_uid(uid).set_dim(sizes(heads)).set_stride(strides(x));
  }

  const AttentionShape& s_;
  fe::graph::Graph& graph_;
  Tensor q_, k_, v_;
};

Plan& plan_for(const AttentionShape& shape, bool backward, cudnnHandle_t handle) {
  static std::mutex mutex;
  static std::map<decltype(key_of(shape, backward)), std::unique_ptr<Plan>> plans;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Plan>& plan = plans[key_of(shape, backward)];
  if (plan) return *plan;
  auto made = std::make_unique<Plan>();
  Builder builder(shape, made->graph);
  if (backward) {
    builder.backward();
  } else {
    builder.forward();
  }
  if (auto built = made->graph.build(handle, {fe::HeurMode_t::A}); built.is_bad()) {
    throw Error(fmt::format("cuDNN has no plan for the {}{}: {}", backward ? "backward of " : "", words_of(shape),
                            built.get_message()),
                "set precision.compute = \"float32\", or a head size that is a multiple of 8 and at most 128");
  }
  made->scratch_bytes = made->graph.get_workspace_size();
  plan = std::move(made);
  return *plan;
}

void execute(Plan& plan, cudnnHandle_t handle, std::unordered_map<int64_t, void*> memory, const Scratch& scratch,
             const AttentionShape& shape) {
  void* const room = plan.scratch_bytes > 0 ? scratch(static_cast<size_t>(plan.scratch_bytes)) : nullptr;
  if (auto done = plan.graph.execute(handle, memory, room); done.is_bad()) {
    throw Error(fmt::format("{} failed: {}", words_of(shape), done.get_message()));
  }
}

void* writable(const void* memory) { return const_cast<void*>(memory); }  // cuDNN's map has one type for all

}  // namespace

bool attention_serves(const AttentionShape& shape) {
  return shape.type != Type::kFloat && shape.head_dim % 8 == 0 && shape.head_dim <= 128 && shape.kv_heads > 0 &&
         shape.heads % shape.kv_heads == 0 && shape.seq > 1;
}

void attention(const AttentionShape& shape, const void* q, const void* k, const void* v, void* o, float* log_sums,
               const Scratch& scratch, Stream stream) {
  const cudnnHandle_t handle = handle_for(stream);
  execute(plan_for(shape, false, handle), handle,
          {{kQ, writable(q)}, {kK, writable(k)}, {kV, writable(v)}, {kO, o}, {kLogSums, log_sums}}, scratch, shape);
}

void attention_backward(const AttentionShape& shape, const void* q, const void* k, const void* v, const void* o,
                        const void* d_o, const float* log_sums, void* dq, void* dk, void* dv, const Scratch& scratch,
                        Stream stream) {
  const cudnnHandle_t handle = handle_for(stream);
  execute(plan_for(shape, true, handle), handle,
          {{kQ, writable(q)},
           {kK, writable(k)},
           {kV, writable(v)},
           {kO, writable(o)},
           {kDo, writable(d_o)},
           {kLogSums, writable(log_sums)},
           {kDq, dq},
           {kDk, dk},
           {kDv, dv}},
          scratch, shape);
}

}  // namespace trireme::gpu
