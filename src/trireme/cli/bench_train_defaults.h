// What `trireme bench train` trains where nobody says it: another model on a GPU than on a CPU.
#pragma once

#include <memory>

#include "trireme/cli/bench_train_plan.h"
#include "trireme/cli/bench_train_tokens.h"

namespace trireme::cli {

/// The flags' arguments with a model in them. CPU: gpt2-bench. GPU: GPT-2 124M as it is usually timed (a vocabulary of
/// 50,304, 64 samples a step in one micro-batch a worker, bfloat16, clipping), and one worker. Whatever was asked for
/// stays. Throws UsageError as resolve() does.
ConfigArguments with_bench_defaults(const BenchTrainFlags& flags);

/// Tokens that a file of random ones should have for this training; 0 where the config has data of its own, or where
/// generated text does, as on a CPU.
int64_t num_random_tokens(const Config& config, int64_t steps);

/// Such a file, which the flags' arguments then name; null where none is needed. The trainings need it to live.
std::unique_ptr<RandomTokenFile> add_random_tokens(BenchTrainFlags& flags);

}  // namespace trireme::cli
