// Random numbers of libtorch's own operators (dropout, normal_, …) that depend on what they are for, not on who draws
// them when: a generator of this thread alone.
//
// [Note: Random operators]
// libtorch draws from one generator a process. Layers on several ranks, or on rank threads of one process, would draw
// each other's numbers, and a layer's would depend on which layers ran before it. Inside a scope every operator that
// takes a generator, and is given none, takes the scope's. It is seeded when the first of them comes, so that a scope
// in which nothing is drawn costs nothing. A kernel at a dispatch key that libtorch keeps for others (DeferredInit)
// puts it in; gradients and autocast come after it.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>

namespace trireme {

/// While it lives, this thread draws from a generator that begins at `seed`. Scopes nest. On the CPU; on a GPU the
/// constructor seeds the device's default generator.
class GeneratorScope {
 public:
  explicit GeneratorScope(uint64_t seed, c10::Device device = c10::kCPU);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

  /// Of the innermost scope of this thread; undefined where there is none, or it is for a GPU.
  static at::Generator current();

 private:
  const uint64_t seed_;
  const bool is_on_cpu_;
  at::Generator generator_;
  GeneratorScope* const outer_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> key_;
};

}  // namespace trireme
