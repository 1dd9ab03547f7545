#include "trireme/cli/bench_tensor.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "trireme/cli/commands.h"

namespace trireme::cli {

void add_bench_tensor(CLI::App& bench) {
  struct Flags {
    bool json = false, rules = false, markdown = false;
    std::string only;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = bench.add_subcommand("tensor", "what mesh tensors cost, operator by operator");
  command->add_flag("--json", flags->json, "one object on stdout");
  command->add_flag("--rules", flags->rules, "proves the rules of all operators, and lists them (half a minute)");
  command->add_flag("--markdown", flags->markdown, "with --rules: the page docs/mesh_operators.md");
  command->add_option("--only", flags->only, "operators whose names contain this")->type_name("TEXT");
  command->footer(
      "Each operator on a small tensor: plain, as a mesh tensor replicated on one worker, and cut over two in a way\n"
      "that moves nothing, so that what is left is the cost of mesh tensors themselves.\n"
      "\n"
      "Examples\n"
      "  trireme bench tensor\n"
      "  trireme bench tensor --rules --only softmax\n"
      "\n"
      "More: docs/mesh_tensors.md");
  command->callback([flags] {
    std::vector<std::string> words = {tensor_program(), "bench-tensor"};
    if (flags->json) words.push_back("--json");
    if (flags->rules) words.push_back("--rules");
    if (flags->markdown) words.push_back("--markdown");
    if (!flags->only.empty()) words.insert(words.end(), {"--only", flags->only});
    replace_process(words);
  });
}

}  // namespace trireme::cli
