// Solves choice problems as integer programs with HiGHS through its C API. Its library uses another std::string ABI and
// symbols that would clash with libtorch's, so it is loaded at run time with dlopen, in isolation.
#include <dlfcn.h>
#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>

#include "trireme/plan/graph/choice.h"

namespace trireme {
namespace {

struct Highs {
  decltype(&Highs_create) create = nullptr;
  decltype(&Highs_destroy) destroy = nullptr;
  decltype(&Highs_setBoolOptionValue) set_bool = nullptr;
  decltype(&Highs_setIntOptionValue) set_int = nullptr;
  decltype(&Highs_setDoubleOptionValue) set_double = nullptr;
  decltype(&Highs_passMip) pass = nullptr;
  decltype(&Highs_run) run = nullptr;
  decltype(&Highs_getModelStatus) status = nullptr;
  decltype(&Highs_getSolution) solution = nullptr;
  bool is_loaded = false;
};

const Highs& highs() {
  static const Highs functions = [] {
    Highs h;
    // The library is next to libtrireme, whose run path includes that folder.
    void* library = dlopen("libhighs.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return h;
    bool all = true;
    const auto load = [&](auto& pointer, const char* name) {
      pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(dlsym(library, name));
      all = all && pointer != nullptr;
    };
    load(h.create, "Highs_create");
    load(h.destroy, "Highs_destroy");
    load(h.set_bool, "Highs_setBoolOptionValue");
    load(h.set_int, "Highs_setIntOptionValue");
    load(h.set_double, "Highs_setDoubleOptionValue");
    load(h.pass, "Highs_passMip");
    load(h.run, "Highs_run");
    load(h.status, "Highs_getModelStatus");
    load(h.solution, "Highs_getSolution");
    h.is_loaded = all;
    return h;
  }();
  return functions;
}

/// Constraint matrix, built row by row.
struct Program {
  std::vector<double> cost, lower, upper, row_lower, row_upper, value;
  std::vector<HighsInt> start, index, integrality;

  HighsInt column(double column_cost, bool is_integer) {
    cost.push_back(column_cost);
    lower.push_back(0);
    upper.push_back(1);
    integrality.push_back(is_integer ? 1 : 0);
    return static_cast<HighsInt>(cost.size()) - 1;
  }
  void begin_row(double least, double most) {
    start.push_back(static_cast<HighsInt>(index.size()));
    row_lower.push_back(least);
    row_upper.push_back(most);
  }
  void entry(HighsInt column_index, double factor) {
    index.push_back(column_index);
    value.push_back(factor);
  }
};

/// Scales costs to about 1, for which the solver's tolerances are designed.
double scale_of(const ChoiceProblem& problem) {
  double largest = 0;
  const auto see = [&](const std::vector<double>& costs) {
    for (const double cost : costs) {
      if (cost < kForbidden) largest = std::max(largest, cost);
    }
  };
  for (const ChoiceNode& node : problem.nodes) see(node.costs);
  for (const ChoiceEdge& edge : problem.edges) see(edge.costs);
  return largest > 0 ? 1000 / largest : 1;
}

// Each node takes one choice; each edge takes the pair of its nodes' choices. Pairs follow from the nodes, so only node
// variables need to be integer.
Program program_of(const ChoiceProblem& problem, std::vector<HighsInt>& first) {
  Program p;
  const double scale = scale_of(problem);
  for (const ChoiceNode& node : problem.nodes) {
    first.push_back(static_cast<HighsInt>(p.cost.size()));
    for (const double cost : node.costs) p.column(cost * scale, true);
  }
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    p.begin_row(1, 1);
    for (size_t i = 0; i < problem.nodes[n].costs.size(); ++i) p.entry(first[n] + static_cast<HighsInt>(i), 1);
  }
  for (const ChoiceEdge& edge : problem.edges) {
    const auto from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
    const size_t rows = problem.nodes[from].costs.size(), columns = problem.nodes[to].costs.size();
    std::vector<HighsInt> pairs(rows * columns, -1);
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (edge.costs[i] < kForbidden) pairs[i] = p.column(edge.costs[i] * scale, false);
    }
    for (size_t i = 0; i < rows; ++i) {
      p.begin_row(0, 0);
      p.entry(first[from] + static_cast<HighsInt>(i), -1);
      for (size_t j = 0; j < columns; ++j) {
        if (pairs[i * columns + j] >= 0) p.entry(pairs[i * columns + j], 1);
      }
    }
    for (size_t j = 0; j < columns; ++j) {
      p.begin_row(0, 0);
      p.entry(first[to] + static_cast<HighsInt>(j), -1);
      for (size_t i = 0; i < rows; ++i) {
        if (pairs[i * columns + j] >= 0) p.entry(pairs[i * columns + j], 1);
      }
    }
  }
  if (problem.limit_bytes > 0) {
    p.begin_row(0, 1000);
    for (size_t n = 0; n < problem.nodes.size(); ++n) {
      for (size_t i = 0; i < problem.nodes[n].bytes.size(); ++i) {
        p.entry(first[n] + static_cast<HighsInt>(i), problem.nodes[n].bytes[i] / problem.limit_bytes * 1000);
      }
    }
  }
  return p;
}

}  // namespace

bool has_highs() { return highs().is_loaded; }

bool solve_with_highs(const ChoiceProblem& problem, double most_seconds, ChoiceSolution& solution) {
  const Highs& h = highs();
  if (!h.is_loaded) return false;
  std::vector<HighsInt> first;
  Program p = program_of(problem, first);
  void* solver = h.create();
  h.set_bool(solver, "output_flag", 0);
  h.set_int(solver, "threads", 1);
  h.set_double(solver, "time_limit", most_seconds);
  h.set_double(solver, "mip_rel_gap", 0);
  h.set_double(solver, "mip_abs_gap", 0);
  const auto columns = static_cast<HighsInt>(p.cost.size()), rows = static_cast<HighsInt>(p.row_lower.size());
  const auto entries = static_cast<HighsInt>(p.value.size());
  HighsInt status = h.pass(solver, columns, rows, entries, kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0,
                           p.cost.data(), p.lower.data(), p.upper.data(), p.row_lower.data(), p.row_upper.data(),
                           p.start.data(), p.index.data(), p.value.data(), p.integrality.data());
  if (status != kHighsStatusError) status = h.run(solver);
  const HighsInt model = h.status(solver);
  std::vector<double> values(p.cost.size()), rest(p.cost.size()), row_values(p.row_lower.size()), row_rest(row_values);
  if (model == kHighsModelStatusOptimal) {
    h.solution(solver, values.data(), rest.data(), row_values.data(), row_rest.data());
  }
  h.destroy(solver);
  solution = {};
  if (model == kHighsModelStatusInfeasible) return true;
  if (status == kHighsStatusError || model != kHighsModelStatusOptimal) return false;
  for (size_t n = 0; n < problem.nodes.size(); ++n) {
    const auto own = values.begin() + first[n];
    const auto count = static_cast<std::ptrdiff_t>(problem.nodes[n].costs.size());
    solution.choices.push_back(static_cast<int>(std::max_element(own, own + count) - own));
  }
  solution.cost = solution.lower_bound = problem.cost_of(solution.choices);
  solution.bytes = problem.bytes_of(solution.choices);
  solution.proof = ChoiceProof::kOptimal;
  return true;
}

}  // namespace trireme
