// The program `trireme-tensor`: the commands that need libtorch. `trireme` starts it, and so may any launcher.
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/tensor/commands.h"
#include "trireme/comm/control/launch_environment.h"
#include "trireme/comm/world.h"
#include "trireme/config/check.h"
#include "trireme/launch/local_launch.h"
#include "trireme/train/broadcast_result.h"
#include "trireme/train/run.h"

namespace trireme::cli {
namespace {

struct Options {
  std::string training;
  bool json = false;
  bool bench = false;
  int64_t warmup = 0;
  std::string record;
  int64_t profile = 0;
  int64_t stop_after = 0;
};

std::string loss_text(double loss) { return std::isfinite(loss) ? fmt::format("{:.3f}", loss) : "not finite"; }

/// Commands that work as they stand, but for names of files of the user's.
void print_next(const RunResult& result, const Config& config) {
  const std::string folder = result.run_dir.string();
  if (result.stopped) {
    fmt::print("Go on:  trireme train --resume {}\n", folder);
    return;
  }
  const std::string longer = fmt::format("trireme train --resume {} --train.steps={}", folder, 2 * config.train.steps);
  const bool generated = config.data.path.empty();
  const bool is_default = config.model.preset == "default" && generated && !config.model.is_own();
  const std::string model = is_default || config.model.preset.empty() ? "" : " --model " + config.model.preset;
  std::vector<std::string> next;
  if (!result.reached_target || !generated) next.push_back(longer);
  if (generated && !config.model.is_own()) {
    next.push_back(
        fmt::format("trireme train{} --data.path {}", model, config.model.is_language() ? "my.txt" : "mnist"));
  }
  next.push_back(
      fmt::format("trireme verify{} --a dp=1 --b dp=2", is_default ? "" : fmt::format(" {}/config.toml", folder)));
  next.push_back(generated || !config.model.is_language()
                     ? "trireme checkpoint inspect " + folder
                     : fmt::format("trireme checkpoint export {} --to model.safetensors", folder));
  fmt::print("Try next:  {}\n", join(next, "      "));
}

void print_words(const RunResult& result, const Config& config, const PredictedStep& predicted) {
  if (result.nothing_to_do) {
    fmt::print("Nothing left to do: step {} of {} is done. To go on: --train.steps={}\n", result.steps,
               config.train.steps, 2 * std::max(result.steps, config.train.steps));
    return;
  }
  if (result.stopped) {
    fmt::print("Stopped at step {} of {}; everything is saved.\n", result.steps, config.train.steps);
  } else if (result.has_target) {
    fmt::print("{}: held-out loss {} (target {:.2f})", result.reached_target ? "Learnt it" : "Missed the target",
               loss_text(result.held_out.loss), config.train.target_loss);
  } else {
    fmt::print("Done: loss {}", loss_text(result.final_loss));
    if (result.held_out.num_samples > 0) fmt::print(" · held-out loss {}", loss_text(result.held_out.loss));
  }
  if (!result.stopped) {
    if (!config.model.takes_tokens() && result.held_out.num_samples > 0 && !std::isnan(result.held_out.accuracy)) {
      fmt::print(" · {:.1f} % of unseen {} right", 100 * result.held_out.accuracy,
                 config.model.is_own() ? "predictions" : "images");
    }
    if (result.sums_asked > 0) {
      fmt::print(" · {:.0f} % of {} unseen sums right",
                 100.0 * static_cast<double>(result.sums_right) / static_cast<double>(result.sums_asked),
                 result.sums_asked);
    }
    if (result.steps_skipped > 0)
      fmt::print(" · {} step{} skipped", result.steps_skipped, result.steps_skipped == 1 ? "" : "s");
    fmt::print(" · {}\n", format_duration(result.seconds));
  }
  fmt::print("  speed       {}, {:.1f} ms a step\n", format_rate(result.units_per_second, result.unit), result.step_ms);
  if (predicted.ms > 0 && result.step_ms > 0) fmt::print("  predicted   {}\n", predicted_text(predicted, result));
  if (config.observe.report) {
    fmt::print("  report      {}   (a page for a browser)\n", (result.run_dir / "report.html").string());
  }
  fmt::print("  checkpoint  {}/step-{:06}\n", (result.run_dir / "checkpoints").string(), result.steps);
  print_next(result, config);
}

void print_json(const RunResult& result, const Config& config, const World& world, const PredictedStep& predicted) {
  const StateParts& state = result.state;
  Json parts;
  for (const auto& [name, ms] : result.parts_ms) parts[name] = ms;
  Json json = {{result.unit + "_per_second", result.units_per_second},
               {"step_ms", result.step_ms},
               {"parts_ms", parts},
               {"loss", result.final_loss},
               {"final_loss", result.final_loss},
               {"held_out_loss", result.held_out.loss},
               {"held_out_accuracy", result.held_out.accuracy},
               {"target_loss", config.train.target_loss},
               {"reached_target", result.reached_target},
               {"sums_asked", result.sums_asked},
               {"sums_right", result.sums_right},
               {"steps", result.steps},
               {"steps_skipped", result.steps_skipped},
               {"stopped", result.stopped},
               {"seconds", result.seconds},
               {"layout", result.layout},
               {"ranks", world.size()},
               {"transport", world.transport()},
               {"parameters", result.num_parameters},
               {"peak_memory_bytes", result.peak_memory_bytes},
               {"worker_memory_bytes", result.worker_memory_bytes},
               {"device_memory_bytes", result.device_memory_bytes},
               {"state_bytes", state.sum()},
               {"weight_bytes", state.weights},
               {"gradient_bytes", state.gradients},
               {"optimizer_bytes", state.optimizer},
               {"buffer_bytes", state.buffers},
               {"activation_bytes", result.passes.kept_bytes},
               {"pass_peak_bytes", result.passes.most_bytes},
               {"reduced_bytes_per_step", result.reduced_bytes_per_step},
               {"sent_bytes_per_step", result.sent_bytes_per_step},
               {"gathered_bytes_per_step", result.gathered_bytes_per_step},
               {"run_dir", result.run_dir.string()}};
  if (predicted.ms > 0) {
    json["predicted_step_ms"] = predicted.ms;
    json["predicted_memory_bytes"] = predicted.memory_bytes;
  }
  for (const KernelTime& kernel : result.kernels) {
    json["kernels"].push_back({{"name", kernel.name}, {"us", kernel.us}, {"count", kernel.count}});
  }
  fmt::print("{}\n", json.dump(2));
}

int train(const Options& options) {
  std::ifstream file(options.training);
  const auto [config, predicted] = training_from_json(std::string(std::istreambuf_iterator<char>(file), {}));
  World world = World::join();
  check(config, world.size());
  RunOptions run;
  if (!options.json && !options.bench && options.record.empty()) {
    run.says = [](const std::string& text) {
      fmt::print("{}\n", text);
      std::fflush(stdout);
    };
  }
  run.warns = [](const std::string& text) { fmt::print(stderr, "\nwarning: {}\n", text); };
  run.keeps_run_folder = !options.bench && options.record.empty();
  run.warmup_steps = options.warmup;
  run.measures_memory = options.bench;
  run.profiled_steps = options.profile;
  run.record = options.record;
  run.stop_after = options.stop_after;
  run.predicted = predicted;
  const RunResult result = run_training(world, config, run);
  const bool speaks = world.rank() == 0 && options.record.empty();
  if (speaks && (options.json || options.bench)) print_json(result, config, world, run.predicted);
  if (speaks && run.says) print_words(result, config, run.predicted);
  world.leave();
  return result.reached_target || options.bench ? 0 : kMissedTarget;
}

/// This process in its job; 0 where there is no telling.
int own_rank() {
  try {
    return read_launch_environment().rank;
  } catch (const UsageError&) {
    return 0;
  }
}

/// Tells people on stderr, and the launcher; where none asks, rank 0 prints the object of --json. What another rank
/// tells is not told again.
int fail(const Error& error, int exit_code, bool json) {
  const int rank = own_rank();
  const Error placed(error.what(), {}, completed(error.where(), {.rank = rank}));
  const bool is_relayed = dynamic_cast<const RelayedError*>(&error) != nullptr;
  if (!is_asked_why()) {
    if (json && rank == 0) fmt::print("{}\n", failure_to_text(placed));
  } else if (!is_relayed) {
    tell_failure(placed);
  }
  std::fflush(stdout);
  if (!is_relayed) fmt::print(stderr, "error: {}\n", placed.what());
  return exit_code;
}

/// The system gave no memory: libtorch says so in words of its own. Others' words stay as they are.
Error explained(const std::string& words, const Where& where = {}) {
  static constexpr std::string_view kAsked = "you tried to allocate ";
  const size_t at = words.find(kAsked);
  const bool asked = at != std::string::npos;
  if (!asked && words.find("std::bad_alloc") == std::string::npos) return Error(words, {}, where);
  const uint64_t bytes = asked ? std::strtoull(words.c_str() + at + kAsked.size(), nullptr, 10) : 0;
  // In a pipeline the executor has said where: up to the instruction.
  const std::string& last = where.instruction;
  const std::string place = last.empty() ? "" : words.substr(0, words.find(last) + last.size()) + ": ";
  return Error(
      fmt::format("{}this worker is out of memory{}", place,
                  bytes > 0 ? fmt::format(": the system did not give {} more", format_bytes(bytes)) : ""),
      "hold less of the model on each worker (parallel.tp, parallel.pp or parallel.zero = 3), keep fewer activations "
      "(train.recompute = \"full\", a lower train.micro_batch), or run fewer workers here",
      where);
}

Error explained(const c10::OutOfMemoryError& error) {
  const std::string all = error.what_without_backtrace();  // of which the first two sentences say all
  return Error(all.substr(0, all.find(". ", all.find(". ") + 1)) + ".",
               "lower train.micro_batch (the numbers stay the same only for the same micro-batch), or run fewer "
               "workers on this GPU");
}

/// Runs the command line, and tells what goes wrong. Returns the exit code.
int run(int argc, char** argv) {
  CLI::App app("the commands of trireme that need libtorch; use trireme instead", "trireme-tensor");
  app.require_subcommand(1);
  app.set_version_flag("--version", TORCH_VERSION);
  Options options;
  int exit_code = 0;
  CLI::App* command = app.add_subcommand("train", "one worker of trireme train");
  command->add_option("training", options.training, "the file in which trireme train gives config and plan")
      ->required();
  command->add_flag("--json", options.json, "one object on stdout");
  command->add_flag("--bench", options.bench, "measures: no run folder, and JSON");
  command->add_option("--warmup", options.warmup, "steps that do not count for the speed");
  command->add_option("--profile", options.profile, "on a GPU: steps after the last whose kernels are timed");
  command->add_option("--record", options.record, "a folder for loss, gradients and weights of every step");
  command->add_option("--stop-after", options.stop_after, "saves and stops after this many steps");
  command->callback([&] { exit_code = train(options); });
  add_bench_comm_gpu(app, exit_code);
  add_bench_tensor(app, exit_code);
  add_probe_device(app, exit_code);
  const bool json = std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : fail(UsageError(error.what()), 2, json);
  } catch (const RelayedError& error) {
    return fail(error, error.is_usage() ? 2 : 1, json);
  } catch (const UsageError& error) {
    return fail(error, 2, json);
  } catch (const Error& error) {
    return fail(explained(error.what(), error.where()), 1, json);
  } catch (const c10::OutOfMemoryError& error) {
    return fail(explained(error), 1, json);
  } catch (const c10::Error& error) {
    return fail(explained(error.what_without_backtrace()), 1, json);
  } catch (const std::exception& error) {
    return fail(explained(error.what()), 1, json);
  }
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) { return trireme::cli::run(argc, argv); }
