// `trireme verify`: trains the same job in two layouts and answers: equal, float noise, or a bug, and where it starts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/diff.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/config_arguments.h"
#include "trireme/config/check.h"
#include "trireme/elastic/local_launch.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Differences that float32 arithmetic in another order explains, against the largest number of the tensor.
constexpr double kNoise = 1e-4;

struct VerifyFlags {
  ConfigArguments config;
  std::string a = "dp=1", b = "dp=2";
  int64_t steps = 10;
  bool json = false;
  std::string keep;
};

struct Difference {
  std::string tensor;
  int64_t step = 0;
  TensorDifference found;
  double relative = 0;          ///< the largest difference, by the largest number of the tensor
  std::optional<double> ratio;  ///< b is this many times a, everywhere
};

struct Verdict {
  std::string word = "equal";
  std::optional<Difference> first;
  uint64_t max_ulp = 0;
  int64_t steps = 0, tensors = 0;
};

/// A folder of its own in the system's place for such, removed at the end unless it is to be kept.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& keep) : keeps_(!keep.empty()) {
    if (keeps_) {
      path_ = keep;
      fs::create_directories(path_);
      return;
    }
    std::string name = (fs::temp_directory_path() / "trireme-verify-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw SystemError("make a folder in " + fs::temp_directory_path().string(), errno);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!keeps_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  bool keeps_;
  fs::path path_;
};

LocalLaunch plan(const VerifyFlags& options, const std::string& layout, const fs::path& folder) {
  ConfigArguments arguments = options.config;
  const std::vector<std::string> words = words_of_layout(layout);
  arguments.words.insert(arguments.words.end(), words.begin(), words.end());
  const Config config = resolve(arguments.sources());
  LocalLaunch launch;
  launch.num_processes = arguments.num_workers(config);
  check(config, launch.num_processes);
  launch.argv = {tensor_program(),       "train",        "--record",
                 folder.string(),        "--stop-after", std::to_string(options.steps),
                 "--train.target_loss=0"};
  const std::vector<std::string> rest = arguments.to_words();
  launch.argv.insert(launch.argv.end(), rest.begin(), rest.end());
  launch.environment = worker_environment(config);
  return launch;
}

void train(const LocalLaunch& launch, const std::string& layout, const fs::path& folder) {
  fs::create_directories(folder);
  const LaunchReport report = launch_locally(launch);
  if (report.exit_code != 0) throw Error(fmt::format("layout {}: {}", layout, report.text()));
}

