// The subcommands of `trireme-tensor` that measure; each registers itself and prints JSON or a table.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli {

/// `bench-comm`: one rank of `trireme bench comm --device cuda`. Rank 0 prints, for each operation and size, the time
/// of a call until its end, and that of a copy of as many bytes.
void add_bench_comm_gpu(CLI::App& app, int& exit_code);

/// `bench-tensor`: what `trireme bench tensor` shows. See docs/mesh_tensors.md.
void add_bench_tensor(CLI::App& app, int& exit_code);

/// `probe-device`: what a worker's device reaches in single operators, where calibrations start. See
/// docs/cost_model.md.
void add_probe_device(CLI::App& app, int& exit_code);

}  // namespace trireme::cli
