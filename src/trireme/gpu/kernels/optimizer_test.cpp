// Optimizer steps and the norm of gradients: bit by bit what the CPU's arithmetic gives.
#include "trireme/gpu/kernels/optimizer.h"

#include <fmt/format.h>

#include <bit>

#include "trireme/gpu/gpu_test_util.h"

namespace trireme::gpu {
namespace {

using Kind = OptimizerSettings::Kind;

struct Parameter {
  int64_t count;
  bool decays;
  bool has_second_gradient = false;
  size_t shift = 0;  ///< elements from a boundary of 16 bytes
};

/// One parameter's numbers on both sides.
struct Pair {
  Pair(const Parameter& parameter, Type gradient_type, Type compute_type_, uint32_t seed)
      : p(parameter),
        compute_type(compute_type_),
        master(random_values(p.count, Type::kFloat, seed)),
        gradient(random_values(p.count, gradient_type, seed + 1)),
        second_gradient(random_values(p.count, gradient_type, seed + 2)),
        first(random_values(p.count, Type::kFloat, seed + 3, 0.1f)),
        second(random_values(p.count, Type::kFloat, seed + 4, 0.1f)),
        device_master(to_device(master, p.shift * 4)),
        device_gradient(to_device(gradient, gradient_type, p.shift * size_of(gradient_type))),
        device_second_gradient(to_device(second_gradient, gradient_type, p.shift * size_of(gradient_type))),
        device_first(to_device(first, p.shift * 4)),
        device_second(to_device(absolute(second), p.shift * 4)),
        device_compute(static_cast<size_t>(p.count) * size_of(compute_type), p.shift * size_of(compute_type)) {}

  static std::vector<float>& absolute(std::vector<float>& values) {
    for (float& value : values) value = std::abs(value);
    return values;
  }

  ParameterSpan span() const {
    ParameterSpan s;
    s.master = device_master.get<float>();
    s.compute = device_compute.get();
    s.gradient = device_gradient.get();
    if (p.has_second_gradient) s.second_gradient = device_second_gradient.get();
    s.first = device_first.get<float>();
    s.second = device_second.get<float>();
    s.count = p.count;
    s.decays = p.decays;
    return s;
  }

  float gradient_at(size_t i) const { return p.has_second_gradient ? gradient[i] + second_gradient[i] : gradient[i]; }

  Parameter p;
  Type compute_type;
  std::vector<float> master, gradient, second_gradient, first, second;
  DeviceMemory device_master, device_gradient, device_second_gradient, device_first, device_second, device_compute;
};

double tree(const double* values, size_t count) {
  if (count == 1) return values[0];
  const size_t split = std::bit_floor(count - 1);
  return tree(values, split) + tree(values + split, count - split);
}

std::vector<double> reference_blocks(const Pair& pair) {
  const auto count = static_cast<size_t>(pair.p.count);
  std::vector<double> sums;
  for (size_t first = 0; first < count; first += 4096) {
    double lanes[16] = {};
    for (size_t i = first; i < std::min(count, first + 4096); ++i) {
      const double value = pair.gradient_at(i);
      lanes[i % 16] += value * value;
    }
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    sums.push_back(lanes[0]);
  }
  return sums;
}

double reference_norm(const std::vector<Pair>& pairs, double factor) {
  double sum = 0;
  for (const Pair& pair : pairs) {
    const std::vector<double> sums = reference_blocks(pair);
    sum += tree(sums.data(), sums.size());
  }
  return std::sqrt(sum) * factor;
}

void reference_update(Pair& pair, const OptimizerSettings& o, const StepValues& values, double norm) {
  const double clipped = o.clip > 0 && norm > o.clip ? values.factor * o.clip / norm : values.factor;
  const auto factor = static_cast<float>(clipped);
  const double weight_decay = pair.p.decays ? o.weight_decay : 0;
  const bool is_adamw = o.kind == Kind::kAdamW;
  const auto decay = static_cast<float>(is_adamw ? 0 : weight_decay);
  const auto keep = static_cast<float>(is_adamw ? 1 - values.lr * weight_decay : 1);
  const auto adam_lr = static_cast<float>(values.lr / values.correction1), sgd_lr = static_cast<float>(values.lr);
  const auto inverse_root = static_cast<float>(1 / std::sqrt(values.correction2));
  const float rest1 = 1 - o.beta1, rest2 = 1 - o.beta2;
  for (size_t i = 0; i < pair.master.size(); ++i) {
    float& w = pair.master[i];
    const float g = pair.gradient_at(i) * factor + decay * w;
    if (o.kind == Kind::kSgd && o.momentum == 0) {
      w -= sgd_lr * g;
    } else if (o.kind == Kind::kSgd) {
      const float v = o.momentum * pair.first[i] + g;
      pair.first[i] = v;
      w -= sgd_lr * (o.nesterov ? g + o.momentum * v : v);
    } else {
      const float m = pair.first[i] + rest1 * (g - pair.first[i]);
      const float v = o.beta2 * pair.second[i] + rest2 * (g * g);
      pair.first[i] = m;
      pair.second[i] = v;
      w = keep * w - adam_lr * (m / (std::sqrt(v) * inverse_root + o.eps));
    }
  }
}

size_t num_different(const std::vector<float>& a, const std::vector<float>& b) {
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]);
  return different;
}

