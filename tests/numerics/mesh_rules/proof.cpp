#include "numerics/mesh_rules/proof.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "numerics/mesh_rules/proof_call.h"
#include "numerics/mesh_rules/proof_layouts.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/comm/world.h"
#include "trireme/tensor/decision.h"

namespace trireme {
namespace {

constexpr uint64_t kSeed = 11;

/// Inputs of a call as leaves of a graph, and what the operator may write into.
struct Inputs {
  std::vector<at::Tensor> leaves, used;
  Inputs(const ProofCall& call, std::vector<at::Tensor> tensors, bool gradient) : leaves(std::move(tensors)) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (gradient && call.differentiable()[i]) leaves[i].requires_grad_(true);
      used.push_back(call.written()[i] ? leaves[i].clone() : leaves[i]);
    }
  }
};

/// The plain operator's results.
struct Expected {
  std::vector<at::Tensor> results, inputs_after, weights, gradients;
  bool changes_inputs = false;
  bool has_gradient = false;

  explicit Expected(const ProofCall& call) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : call.tensors()) copies.push_back(tensor.clone());
    if (call.checks_gradient()) differentiate(call, copies);
    at::manual_seed(kSeed);
    const at::NoGradGuard no_grad;
    results = call.run(copies);
    for (size_t i = 0; i < copies.size(); ++i) {
      changes_inputs = changes_inputs || !copies[i].equal(call.tensors()[i]);
      inputs_after.push_back(copies[i].detach());
    }
    for (at::Tensor& result : results) result = result.clone();
  }

 private:
  void differentiate(const ProofCall& call, const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
    const Inputs inputs(call, copies, true);
    at::manual_seed(kSeed);
    std::vector<at::Tensor> outputs;
    at::Generator generator = at::detail::createCPUGenerator(kSeed + 1);
    for (const at::Tensor& result : call.run(inputs.used)) {
      if (!result.requires_grad() || (call.first_gradient_only() && !outputs.empty())) continue;
      outputs.push_back(result);
      weights.push_back(at::empty(result.sizes(), result.options()).normal_(0, 1, generator));
    }
    if (outputs.empty()) return;
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& leaf : inputs.leaves) {
      if (leaf.requires_grad()) leaves.push_back(leaf);
    }
    gradients = torch::autograd::grad(outputs, leaves, weights, std::nullopt, false, true);
    has_gradient = true;
  }
};

/// Shares of a sum, by rank: they add up to 1 exactly.
double fraction_of(int axis_size, int coordinate) {
  static const std::vector<std::vector<double>> kFractions = {
      {1}, {0.75, 0.25}, {0.5, 0.75, -0.25}, {0.5, 0.25, 1, -0.75}};
  return kFractions[static_cast<size_t>(axis_size - 1)][static_cast<size_t>(coordinate)];
}

at::Tensor laid_out(const at::Tensor& tensor, const std::shared_ptr<DeviceMesh>& mesh, const Layout& layout) {
  Layout whole = layout;
  double fraction = 1;
  for (size_t axis = 0; axis < layout.size(); ++axis) {
    if (!layout[axis].is_partial()) continue;
    whole[axis] = Placement::replicate();
    fraction *= fraction_of(mesh->axis_sizes()[axis], mesh->coordinates()[axis]);
  }
  const at::Tensor cut = distribute(tensor, mesh, whole);
  if (whole == layout) return cut;
  return from_local(local_part(cut) * fraction, mesh, layout, tensor.sizes().vec()).detach();
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (!b.is_floating_point()) return a.to(b.scalar_type()).equal(b);
  const double bound = b.scalar_type() == at::kDouble ? 1e-9 : 1e-6;
  return at::allclose(a.to(b.scalar_type()), b, bound, bound, true);
}

class WrongResult : public Error {
 public:
  using Error::Error;
};

void check(const at::Tensor& found, const at::Tensor& expected, bool values, const std::string& what) {
  const at::Tensor plain = full(found.detach());
  if (found.sizes() != expected.sizes() || plain.sizes() != expected.sizes()) {
    throw WrongResult(fmt::format("{} has sizes {}, gathered {}, and should have {}", what, sizes_text(found.sizes()),
                                  sizes_text(plain.sizes()), sizes_text(expected.sizes())));
  }
  if (values && !same(plain, expected)) {
    const std::string where = is_mesh_tensor(found) ? mesh_spec(found)->layout->text : "plain";
    throw WrongResult(fmt::format("{} is wrong; it lies as {}", what, where));
  }
}

