// `trireme bench tensor`: `trireme-tensor` does the work.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/fit_report.h"
#include "trireme/measure/machine.h"
#include "trireme/measure/programs.h"
#include "trireme/observe/style.h"

namespace trireme::cli {
namespace {

void write_device(const std::string& file, const std::string& device, bool json) {
  const std::filesystem::path path = measure::cluster_path(file);
  const measure::DeviceProbe probe = measure::probe_device(path, device == "cuda");
  keep_device(path, probe, probe.cluster);
  if (json) {
    Json said = {{"file", path.string()}};
    said.update(device_json(probe, probe.cluster));
    print_json(said);
    return;
  }
  fmt::print("{}written to {}; trireme bench train --write-cluster also measures what trainings reach of that\n",
             probe_text(probe, has_colour(STDOUT_FILENO)), path.string());
}

}  // namespace

void add_bench_tensor(CLI::App& bench) {
  struct TensorBenchFlags {
    bool json = false;
    std::string only, device = "cpu", cluster_file;
  };
  auto flags = std::make_shared<TensorBenchFlags>();
  CLI::App* command = bench.add_subcommand("tensor", "what mesh tensors cost, operator by operator");
  command->add_flag("--json", flags->json, "one object on stdout");
  command->add_option("--only", flags->only, "operators whose names contain this")->type_name("TEXT");
  CLI::Option* cluster =
      command->add_option("--write-cluster", flags->cluster_file, "measures plain operators instead, and keeps them")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->add_option("--device", flags->device, "with --write-cluster: cpu or cuda")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->needs(cluster);
  command->footer(
      "Each operator on a small tensor: plain, as a mesh tensor replicated on one worker, and cut over two in a way\n"
      "that moves nothing, so that what is left is the cost of mesh tensors themselves.\n"
      "With --write-cluster: plain products, a copy and the start of an operator, for the simulator.\n"
      "\n"
      "Examples\n"
      "  trireme bench tensor\n"
      "  trireme bench tensor --only softmax\n"
      "  trireme bench tensor --write-cluster\n"
      "\n"
      "More: docs/mesh_tensors.md");
  command->callback([flags, cluster] {
    if (cluster->count() > 0) {
      if (!flags->only.empty()) {
        throw UsageError("--write-cluster measures plain operators of its own", "leave out --only");
      }
      return write_device(flags->cluster_file, flags->device, flags->json);
    }
    std::vector<std::string> words = {measure::tensor_program(), "bench-tensor"};
    if (flags->json) words.push_back("--json");
    if (!flags->only.empty()) words.insert(words.end(), {"--only", flags->only});
    replace_process(words);
  });
}

}  // namespace trireme::cli