void expect_same_bits(const Pair& pair, const std::string& what) {
  const auto same = [&](const DeviceMemory& device, const std::vector<float>& host, const char* name) {
    const auto values = to_host<float>(device);
    EXPECT_EQ(num_different(values, host), 0u) << what << ": " << name << " of " << host.size() << " elements; first "
                                               << values[0] << ", expected " << host[0];
  };
  same(pair.device_master, pair.master, "weights");
  same(pair.device_first, pair.first, "first state");
  same(pair.device_second, pair.second, "second state");
  std::vector<float> copy = pair.master;
  for (float& value : copy) value = rounded(value, pair.compute_type);
  EXPECT_EQ(num_different(to_host(pair.device_compute, pair.compute_type), copy), 0u) << what << ": the copy";
}

class OptimizerTest : public GpuTest {
 protected:
  std::vector<Pair> make(const std::vector<Parameter>& parameters, Type gradient_type, Type compute_type) {
    std::vector<Pair> pairs;
    pairs.reserve(parameters.size());
    for (const Parameter& parameter : parameters) {
      pairs.emplace_back(parameter, gradient_type, compute_type, static_cast<uint32_t>(10 * pairs.size() + 1));
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return pairs;
  }

  static std::vector<ParameterSpan> spans_of(const std::vector<Pair>& pairs) {
    std::vector<ParameterSpan> spans;
    for (const Pair& pair : pairs) spans.push_back(pair.span());
    return spans;
  }

  static StepValues values_for(const OptimizerSettings& settings, int step) {
    StepValues values;
    values.factor = 1.0 / 3;
    values.lr = 1e-2 / step;
    values.correction1 = 1 - std::pow(settings.beta1, step);
    values.correction2 = 1 - std::pow(settings.beta2, step);
    return values;
  }

  void put(const DeviceMemory& to, const StepValues& values) {
    check(cudaMemcpy(to.get(), &values, sizeof values, cudaMemcpyDefault), "cudaMemcpy");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  /// Some steps on both sides; everything must stay bit-equal.
  void check_steps(std::vector<Pair> pairs, Type gradient_type, const OptimizerSettings& settings,
                   const std::string& what) {
    const DeviceMemory device_values(sizeof(StepValues));
    ParameterBlocks blocks(spans_of(pairs), gradient_type, pairs[0].compute_type);
    for (int step = 1; step <= 3; ++step) {
      const StepValues values = values_for(settings, step);
      put(device_values, values);
      blocks.gradient_norm(device_values.get<StepValues>(), stream_);
      blocks.update(settings, device_values.get<StepValues>(), stream_);
      wait();
      const double norm = reference_norm(pairs, values.factor);
      const StepValues written = to_host<StepValues>(device_values)[0];
      EXPECT_EQ(written.norm, norm) << what << ", step " << step;
      EXPECT_EQ(written.skipped, 0) << what;
      for (Pair& pair : pairs) {
        reference_update(pair, settings, values, norm);
        expect_same_bits(pair, fmt::format("{}, step {}, parameter of {} elements", what, step, pair.p.count));
      }
    }
  }
};

const std::vector<Parameter> kParameters = {
    {1, false},         {3, true},    {768, false},           {4096, true},
    {5000, true, true}, {4097, true}, {12345, true, true, 1}, {8192, false, false, 3}};

TEST_F(OptimizerTest, EveryRuleHasTheBitsOfTheCpu) {
  std::vector<std::pair<std::string, OptimizerSettings>> all(6);
  all[0] = {"sgd", {.kind = Kind::kSgd, .weight_decay = 0.1}};
  all[1] = {"momentum", {.kind = Kind::kSgd, .weight_decay = 0.1, .momentum = 0.9f}};
  all[2] = {"nesterov", {.kind = Kind::kSgd, .weight_decay = 0.1, .momentum = 0.9f, .nesterov = true}};
  all[3] = {"adam", {.kind = Kind::kAdam, .weight_decay = 0.1}};
  all[4] = {"adamw", {.kind = Kind::kAdamW, .beta2 = 0.95f, .weight_decay = 0.1}};
  all[5] = {"adamw, clipped", {.kind = Kind::kAdamW, .weight_decay = 0.1, .clip = 1}};
  for (const auto& [name, settings] : all) {
    for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
      check_steps(make(kParameters, type, Type::kBFloat16), type, settings,
                  fmt::format("{}, gradients of {}", name, name_of(type)));
    }
  }
}

TEST_F(OptimizerTest, SquaresOfBlocksHaveTheBitsOfTheCpu) {
  for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    const std::vector<Pair> pairs = make(kParameters, type, Type::kBFloat16);
    ParameterBlocks blocks(spans_of(pairs), type, Type::kBFloat16);
    std::vector<double> expected, found(static_cast<size_t>(blocks.num_blocks()));
    for (const Pair& pair : pairs) {
      for (const double sum : reference_blocks(pair)) expected.push_back(sum);
    }
    blocks.block_squares(found.data(), stream_);
    wait();
    EXPECT_EQ(found, expected) << name_of(type);
  }
}

