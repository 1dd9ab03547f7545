// `trireme bench train`, the command: see docs/bench.md for what it shows and how it measures.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli {

/// Registers `train` under `trireme bench`.
void add_bench_train(CLI::App& bench, int& exit_code);

}  // namespace trireme::cli