/// One call on this rank's mesh.
class Case {
 public:
  Case(const ProofCall& call, const Expected& expected, const std::shared_ptr<DeviceMesh>& mesh)
      : call_(call), expected_(expected), mesh_(mesh) {}

  void run(const std::vector<Layout>& layouts, bool cut_gradients, OperatorProof& proof) {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < layouts.size(); ++i) tensors.push_back(laid_out(call_.tensors()[i], mesh_, layouts[i]));
    const Inputs inputs(call_, tensors, expected_.has_gradient);
    std::vector<const MeshLayout*> before;
    for (const at::Tensor& tensor : inputs.used) before.push_back(mesh_spec(tensor)->layout);
    mesh_->seed(kSeed);
    const int64_t calls = collectives();
    std::vector<at::Tensor> results;
    try {
      results = call_.run(inputs.used);
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("writes in place into") == std::string_view::npos) throw;
      ++proof.refused;
      return;
    }
    if (collectives() == calls) ++proof.without_moving;
    if (results.size() != expected_.results.size()) throw WrongResult("the number of results is wrong");
    for (size_t i = 0; i < results.size(); ++i) {
      check(results[i], expected_.results[i], call_.checks_values(), fmt::format("result {}", i));
    }
    for (size_t i = 0; i < inputs.used.size(); ++i) {
      if (mesh_spec(inputs.used[i])->layout != before[i] && !call_.turns())
        throw WrongResult(fmt::format("input {} was moved", i));
      if (expected_.changes_inputs) check(inputs.used[i], expected_.inputs_after[i], true, fmt::format("input {}", i));
    }
    ++proof.cases;
    if (expected_.has_gradient) {
      differentiate(inputs, results, cut_gradients);
      ++proof.gradients;
    }
  }

 private:
  int64_t collectives() const {
    const MovementCounts& counts = mesh_->counts();
    int64_t sum = counts.inner_calls;
    for (const Movement movement :
         {Movement::kAllGather, Movement::kAllToAll, Movement::kAllReduce, Movement::kReduceScatter}) {
      sum += counts.calls_of(movement);
    }
    return sum;
  }

  void differentiate(const Inputs& inputs, const std::vector<at::Tensor>& results, bool cut) {
    std::vector<at::Tensor> outputs, weights, leaves;
    for (const at::Tensor& result : results) {
      if (!result.requires_grad() || outputs.size() == expected_.weights.size()) continue;
      Layout layout(static_cast<size_t>(mesh_->num_axes()));
      for (size_t axis = 0; cut && axis < layout.size(); ++axis) {
        if (placements_of(result)[axis].is_shard()) layout[axis] = placements_of(result)[axis];
      }
      weights.push_back(distribute(expected_.weights.at(outputs.size()), mesh_, layout));
      outputs.push_back(result);
    }
    for (const at::Tensor& leaf : inputs.leaves) {
      if (leaf.requires_grad()) leaves.push_back(leaf);
    }
    const auto gradients = torch::autograd::grad(outputs, leaves, weights, std::nullopt, false, true);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor& wanted = expected_.gradients[i];
      if (gradients[i].defined() != wanted.defined())
        throw WrongResult(fmt::format("gradient {} is or is not there", i));
      if (wanted.defined()) check(gradients[i], wanted, true, fmt::format("gradient {}", i));
    }
  }

  const ProofCall& call_;
  const Expected& expected_;
  std::shared_ptr<DeviceMesh> mesh_;
};

/// Ranks that see different things would hang in real programs.
void compare_ranks(const std::vector<MovementCounts>& counts, const std::vector<OperatorProof>& proofs) {
  for (size_t rank = 1; rank < counts.size(); ++rank) {
    if (counts[rank].calls != counts[0].calls || counts[rank].inner_calls != counts[0].inner_calls ||
        proofs[rank].cases != proofs[0].cases || proofs[rank].refused != proofs[0].refused) {
      throw WrongResult(fmt::format("ranks 0 and {} decided differently", rank));
    }
  }
}

