// Which random numbers a forward pass draws: the runtime sets it, dropout layers read it.
#pragma once

#include <cstdint>

namespace trireme {

struct RandomContext {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t micro_batch = 0;  ///< number among all micro-batches of the step, over all replicas
};

/// Sets the context of this thread while it lives; scopes nest. Set the same context again to repeat a forward pass.
class RandomScope {
 public:
  explicit RandomScope(const RandomContext& context);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  /// The context of this thread's innermost scope, or null.
  static const RandomContext* current();

 private:
  RandomContext context_;
  const RandomContext* outer_;
};

}  // namespace trireme
