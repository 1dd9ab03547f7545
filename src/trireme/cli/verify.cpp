// `trireme verify`: trains the same job in two layouts and answers: equal, float noise, or a bug, and where it starts.
#include "trireme/measure/verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/config_flags.h"
#include "trireme/config/check.h"
#include "trireme/launch/local_launch.h"
#include "trireme/measure/programs.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using measure::Comparison, measure::Difference, measure::Judgement, measure::Verdict;

struct VerifyFlags {
  ConfigArguments config;
  std::string a = "dp=1", b = "dp=2";
  int64_t steps = 10;
  bool json = false;
  std::string keep;
};

/// The folder `keep`, or one that is removed at the end.
class RecordFolder {
 public:
  explicit RecordFolder(const std::string& keep) : path_(keep), keeps_(!keep.empty()) {
    if (keeps_) return;
    std::string name = (fs::temp_directory_path() / "trireme-verify-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw SystemError("make the folder " + name, errno);
    path_ = name;
  }
  ~RecordFolder() {
    std::error_code ignored;
    if (!keeps_) fs::remove_all(path_, ignored);
  }
  RecordFolder(const RecordFolder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
  bool keeps_;
};

/// One of the two trainings.
struct Side {
  std::string layout;
  Config config;
  int num_workers = 1;
};

Side side_of(const VerifyFlags& options, const std::string& layout) {
  ConfigArguments arguments = options.config;
  const std::vector<std::string> words = words_of_layout(layout);
  arguments.words.insert(arguments.words.end(), words.begin(), words.end());
  Config config = resolve(arguments.sources());
  config.train.target_loss = 0;
  const int num_workers = arguments.num_workers(config);
  check(config, num_workers);
  return {layout, std::move(config), num_workers};
}

void train(const Side& side, int64_t steps, const fs::path& folder) {
  fs::create_directories(folder);
  const measure::TrainingHandoff handoff({side.config});
  const LaunchReport report = launch_locally(
      handoff.launch(side.num_workers, {"--record", folder.string(), "--stop-after", std::to_string(steps)}));
  if (report.exit_code == 0) return;
  throw Error(fmt::format("layout {}: {}", side.layout, report.text()), {}, report.failure().where());
}

Json json_of(const std::optional<Difference>& difference) {
  if (!difference) return nullptr;
  return {{"tensor", difference->tensor},
          {"step", difference->step},
          {"rank", 0},
          {"elements", difference->num_elements},
          {"relative", difference->relative}};
}

int run(VerifyFlags& options, const CLI::App& command) {
  take_config_words(command, options.config);
  options.steps = std::min(options.steps, resolve(options.config.sources()).train.steps);
  const RecordFolder folder(options.keep);
  const fs::path folder_a = folder / "a", folder_b = folder / "b";
  const Side a = side_of(options, options.a), b = side_of(options, options.b);
  const auto run_one = [&](const Side& side, const fs::path& place) {
    if (!options.json) fmt::print(stderr, "training {} steps with {} …\n", options.steps, side.layout);
    train(side, options.steps, place);
  };
  run_one(a, folder_a);
  run_one(b, folder_b);
  const Comparison comparison = measure::compare_recorded(folder_a, folder_b, options.steps);
  const Verdict verdict = judge(comparison.differences);
  if (options.json) {
    print_json({{"verdict", name_of(verdict.judgement)},
                {"steps", comparison.steps},
                {"first_difference", json_of(verdict.first)},
                {"largest_difference", json_of(verdict.largest)},
                {"tensors_compared", comparison.tensors}});
  } else {
    fmt::print("{}", words_of(verdict, comparison.steps, comparison.tensors));
  }
  return verdict.judgement == Judgement::kEqual || verdict.judgement == Judgement::kNoise ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand("verify", "trains in two layouts and compares every number");
  add_config_flags(*command, options->config);
  command->add_option("--a", options->a, "a layout")->type_name("LAYOUT")->capture_default_str();
  command->add_option("--b", options->b, "another one")->type_name("LAYOUT")->capture_default_str();
  command->add_option("--steps", options->steps, "steps to train")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--keep", options->keep, "keeps the recorded tensors in this folder")->type_name("FOLDER");
  command->add_flag("--json", options->json, "one object on stdout");
  command->footer(
      "Takes every key of trireme train. Losses, gradients and weights of each step are compared.\n"
      "Differences are measured by the largest element of their tensor.\n"
      "Exit code 0: equal or float noise; 1: a bug, or more than can be called noise.\n"
      "\n"
      "Examples\n"
      "  trireme verify --a dp=1 --b dp=4\n"
      "  trireme verify --a tp=1 --b tp=2\n"
      "  trireme verify --a dp=1 --b dp=2 --model resnet18 --train.micro_batch=4");
  command->callback([options, command, &exit_code] { exit_code = run(*options, *command); });
}

}  // namespace trireme::cli
