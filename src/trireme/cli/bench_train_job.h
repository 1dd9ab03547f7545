// One training of `trireme bench train` from start to end, ours or PyTorch's: what its first worker prints as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/bench_train_plan.h"

namespace trireme::cli {

/// `trireme-tensor train --bench` on the workers of the case. Blocks until it ends. Throws Error when it fails,
/// Interrupted when a signal stopped it.
nlohmann::json run_ours(const BenchTrainCase& measured, int64_t warmup);

/// `trireme-tensor WORDS` on so many processes of this machine, with variables of their own. The same.
nlohmann::json run_tensor_program(const std::vector<std::string>& words, int num_processes,
                                  const std::vector<std::pair<std::string, std::string>>& variables);

/// `peer_ddp.py` by the interpreter in $TRIREME_PYTHON, with the shape, batch and workers of the case. The same.
nlohmann::json run_ddp(const BenchTrainCase& measured, int64_t steps, int64_t warmup);

/// Why PyTorch cannot train this beside us, and what to do about it; empty when, as far as can be told, it can.
std::string ddp_problem(const Config& config);

}  // namespace trireme::cli