TEST_F(OptimizerTest, CopiesInEveryType) {
  for (const Type compute : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    check_steps(make(kParameters, Type::kFloat, compute), Type::kFloat, {},
                fmt::format("copy in {}", name_of(compute)));
  }
}

/// More than 512 block sums, and more than 32 parameters: every level of the trees.
TEST_F(OptimizerTest, LargeParametersAndManyOfThem) {
  std::vector<Parameter> parameters = {{int64_t{4096} * 700 + 17, true}};
  for (int i = 0; i < 75; ++i) parameters.push_back({4096 * (i % 40) + i + 1, false});
  check_steps(make(parameters, Type::kBFloat16, Type::kBFloat16), Type::kBFloat16, {.weight_decay = 0.1, .clip = 1},
              "large");
}

TEST_F(OptimizerTest, ABadGradientChangesNothing) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<Pair> pairs = make(kParameters, Type::kBFloat16, Type::kBFloat16);
    std::vector<float> gradient = pairs[6].gradient;
    gradient[12344] = bad;
    const auto device_gradient = to_device(gradient, Type::kBFloat16);
    std::vector<ParameterSpan> spans = spans_of(pairs);
    spans[6].gradient = device_gradient.get();
    const DeviceMemory values(sizeof(StepValues));
    put(values, values_for({}, 1));
    ParameterBlocks blocks(spans, Type::kBFloat16, Type::kBFloat16);
    blocks.gradient_norm(values.get<StepValues>(), stream_);
    blocks.update({}, values.get<StepValues>(), stream_);
    wait();
    EXPECT_EQ(to_host<StepValues>(values)[0].skipped, 1) << bad;
    for (const Pair& pair : pairs) {
      EXPECT_EQ(num_different(to_host<float>(pair.device_master), pair.master), 0u) << bad;
      EXPECT_EQ(num_different(to_host<float>(pair.device_first), pair.first), 0u) << bad;
      for (const unsigned char byte : to_host<unsigned char>(pair.device_compute)) ASSERT_EQ(byte, 0xFF);
    }
  }
}

TEST_F(OptimizerTest, ACapturedStepReadsNewValues) {
  std::vector<Pair> pairs = make(kParameters, Type::kFloat, Type::kBFloat16);
  const OptimizerSettings settings{.weight_decay = 0.1, .clip = 1};
  const DeviceMemory device_values(sizeof(StepValues));
  ParameterBlocks blocks(spans_of(pairs), Type::kFloat, Type::kBFloat16);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  blocks.gradient_norm(device_values.get<StepValues>(), stream_);
  blocks.update(settings, device_values.get<StepValues>(), stream_);
  check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate");
  for (int step = 1; step <= 3; ++step) {
    const StepValues values = values_for(settings, step);
    put(device_values, values);
    check(cudaGraphLaunch(instance, stream_), "cudaGraphLaunch");
    wait();
    const double norm = reference_norm(pairs, values.factor);
    for (Pair& pair : pairs) {
      reference_update(pair, settings, values, norm);
      expect_same_bits(pair, fmt::format("replay {}", step));
    }
  }
  cudaGraphExecDestroy(instance);
  cudaGraphDestroy(graph);
}

TEST_F(OptimizerTest, NoParameters) {
  const DeviceMemory values(sizeof(StepValues));
  put(values, {});
  ParameterBlocks blocks({}, Type::kFloat, Type::kFloat);
  blocks.gradient_norm(values.get<StepValues>(), stream_);
  blocks.update({}, values.get<StepValues>(), stream_);
  wait();
  EXPECT_EQ(to_host<StepValues>(values)[0].norm, 0);
  EXPECT_EQ(to_host<StepValues>(values)[0].skipped, 0);
}

}  // namespace
}  // namespace trireme::gpu
