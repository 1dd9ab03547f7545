// `trireme-tensor bench-tensor`: what `trireme bench tensor` shows. See docs/mesh_tensors.md.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli {

void add_bench_tensor(CLI::App& app, int& exit_code);

}  // namespace trireme::cli