double largest_of(const TensorView& view) {
  double largest = 0;
  const auto scan = [&](auto zero) {
    using Number = decltype(zero);
    for (size_t at = 0; at + sizeof(Number) <= view.bytes.size(); at += sizeof(Number)) {
      Number value;
      std::memcpy(&value, view.bytes.data() + at, sizeof value);
      if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
  };
  if (view.info.type == DataType::kDouble) {
    scan(0.0);
  } else if (view.info.type == DataType::kFloat) {
    scan(0.0f);
  }
  return largest;
}

/// b = ratio · a for every element, as a missing or repeated reduction gives.
std::optional<double> common_ratio(const TensorView& a, const TensorView& b) {
  if (a.info.type != DataType::kFloat) return std::nullopt;
  double ab = 0, aa = 0, bb = 0;
  for (size_t at = 0; at < a.bytes.size(); at += sizeof(float)) {
    float x, y;
    std::memcpy(&x, a.bytes.data() + at, sizeof x);
    std::memcpy(&y, b.bytes.data() + at, sizeof y);
    ab += static_cast<double>(x) * y;
    aa += static_cast<double>(x) * x;
    bb += static_cast<double>(y) * y;
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  const double ratio = ab / aa;
  const double rest = bb - ratio * ab;  // Σ (b − ratio·a)²
  if (rest > 1e-6 * bb || std::abs(ratio - 1) < 0.01) return std::nullopt;
  return ratio;
}

Verdict compare(const VerifyFlags& options, const fs::path& a, const fs::path& b) {
  Verdict verdict;
  for (int64_t step = 1; step <= options.steps; ++step) {
    const std::string name = fmt::format("step-{:06}.safetensors", step);
    const SafetensorsFile file_a(a / name), file_b(b / name);
    for (const StoredTensor& stored : file_a.tensors()) {
      const TensorView view_a = file_a.view(stored);
      const TensorView view_b = file_b.tensor(view_a.info.name);
      const TensorDifference found = diff_tensors(view_a, view_b);
      ++verdict.tensors;
      if (found.num_different == 0) continue;
      verdict.max_ulp = std::max(verdict.max_ulp, found.largest_ulp);
      if (verdict.first) continue;
      const double largest = std::max(largest_of(view_a), largest_of(view_b));
      verdict.first = {view_a.info.name, step, found, largest > 0 ? found.largest / largest : 0,
                       common_ratio(view_a, view_b)};
    }
    verdict.steps = step;
  }
  if (verdict.first) {
    const bool small = verdict.first->relative <= kNoise && verdict.first->found.num_one_nan == 0;
    verdict.word = small ? "noise" : "bug";
  }
  return verdict;
}

void print_words(const Verdict& verdict) {
  if (!verdict.first) {
    fmt::print("equal: every loss, gradient and weight, bit for bit ({} steps, {} tensors compared).\n", verdict.steps,
               verdict.tensors);
    return;
  }
  const Difference& first = *verdict.first;
  const std::string where = fmt::format("{}, step {}", first.tensor, first.step);
  if (verdict.word == "noise") {
    fmt::print(
        "float noise: {} elements differ first in {}, by at most {} ulp ({:.1e} of the largest); later steps by up to "
        "{} ulp.\n",
        first.found.num_different, where, first.found.largest_ulp, first.relative, verdict.max_ulp);
    fmt::print(
        "  Another order of sums explains it. Layouts that differ in dp alone promise equal bits: for those, please "
        "report it.\n");
    return;
  }
  fmt::print("bug, not noise: {} ", where);
  if (first.ratio) {
    fmt::print("is {:.3g}x as large in b as in a: a sum over ranks is missing or done twice.\n", *first.ratio);
  } else {
    fmt::print("differs in {} elements, by up to {:.1e} of its largest.\n", first.found.num_different, first.relative);
  }
}

void print_json(const Verdict& verdict) {
  Json first;
  if (verdict.first) {
    first = {{"tensor", verdict.first->tensor},
             {"step", verdict.first->step},
             {"rank", 0},
             {"elements", verdict.first->found.num_different},
             {"ulp", verdict.first->found.largest_ulp},
             {"relative", verdict.first->relative}};
  }
  fmt::print("{}\n", Json{{"verdict", verdict.word},
                          {"steps", verdict.steps},
                          {"first_difference", first},
                          {"max_ulp", verdict.max_ulp},
                          {"tensors_compared", verdict.tensors}}
                         .dump(2));
}

int run(VerifyFlags& options, const CLI::App& command) {
  options.config.take(command);
  options.steps = std::min(options.steps, resolve(options.config.sources()).train.steps);
  const TemporaryFolder folder(options.keep);
  const fs::path folder_a = folder.path() / "a", folder_b = folder.path() / "b";
  const LocalLaunch launch_a = plan(options, options.a, folder_a), launch_b = plan(options, options.b, folder_b);
  const auto run_one = [&](const LocalLaunch& launch, const std::string& layout, const fs::path& place) {
    if (!options.json) fmt::print(stderr, "training {} steps with {} …\n", options.steps, layout);
    train(launch, layout, place);
  };
  run_one(launch_a, options.a, folder_a);
  run_one(launch_b, options.b, folder_b);
  const Verdict verdict = compare(options, folder_a, folder_b);
  options.json ? print_json(verdict) : print_words(verdict);
  return verdict.word == "bug" ? 1 : 0;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<VerifyFlags>();
  CLI::App* command = app.add_subcommand("verify", "trains in two layouts and compares every number");
  options->config.add_to(*command);
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
      "Exit code 0: equal or float noise; 1: a bug.\n"
      "\n"
      "Examples\n"
      "  trireme verify --a dp=1 --b dp=4\n"
      "  trireme verify --a tp=1 --b tp=2\n"
      "  trireme verify --a dp=1 --b dp=2 --model resnet18 --train.micro_batch=4");
  command->callback([options, command, &exit_code] { exit_code = run(*options, *command); });
}

}  // namespace trireme::cli
