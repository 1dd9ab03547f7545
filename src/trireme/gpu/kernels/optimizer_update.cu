// One optimizer step over all blocks in one launch: each element is read once and written once.
#include <algorithm>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/optimizer_blocks.cuh"
#include "trireme/gpu/kernels/vector_io.cuh"

namespace trireme::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 3;
constexpr int kVector = 4;

enum class Rule { kPlainSgd, kMomentumSgd, kAdam };

/// The scalars of AdamStep and SgdStep in optimizer/kernels.h, prepared as optimizer/rule.cpp does.
struct Scalars {
  float factor;
  float lr;
  float keep, decay;  ///< of parameters that decay
  float inverse_root;
  float skipped;
};

template <Rule kRule>
__device__ Scalars prepare(const OptimizerSettings& settings, const StepValues& values) {
  const double factor = values.factor, norm = values.norm, lr = values.lr;
  Scalars s;
  s.factor = static_cast<float>(settings.clip > 0 && norm > settings.clip ? factor * settings.clip / norm : factor);
  s.skipped = static_cast<float>(values.skipped);
  s.keep = 1;
  s.decay = static_cast<float>(settings.weight_decay);
  s.inverse_root = 1;
  s.lr = static_cast<float>(lr);
  if constexpr (kRule == Rule::kAdam) {
    s.lr = static_cast<float>(lr / values.correction1);
    s.inverse_root = static_cast<float>(1 / sqrt(values.correction2));
    if (settings.kind == OptimizerSettings::Kind::kAdamW) {
      s.keep = static_cast<float>(1 - lr * settings.weight_decay);
      s.decay = 0;
    }
  }
  return s;
}

/// One element: the expressions of adam_update() and sgd_update().
template <Rule kRule>
__device__ void step(float gradient, float& weight, float& first, float& second, const Scalars& s,
                     const OptimizerSettings& settings) {
  const float g = gradient * s.factor + s.decay * weight;
  if constexpr (kRule == Rule::kAdam) {
    first = first + (1 - settings.beta1) * (g - first);
    second = settings.beta2 * second + (1 - settings.beta2) * (g * g);
    weight = s.keep * weight - s.lr * (first / (sqrtf(second) * s.inverse_root + settings.eps));
  } else if constexpr (kRule == Rule::kMomentumSgd) {
    first = settings.momentum * first + g;
    weight = weight - s.lr * (settings.nesterov ? g + settings.momentum * first : first);
  } else {
    weight = weight - s.lr * g;
  }
}

/// N elements from `at`: all that is known of them is fetched before anything is computed, so that one thread can have
/// several of these under way.
template <Rule kRule, typename Gradient, typename Compute, int N>
struct Elements {
  static constexpr bool kHasFirst = kRule != Rule::kPlainSgd, kHasSecond = kRule == Rule::kAdam;
  Packed<Gradient, N> gradient, other;
  Packed<float, N> weight, first, second;

  __device__ void load(const Block& block, int at) {
    gradient.load(static_cast<const Gradient*>(block.gradient) + at);
    weight.load(block.master + at);
    if constexpr (kHasFirst) first.load(block.first + at);
    if constexpr (kHasSecond) second.load(block.second + at);
    if (block.second_gradient) other.load(static_cast<const Gradient*>(block.second_gradient) + at);
  }

  __device__ void update(const Block& block, int at, const Scalars& s, const OptimizerSettings& settings) {
    float w[N], m[N], v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      w[i] = weight[i];
      m[i] = kHasFirst ? first[i] : 0;
      v[i] = kHasSecond ? second[i] : 0;
      const float g = block.second_gradient ? gradient[i] + other[i] : gradient[i];
      step<kRule>(g, w[i], m[i], v[i], s, settings);
    }
    weight.set(w);
    weight.store(block.master + at);
    if constexpr (kHasFirst) {
      first.set(m);
      first.store(block.first + at);
    }
    if constexpr (kHasSecond) {
      second.set(v);
      second.store(block.second + at);
    }
    if (block.compute) {
      Packed<Compute, N> copy;
      copy.set(w);
      copy.store(static_cast<Compute*>(block.compute) + at);
    }
  }
};

template <Rule kRule, typename Gradient, typename Compute>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    update_kernel(const Block* __restrict__ blocks, int64_t num_blocks, const OptimizerSettings settings,
                  const StepValues* __restrict__ values) {
  constexpr int kStride = kThreads * kVector;
  const auto thread = static_cast<int>(threadIdx.x);
  Scalars s = prepare<kRule>(settings, *values);
  if (s.skipped != 0) return;
  const float keep = s.keep, decay = s.decay;
  for (int64_t index = blockIdx.x; index < num_blocks; index += gridDim.x) {
    const Block block = blocks[index];
    s.keep = block.decays ? keep : 1;
    s.decay = block.decays ? decay : 0;
    const int num_in_vectors = block.aligned ? block.count / kVector * kVector : 0;
    for (int at = thread * kVector; at < num_in_vectors; at += 2 * kStride) {
      Elements<kRule, Gradient, Compute, kVector> here, next;
      const bool has_next = at + kStride < num_in_vectors;
      here.load(block, at);
      if (has_next) next.load(block, at + kStride);
      here.update(block, at, s, settings);
      if (has_next) next.update(block, at + kStride, s, settings);
    }
    for (int at = num_in_vectors + thread; at < block.count; at += kThreads) {
      Elements<kRule, Gradient, Compute, 1> element;
      element.load(block, at);
      element.update(block, at, s, settings);
    }
  }
}

Rule rule_of(const OptimizerSettings& settings) {
  if (settings.kind != OptimizerSettings::Kind::kSgd) return Rule::kAdam;
  return settings.momentum != 0 ? Rule::kMomentumSgd : Rule::kPlainSgd;
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return count;
}

template <Rule kRule>
void launch(const Block* blocks, int64_t num_blocks, Type gradient_type, Type compute_type,
            const OptimizerSettings& settings, const StepValues* values, Stream stream) {
  const auto grid = static_cast<unsigned>(std::min<int64_t>(num_blocks, multiprocessors() * kBlocksPerMultiprocessor));
  with_type(gradient_type, [&]<typename Gradient>(TypeTag<Gradient>) {
    with_type(compute_type, [&]<typename Compute>(TypeTag<Compute>) {
      update_kernel<kRule, Gradient, Compute><<<grid, kThreads, 0, stream>>>(blocks, num_blocks, settings, values);
    });
  });
  check_launch("optimizer step");
}

}  // namespace

void launch_update(const Block* blocks, int64_t num_blocks, Type gradient_type, Type compute_type,
                   const OptimizerSettings& settings, const StepValues* values, Stream stream) {
  switch (rule_of(settings)) {
    case Rule::kPlainSgd:
      return launch<Rule::kPlainSgd>(blocks, num_blocks, gradient_type, compute_type, settings, values, stream);
    case Rule::kMomentumSgd:
      return launch<Rule::kMomentumSgd>(blocks, num_blocks, gradient_type, compute_type, settings, values, stream);
    case Rule::kAdam:
      return launch<Rule::kAdam>(blocks, num_blocks, gradient_type, compute_type, settings, values, stream);
  }
}

}  // namespace trireme::gpu
