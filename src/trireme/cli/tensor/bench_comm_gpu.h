// `trireme-tensor bench-comm`: one rank of `trireme bench comm --device cuda`. Rank 0 prints a JSON list: for each
// operation and size the time of a call until its end, and that of a copy of as many bytes.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli {

void add_bench_comm_gpu(CLI::App& app, int& exit_code);

}  // namespace trireme::cli
