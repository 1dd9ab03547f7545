// Makes random numbers of libtorch's own operators (dropout, normal_, …) depend on their purpose, not on who draws them
// when, with a generator for this thread.
//
// [Note: Random operators]
// libtorch has one default generator per process. Layers on several ranks, or on rank threads of one process, would
// draw each other's numbers, and a layer's would depend on which layers ran before it. Inside a scope, every operator
// that takes a generator and is given none uses the scope's. It is seeded on first use, so a scope in which nothing is
// drawn costs nothing. A kernel at a reserved dispatch key of libtorch (DeferredInit) inserts it, before autograd and
// autocast.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>

namespace trireme {

/// While it lives, this thread draws from a generator that starts at `seed`. Scopes nest. For a GPU, the constructor
/// seeds the device's default generator instead.
class GeneratorScope {
 public:
  explicit GeneratorScope(uint64_t seed, c10::Device device = c10::kCPU);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

  /// The generator of this thread's innermost scope; undefined if there is none, or if it is for a GPU.
  static at::Generator current();

 private:
  const uint64_t seed_;
  const bool is_on_cpu_;
  at::Generator generator_;
  GeneratorScope* const outer_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
};

}  // namespace trireme
