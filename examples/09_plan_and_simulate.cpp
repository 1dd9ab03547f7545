// Plans a training before there is a cluster: the fastest layout of a model on so many devices, what it would take, and
// what the simulator says of a layout of your own.
//
//   build/release/bin/example_09_plan_and_simulate
//
// It prints the plan for GPT-2 1.5B on two hosts of 8 A100, and beside it one that somebody guessed:
//
//   planned: dp 16, tp 1, pp 1, ZeRO-1, micro-batches of 16: 1.70531 s a step, 55.2259 GB
//   …
//   guessed: dp 4, tp 1, pp 4: 2.25992 s a step, 17.9367 GB, bubble 7.50423 %
//
// plan_to_json() of it is what `trireme plan --out` writes, and apply_plan() gives the trainer's keys.
#include <iostream>

#include "trireme/plan.h"
#include "trireme/trireme.h"

using namespace trireme;

int main() {
  try {
    const Config config = resolve({.file = "",
                                   .arguments = {"--model.kind=gpt2", "--model.layers=48", "--model.hidden=1600",
                                                 "--model.heads=25", "--model.seq=1024", "--model.vocab=50257",
                                                 "--train.global_batch=512", "--precision.compute=bfloat16"},
                                   .default_preset = ""});
    const Cluster cluster = find_cluster("a100-80gb");

    const PlanReport report = explain_plan(config, cluster, 16);
    const PlanPrediction& predicted = report.plan.predicted;
    std::cout << "planned: " << report.plan.layout_text() << ": " << predicted.step_seconds << " s a step, "
              << predicted.memory_bytes_per_gpu / 1e9 << " GB\n"
              << "bound by " << report.binding << '\n';
    for (const Alternative& other : report.runners_up) {
      std::cout << "  instead: " << other.layout << ": " << other.step_seconds << " s\n";
    }

    Job guess = job_of(config, Software::kTrireme);
    guess.layout.dp = 4;
    guess.layout.pp = 4;
    guess.layout.micro_batch = 4;
    const Simulation simulation = simulate(guess, cluster);
    std::cout << "guessed: dp 4, tp 1, pp 4: " << simulation.step_seconds << " s a step, "
              << simulation.memory_bytes() / 1e9 << " GB, bubble " << 100 * simulation.bubble_fraction << " %\n";

    Config planned = config;  // what the trainer would be told
    apply_plan(report.plan, planned);
    std::cout << "parallel.dp = " << planned.parallel.dp << ", train.micro_batch = " << planned.train.micro_batch
              << '\n';
    return predicted.step_seconds <= simulation.step_seconds ? 0 : 1;
  } catch (const Error& error) {  // nothing fits, or a key cannot be: the sentence says what would
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