void prove(const ProofCall& call, const ProofOptions& options, OperatorProof& proof) {
  const Expected expected(call);
  for (const std::string& text : options.meshes) {
    const Mesh mesh = Mesh::parse(text);
    const auto ranks = static_cast<size_t>(mesh.size());
    const auto cases =
        proof_layouts(call, static_cast<size_t>(mesh.num_axes()), static_cast<size_t>(options.most_cases));
    std::vector<MovementCounts> counts(ranks);
    std::vector<OperatorProof> found(ranks);
    std::mutex mutex;
    std::string first_error;  // of a rank that did not fail because another had
    try {
      WorldOptions world_options;
      world_options.call_timeout = std::chrono::seconds(20);
      run_as_threads(
          mesh.size(),
          [&](World& world) {
            const auto own = DeviceMesh::make(world.comm(), mesh);
            const auto rank = static_cast<size_t>(own->rank());
            for (size_t i = 0; i < cases.size(); ++i) {
              try {
                Case(call, expected, own).run(cases[i], i % 2 == 0, found[rank]);
              } catch (const std::exception& error) {
                const std::lock_guard lock(mutex);
                if (first_error.empty()) {
                  first_error = fmt::format("{} {} on {{{}}}, rank {}: {}", call.line(), describe_layouts(cases[i]),
                                            text, rank, std::string_view(error.what()).substr(0, 600));
                }
                throw;
              }
            }
            counts[rank] = own->counts();
          },
          world_options);
      compare_ranks(counts, found);
    } catch (const std::exception& error) {
      if (proof.error.empty())
        proof.error = first_error.empty() ? fmt::format("{}: {}", call.line(), error.what()) : first_error;
    }
    proof.cases += found[0].cases;
    proof.refused += found[0].refused;
    proof.gradients += found[0].gradients;
    proof.without_moving += found[0].without_moving;
  }
}

}  // namespace

std::vector<OperatorProof> prove_rules(const ProofOptions& options) {
  std::map<std::string, OperatorProof> all;
  for (const std::string& name : covered_operators()) all[name].name = name;
  const bool was_strict = is_strict();
  set_strict(true);
  for (const std::string& line : options.lines.empty() ? proof_lines() : options.lines) {
    try {
      if (line.starts_with('@')) {
        OperatorProof& proof = all[fmt::format("aten::{}", line.substr(1))];
        proof.name = fmt::format("aten::{}", line.substr(1));
        proof.needs_gpu = true;
        if (!c10::Dispatcher::singleton().findSchema({proof.name, ""})) proof.error = "libtorch has no such operator";
        continue;
      }
      const ProofCall call(line);
      OperatorProof& proof = all[call.name()];
      proof.name = call.name();
      if (call.name().find(options.only) == std::string::npos) continue;
      proof.is_made_of_others = call.is_composite() && !has_rule(call.name());
      prove(call, options, proof);
      if (proof.error.empty() && !proof.is_made_of_others && !has_rule(call.name())) proof.error = "there is no rule";
    } catch (const std::exception& error) {
      OperatorProof& proof = all[line];
      if (proof.error.empty()) proof.error = fmt::format("{}: {}", line, error.what());
      proof.name = line;
    }
  }
  set_strict(was_strict);
  std::vector<OperatorProof> proofs;
  for (auto& [name, proof] : all) {
    if (name.find(options.only) == std::string::npos) continue;
    if (proof.cases == 0 && proof.error.empty() && !proof.needs_gpu)
      proof.error = "no line of proof_samples.cpp calls it";
    proofs.push_back(std::move(proof));
  }
  return proofs;
}

std::string operator_page(const std::vector<OperatorProof>& proofs) {
  std::string text =
      "# Operators of mesh tensors\n"
      "\n"
      "Written and compared by `tests/numerics/mesh_rules_test.cpp`. Each operator was called with its inputs in\n"
      "many layouts on 2, 3, 4 and 2×2 workers and gave what the plain one gives, gradients included\n"
      "([how](mesh_tensors.md#how-to-add-a-rule-in-ten-lines)). *Of others*: libtorch composes it of operators in "
      "this\n"
      "table. *On a GPU*: there is no such kernel on a CPU. *Parts stay*: with a cut or partial input nothing had to "
      "move in\n"
      "at least one layout. What is not here gathers its inputs, and says so.\n"
      "\n"
      "| operator | rule | gradient | parts stay |\n| --- | --- | --- | --- |\n";
  for (const OperatorProof& proof : proofs) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", proof.name.substr(6),
                        proof.is_made_of_others ? "of others"
                        : proof.needs_gpu       ? "on a GPU"
                                                : "own",
                        proof.gradients > 0 ? "yes" : "–", proof.without_moving > 0 ? "yes" : "–");
  }
  return text;
}

}  // namespace trireme
