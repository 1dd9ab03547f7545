// Which random numbers a forward draws: the runtime says it once, dropout layers read it.
#pragma once

#include <cstdint>

namespace trireme {

struct RandomContext {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t micro_batch = 0;  ///< number among all micro-batches of the step, over all replicas
};

/// Sets the context of this thread while it lives; scopes nest. Set the same one again to repeat a forward.
class RandomScope {
 public:
  explicit RandomScope(const RandomContext& context);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

  /// Of the innermost scope of this thread, or null.
  static const RandomContext* current();

 private:
  RandomContext context_;
  const RandomContext* outer_;
};

}  // namespace trireme
