// Training with tensor parallelism beside what its computation and its sums take alone.
//
//   trireme launch --nproc-per-node 2 -- bench_tensor_parallel [--steps N] [keys of trireme train]
//
// A GPT-2 of 2 layers, 1,024 wide, on as many workers as there are, with single threads. Three things are timed in
// turns, so that whatever else the machine does meets all of them; printed are medians of the slowest rank:
//   computation   a step whose collectives are left out (numbers are wrong, speed is right)
//   sums          the collectives of a step, one after another, nothing else
//   ours          a step of training
// Sums of the forward pass are needed at once; those of the backward pass may hide behind the products of weights:
//   bound = computation + sums of the forward pass;   exposed = ours − computation.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/comm/world.h"
#include "trireme/config/resolve.h"
#include "trireme/models/built_in.h"
#include "trireme/tensor/in_flight.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/run.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Milliseconds of the slowest rank for `body`, which all begin together.
double measure(Communicator& comm, const std::function<void()>& body) {
  comm.barrier();
  const Clock::time_point start = Clock::now();
  body();
  std::vector<double> slowest{std::chrono::duration<double, std::milli>(Clock::now() - start).count()};
  comm.all_reduce(slowest, ReduceOp::kMax);
  return slowest[0];
}

/// What a step moves over the mesh.
struct Sums {
  int64_t calls = 0, bytes = 0, started = 0;
};

/// Redistributions as those of a step, on tensors of their mean size.
class SumsAlone {
 public:
  SumsAlone(const std::shared_ptr<DeviceMesh>& mesh, const MovementCounts& before, const MovementCounts& after) {
    const int ranks = mesh->axis_sizes()[0];
    const auto add = [&](Movement movement, const Placement& from, const Placement& to, int64_t parts) {
      const int64_t calls = after.calls_of(movement) - before.calls_of(movement);
      const int64_t bytes = after.bytes_of(movement) - before.bytes_of(movement);
      if (calls == 0) return;
      const int64_t rows = std::max<int64_t>(bytes / calls / 4 / 1024 * parts, ranks);
      const std::vector<int64_t> sizes = {rows / ranks * ranks, 1024};
      const MeshLayout* layout = mesh->layout({from}, sizes);
      const auto part = at::ones(local_sizes(sizes, layout->placements, mesh->axis_sizes(), mesh->coordinates()));
      const auto tensor = from_local(part, mesh, {from}, sizes);
      for (int64_t i = 0; i < calls; ++i) moves_.push_back([tensor, to] { redistribute(tensor, {to}); });
      all.calls += calls;
      all.bytes += bytes;
    };
    const Placement partial = Placement::partial(), whole = Placement::replicate(), cut = Placement::shard(0);
    add(Movement::kAllReduce, partial, whole, 1);
    add(Movement::kReduceScatter, partial, cut, 1);
    add(Movement::kAllGather, cut, whole, ranks);
    all.started = after.started - before.started;
  }
  void run() const {
    for (const auto& move : moves_) move();
  }

  Sums all;

 private:
  std::vector<std::function<void()>> moves_;
};

Config config_for(int workers, const std::vector<std::string>& words) {
  ConfigSources sources;
  sources.arguments = {"--model=gpt2-bench", "--model.hidden=1024",    "--model.layers=2",
                       "--model.heads=16",   "--train.global_batch=8", "--train.micro_batch=8",
                       "--train.leaves=1",   "--train.steps=1000",     "--parallel.tp=" + std::to_string(workers)};
  sources.arguments.insert(sources.arguments.end(), words.begin(), words.end());
  return resolve(sources);
}

void run(int steps, const std::vector<std::string>& words) {
  at::set_num_threads(1);
  World world = World::join();
  Communicator& comm = world.comm();
  const Config config = config_for(world.size(), words);
  const OpenedData data = open_data(data_options_of(config));
  Trainer trainer(world, build_model(config), config, data), idle(world, build_model(config), config, data);
  const std::shared_ptr<DeviceMesh>& mesh = trainer.groups().tensor_mesh();
  if (!mesh) throw UsageError("one worker has no sums to measure", "start it with trireme launch --nproc-per-node 2");
  const auto compute = [&] {
    leave_out_collectives(true);
    idle.step();
    leave_out_collectives(false);
  };
  trainer.step();
  compute();
  const MovementCounts before = mesh->counts();
  trainer.step();
  const SumsAlone sums(mesh, before, mesh->counts());
  sums.run();
  std::vector<double> ours_ms, compute_ms, sums_ms, ratios;
  const MovementCounts first = mesh->counts();
  for (int step = 0; step < steps; ++step) {
    ours_ms.push_back(measure(comm, [&] { trainer.step(); }));
    compute_ms.push_back(measure(comm, compute));
    sums_ms.push_back(measure(comm, [&] { sums.run(); }));
  }
  const Sums& all = sums.all;
  const double alone = median(compute_ms), moved = median(sums_ms), ours = median(ours_ms);
  const double hideable = static_cast<double>(all.started) / static_cast<double>(all.calls);
  const double bound = alone + moved * (1 - hideable);
  if (world.rank() == 0) {
    fmt::print("{} of {} layers, {} wide · {} · {} samples a step · {} steps\n",
               config.model.kind == ModelKind::kGpt2 ? "gpt2" : "model", config.model.layers, config.model.hidden,
               mesh->mesh().to_string(), config.train.global_batch, steps);
    fmt::print("  computation alone    {:8.2f} ms\n", alone);
    fmt::print("  sums alone           {:8.2f} ms   {} collectives, {:.1f} MiB; {} of them may hide behind products\n",
               moved, all.calls, static_cast<double>(all.bytes) / (1 << 20), all.started);
    fmt::print("  bound                {:8.2f} ms   {:.2f} ms with every sum in the open\n", bound, alone + moved);
    fmt::print("  ours                 {:8.2f} ms   {:.1f} % over the bound\n", ours, 100 * (ours / bound - 1));
    fmt::print("  exposed              {:8.2f} ms   of them {:.2f} waiting for sums in the background\n", ours - alone,
               (mesh->counts().waited_s - first.waited_s) * 1000 / steps);
  }
  world.leave();
}

}  // namespace
}  // namespace trireme

int main(int count, char** words) {
  std::vector<std::string> rest(words + 1, words + count);
  int steps = 15;
  if (rest.size() >= 2 && rest[0] == "--steps") {
    steps = std::max(1, std::atoi(rest[1].c_str()));
    rest.erase(rest.begin(), rest.begin() + 2);
  }
  try {
    trireme::run(steps, rest);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
