// `trireme bench tensor`, the command: `trireme-tensor` does the work.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli {

/// Registers `tensor` under `trireme bench`.
void add_bench_tensor(CLI::App& bench);

}  // namespace trireme::cli
