// The program `trireme-tensor`: the commands that need libtorch. `trireme` starts it, and so may any launcher.
// libtorch's headers bring an fmt of their own, of another version than the system's library.
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/comm/world.h"
#include "trireme/observe/progress.h"
#include "trireme/train/mlp_job.h"

namespace trireme::cli {
namespace {

constexpr double kTargetAccuracy = 0.97;

void print_words(const MlpResult& result, const World& world) {
  const bool learnt = result.accuracy >= kTargetAccuracy;
  fmt::print("{}: {:.1f} % of {} unseen points right (target {:.0f} %) · loss {:.4f} · {}\n",
             learnt ? "Learnt it" : "Missed the target", result.accuracy * 100, format_count(result.num_held_out),
             kTargetAccuracy * 100, result.final_loss, format_duration(result.seconds));
  fmt::print("  speed    {}, {:.2f} ms a step\n", format_rate(result.samples_per_second, "samples"), result.step_ms);
  fmt::print("  weights  {} (checksum {:016x})\n",
             world.size() == 1 ? "of one worker" : "equal on all ranks, bit for bit", result.checksum);
  if (learnt) {
    fmt::print("Try next:  trireme train --nproc {}      trireme bench comm      trireme doctor\n",
               world.size() == 1 ? 2 : 1);
  } else {
    fmt::print("Try next:  trireme train --steps {}\n", std::max(MlpJobOptions().steps, 2 * result.steps));
  }
}

void print_json(const MlpResult& result, const World& world) {
  const nlohmann::ordered_json json = {{"final_loss", result.final_loss},
                                       {"accuracy", result.accuracy},
                                       {"target_accuracy", kTargetAccuracy},
                                       {"steps", result.steps},
                                       {"samples_per_second", result.samples_per_second},
                                       {"step_ms", result.step_ms},
                                       {"seconds", result.seconds},
                                       {"ranks", world.size()},
                                       {"transport", world.transport()},
                                       {"parameters", result.num_parameters},
                                       {"equal_weights", result.equal_weights},
                                       {"weights_checksum", fmt::format("{:016x}", result.checksum)}};
  fmt::print("{}\n", json.dump(2));
}

int train(const MlpJobOptions& options, bool json) {
  World world = World::join();
  const bool speaks = world.rank() == 0 && !json;
  if (speaks) {
    fmt::print("Training the default: a multi-layer perceptron learns to tell two spirals apart.\n");
    fmt::print("{} worker{} of one thread · {}\n\n", world.size(), world.size() == 1 ? "" : "s",
               world.size() == 1 ? "alone" : "data parallel, gradients averaged over " + world.transport());
    std::fflush(stdout);
  }
  std::optional<Progress> line;
  const MlpResult result = run_mlp_job(world, options, [&](const MlpProgress& progress) {
    if (!speaks) return;
    if (!line) {
      ProgressOptions shown;
      shown.label = "step";
      shown.total = static_cast<uint64_t>(options.steps);
      shown.unit = "samples";
      shown.units_per_one = static_cast<double>(progress.samples_a_step);
      line.emplace(shown);
    }
    line->update(static_cast<uint64_t>(progress.step), fmt::format("loss {:.4f}", progress.loss));
  });
  if (line) line->finish();
  if (world.rank() == 0 && json) print_json(result, world);
  if (!result.equal_weights) {
    throw Error(fmt::format("the ranks ended with different weights (rank {}: checksum {:016x})", world.rank(),
                            result.checksum),
                "this is a bug, or a machine that computes differently from the others");
  }
  if (speaks) print_words(result, world);
  world.leave();
  return result.accuracy >= kTargetAccuracy ? 0 : kMissedTarget;
}

int report(const char* message, int exit_code) {
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", message);
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app("the commands of trireme that need libtorch; use trireme instead", "trireme-tensor");
  app.require_subcommand(1);
  MlpJobOptions options;
  bool json = false;
  int exit_code = 0;
  CLI::App* command = app.add_subcommand("train", "one worker of trireme train");
  command->add_option("--steps", options.steps, "optimizer steps")->check(CLI::Range(1, 100'000'000));
  command->add_option("--seed", options.seed, "of the data and the first weights");
  command->add_flag("--json", json, "one object on stdout");
  command->callback([&] { exit_code = train(options, json); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : report(error.what(), 2);
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  }
  return exit_code;
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  // Before MKL's first call: products with one row then have the same bits wherever their operands lie.
  setenv("MKL_CBWR", "AUTO,STRICT", 0);
  try {
    return trireme::cli::run(argc, argv);
  } catch (const std::exception& error) {
    return trireme::cli::report(error.what(), 1);
  }
}
