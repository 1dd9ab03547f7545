// Small trainings with parameter servers, for the tests of them.
#pragma once

#include "numerics/training.h"

namespace trireme {

/// `servers` = 0: the same training by all-reduce.
inline Config served(const std::string& model, const Words& more, int servers = 1,
                     const std::string& mode = "synchronous") {
  Words words = {"--optimizer.warmup_steps=0", "--parallel.bucket_mb=0.02"};
  words.insert(words.end(), more.begin(), more.end());
  if (servers > 0) {
    words.insert(words.end(),
                 {"--parallel.aggregation=server", fmt::format("--server.count={}", servers), "--server.mode=" + mode});
  }
  return config_of(model, words);
}

inline const Words kMomentum = {"--optimizer.kind=sgd", "--optimizer.momentum=0.9", "--optimizer.lr=0.01"};
inline const Words kPlainSgd = {"--optimizer.kind=sgd", "--optimizer.momentum=0", "--optimizer.weight_decay=0",
                                "--optimizer.lr=0.1"};

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace trireme
