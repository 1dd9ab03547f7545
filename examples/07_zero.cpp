// ZeRO: replicas that share optimizer state, gradients and weights, and train the same numbers in less memory.
//
// It teaches what each stage shares and what a worker then holds. Four workers, threads of one process, train a small
// GPT-2 in every stage; under torchrun, srun or mpirun the same code runs in processes.
//
//   ./example_07_zero
//
// prints for each stage what a worker holds of weights, gradients and optimizer state, and the loss:
//
//   zero 0: 32.8 MB a worker, loss 4.6338
//   zero 1: 20.6 MB a worker, loss 4.6338, the same bits
//   zero 2: 14.5 MB a worker, loss 4.6338, the same bits
//   zero 3: 8.5 MB a worker, loss 4.6338, the same bits
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "trireme/plan.h"
#include "trireme/torch.h"

using namespace trireme;

namespace {

constexpr int kWorkers = 4, kSteps = 5;

struct Result {
  double loss = 0;
  size_t bytes = 0;  ///< of the worker that holds most
};

Config config_for(int stage) {
  ConfigSources sources;
  sources.arguments = {"--model=gpt2-tiny",        "--model.layers=8",
                       "--model.hidden=144",       "--model.heads=4",
                       "--model.seq=32",           "--train.micro_batch=1",
                       "--train.global_batch=4",  // one sample a worker
                       "--train.leaves=4",         "--data.generated_size=20000",
                       "--parallel.bucket_mb=0.5", "--parallel.zero=" + std::to_string(stage)};
  return resolve(sources);
}

Result train(int stage) {
  const Config config = config_for(stage);
  const OpenedData data = open_data(data_options_of(config));
  std::vector<Result> results(kWorkers);
  run_as_threads(kWorkers, [&](World& world) {
    Trainer trainer(world, build_model(config), config, data);
    Result& own = results[static_cast<size_t>(world.rank())];
    for (int step = 0; step < kSteps; ++step) own.loss = trainer.step().loss;
    own.bytes = trainer.state_bytes();
  });
  for (const Result& result : results) results[0].bytes = std::max(results[0].bytes, result.bytes);
  return results[0];
}

}  // namespace

int main() {
  const double expected = train(0).loss;
  bool same = true;
  for (int stage = 0; stage <= 3; ++stage) {
    const Result result = train(stage);
    same = same && result.loss == expected;
    std::printf("zero %d: %.1f MB a worker, loss %.4f%s\n", stage, static_cast<double>(result.bytes) / 1e6, result.loss,
                stage == 0                ? ""
                : result.loss == expected ? ", the same bits"
                                          : ", OTHER BITS");
  }
  return same ? 0 : 1;
}
