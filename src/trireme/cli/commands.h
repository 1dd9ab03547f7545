// The subcommands of `trireme`: one file and one function each, which registers the command and its callback.
//
// A callback does the work and sets `exit_code`. It throws UsageError (exit 2) or any other exception (exit 1);
// main() prints it as `error: …`. Nothing here loads libtorch: commands on tensors run `trireme-tensor` instead.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/json.h"

namespace CLI {
class App;
}

namespace trireme::cli {

/// The exit code of a `trireme-tensor train` that went well, but learnt less than it should; it has said so itself.
constexpr int kMissedTarget = 3;

/// `trireme bench` with its commands, which the next three register.
void add_bench(CLI::App& app, int& exit_code);
void add_bench_comm(CLI::App& bench, int& exit_code);
void add_bench_tensor(CLI::App& bench);
void add_bench_train(CLI::App& bench, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
/// `program`: what came after "--".
void add_launch(CLI::App& app, std::vector<std::string> program, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_schedule(CLI::App& app, int& exit_code);
void add_simulate(CLI::App& app, int& exit_code);
void add_trace(CLI::App& app, int& exit_code);
void add_train(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);

/// A wrong command line or file of which stdout already has an object.
class ToldError : public UsageError {
 public:
  explicit ToldError(const Error& error) : UsageError(error.what(), {}, error.where()) {}
};

/// One object on stdout, for --json.
void print_json(const Json& json);

/// "1.2.3", or "1.2.3 (abc1234)" with the revision where the build knows it.
std::string version_text();
/// Becomes another program; returns only by throwing.
[[noreturn]] void replace_process(const std::vector<std::string>& argv);
/// The exit code of a measurement: 0, or 128 + the signal that stopped it, which has been said on stderr.
int until_interrupted(const std::function<void()>& measuring);

}  // namespace trireme::cli
