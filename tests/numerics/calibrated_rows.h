// Trainings of one H200 by this software (bfloat16, deterministic, AdamW, clipping, 1,024 tokens a sample), measured by
// `trireme bench train --device cuda --model NAME --train.global_batch=B --train.micro_batch=B` right after
// `trireme bench train --device cuda --write-cluster` had written tests/data/h200_cluster.json from smaller ones.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/fit_device.h"

namespace trireme::published {

inline std::vector<MeasuredStep> calibrated_rows() {
  struct Size {
    const char* name;
    int64_t layers, hidden, heads;
  };
  constexpr Size k124M{"124M", 12, 768, 12}, k355M{"355M", 24, 1024, 16}, k774M{"774M", 36, 1280, 20},
      k1558M{"1.5B", 48, 1600, 25};
  struct Measured {
    Size size;
    int64_t batch;
    double ms, bytes;
  };
  std::vector<MeasuredStep> rows;
  for (const Measured& m : std::vector<Measured>{{k124M, 8, 15.89, 5.913e+09},
                                                 {k124M, 32, 53.65, 1.412e+10},
                                                 {k124M, 64, 105.28, 2.396e+10},
                                                 {k355M, 8, 40.56, 1.424e+10},
                                                 {k355M, 32, 149.92, 3.459e+10},
                                                 {k774M, 4, 49.34, 2.119e+10},
                                                 {k774M, 16, 158.24, 4.069e+10},
                                                 {k1558M, 4, 95.60, 3.958e+10},
                                                 {k1558M, 16, 309.18, 7.118e+10}}) {
    Job job;
    job.model = {.layers = m.size.layers,
                 .hidden = m.size.hidden,
                 .heads = m.size.heads,
                 .kv_heads = m.size.heads,
                 .ffn = 4 * m.size.hidden,
                 .seq = 1024,
                 .vocab = 50257};
    job.layout.micro_batch = job.layout.global_batch = m.batch;
    rows.push_back(
        {std::string("GPT-2 ") + m.size.name + ", batch " + std::to_string(m.batch), job, m.ms / 1e3, m.bytes});
  }
  return rows;
}

}  // namespace trireme::published
