#include "trireme/cli/tensor/bench_tensor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/tensor/bench_tensor_measure.h"
#include "trireme/layout/operator.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"
#include "trireme/tensor/proof.h"

namespace trireme::cli {
namespace {

struct TensorFlags {
  bool json = false, rules = false, markdown = false;
  std::string only;
};

int show_timings(const TensorFlags& flags) {
  const std::vector<TensorTiming> timings = measure_tensor_overhead(flags.only);
  if (timings.empty()) throw UsageError(fmt::format("no operator here has \"{}\" in its name", flags.only));
  if (flags.json) {
    Json json = {{"results", Json::array()}, {"operators_covered", covered_operators().size()}};
    for (const TensorTiming& t : timings) {
      json["results"].push_back({{"operator", t.name},
                                 {"placements", t.placements},
                                 {"plain_us", t.plain_us},
                                 {"mesh_us", t.mesh_us},
                                 {"overhead_us", t.mesh_us - t.plain_us},
                                 {"calls", t.calls}});
    }
    fmt::print("{}\n", json.dump(2));
    return 0;
  }
  Table table({"operator", "placements", "plain µs", "mesh µs", "overhead µs", "a call"});
  for (const TensorTiming& t : timings) {
    const double overhead = t.mesh_us - t.plain_us;
    table.add_row({t.name, t.placements, fmt::format("{:.2f}", t.plain_us), fmt::format("{:.2f}", t.mesh_us),
                   fmt::format("{:.2f}", overhead), fmt::format("{:.2f}", overhead / t.calls)});
  }
  fmt::print("{}\n{} operators have a rule: trireme bench tensor --rules\n",
             table.to_text({.bold_header = has_colour(STDOUT_FILENO), .rule = true}), covered_operators().size());
  return 0;
}

int show_rules(const TensorFlags& flags) {
  ProofOptions options;
  options.only = flags.only;
  const std::vector<OperatorProof> proofs = prove_rules(options);
  if (proofs.empty()) throw UsageError(fmt::format("no operator has \"{}\" in its name", flags.only));
  int wrong = 0;
  Json json = Json::array();
  Table table({"operator", "rule", "layouts", "gradients", "nothing moved"});
  for (const OperatorProof& proof : proofs) {
    wrong += proof.error.empty() ? 0 : 1;
    const char* rule = proof.is_made_of_others ? "of others" : proof.needs_gpu ? "on a GPU" : "own";
    table.add_row({proof.name.substr(6), rule, std::to_string(proof.cases), std::to_string(proof.gradients),
                   std::to_string(proof.without_moving)});
    json.push_back({{"operator", proof.name},
                    {"rule", rule},
                    {"layouts", proof.cases},
                    {"gradients", proof.gradients},
                    {"without_moving", proof.without_moving},
                    {"refused", proof.refused},
                    {"error", proof.error}});
  }
  if (flags.json) {
    fmt::print("{}\n", Json{{"rules", json}, {"wrong", wrong}}.dump(2));
  } else if (flags.markdown) {
    fmt::print("{}", operator_page(proofs));
  } else {
    fmt::print("{}\n{} operators, {} wrong or missing\n",
               table.to_text({.bold_header = has_colour(STDOUT_FILENO), .rule = true}), proofs.size(), wrong);
  }
  for (const OperatorProof& proof : proofs) {
    if (!proof.error.empty()) fmt::print(stderr, "wrong: {}: {}\n", proof.name, proof.error);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

void add_bench_tensor(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TensorFlags>();
  CLI::App* command = app.add_subcommand("bench-tensor", "what trireme bench tensor measures");
  command->add_flag("--json", flags->json, "one object on stdout");
  command->add_flag("--rules", flags->rules, "proves the rules and lists them");
  command->add_flag("--markdown", flags->markdown, "with --rules: the page docs/mesh_operators.md");
  command->add_option("--only", flags->only, "operators whose names contain this");
  command->callback([flags, &exit_code] { exit_code = flags->rules ? show_rules(*flags) : show_timings(*flags); });
}

}  // namespace trireme::cli
