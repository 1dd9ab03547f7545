// `trireme-tensor probe-device`: what a worker's device reaches in single operators, as JSON. `trireme bench train
// --write-cluster` starts it: peaks and bandwidth come from here, the rest from trainings. See docs/cost_model.md.
#pragma once

namespace CLI {
class App;
}

namespace trireme::cli {

void add_probe_device(CLI::App& app, int& exit_code);

}  // namespace trireme::cli
