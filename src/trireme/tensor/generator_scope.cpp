#include "trireme/tensor/generator_scope.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <mutex>

namespace trireme {
namespace {

constexpr auto kKey = c10::DispatchKey::DeferredInit;
constexpr std::array kDrawing = {"bernoulli",
                                 "bernoulli.p",
                                 "bernoulli_.float",
                                 "bernoulli_.Tensor",
                                 "normal_",
                                 "uniform_",
                                 "random_",
                                 "random_.to",
                                 "random_.from",
                                 "exponential_",
                                 "geometric_",
                                 "cauchy_",
                                 "log_normal_",
                                 "multinomial",
                                 "normal.Tensor_float",
                                 "poisson",
                                 "normal.float_Tensor",
                                 "normal.Tensor_Tensor",
                                 "rrelu_with_noise",
                                 "rrelu_with_noise_",
                                 "binomial",
                                 "_standard_gamma",
                                 "_sample_dirichlet",
                                 "randperm.generator_out"};

thread_local GeneratorScope* innermost = nullptr;

void give_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto place = std::find_if(arguments.begin(), arguments.end(),
                                  [](const c10::Argument& each) { return each.name() == "generator"; });
  c10::IValue& given = stack->end()[place - arguments.end()];  // arguments are at the end of the stack
  if (given.isNone()) {
    if (const at::Generator own = GeneratorScope::current(); own.defined()) given = own;
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

void register_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    static torch::Library all(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    all.fallback(torch::CppFunction::makeFallthrough());
    static torch::Library aten(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    for (const char* name : kDrawing) aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&give_generator>());
  });
}

}  // namespace

GeneratorScope::GeneratorScope(uint64_t seed, c10::Device device)
    : seed_(seed), is_on_cpu_(device.is_cpu()), outer_(innermost) {
  if (is_on_cpu_) {
    register_kernels();
    key_.emplace(kKey);
  } else {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  innermost = this;
}

GeneratorScope::~GeneratorScope() { innermost = outer_; }

at::Generator GeneratorScope::current() {
  if (!innermost || !innermost->is_on_cpu_) return {};
  if (!innermost->generator_.defined()) innermost->generator_ = at::detail::createCPUGenerator(innermost->seed_);
  return innermost->generator_;
}

}  // namespace trireme
