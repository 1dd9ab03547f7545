#include "trireme/plan/graph/graph_plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/index.h"
#include "trireme/base/text.h"
#include "trireme/plan/plan_text.h"

namespace trireme {
namespace {

constexpr const char* kAt = " at [";

std::string placements_text(const std::vector<Placement>& placements) {
  std::vector<std::string> words;
  for (const Placement& p : placements) words.push_back(p.to_string());
  return kAt + join(words, ", ") + "]";
}

/// Text of an operator without its strategy, which is the same in every plan.
std::string operator_text(const Graph& graph, const GraphOperator& op, const OperatorStrategy* strategy) {
  std::vector<std::string> inputs, outputs;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const GraphTensor& tensor = graph.tensors[at(op.inputs[i])];
    inputs.push_back(fmt::format("{} {}{}", tensor.name, sizes_text(tensor.sizes),
                                 strategy ? placements_text(strategy->inputs[i]) : ""));
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    outputs.push_back(fmt::format("{}{}", sizes_text(graph.tensors[at(op.outputs[i])].sizes),
                                  strategy ? placements_text(strategy->outputs[i]) : ""));
  }
  return fmt::format("{}({}) -> {}", op.name, join(inputs, ", "), join(outputs, ", "));
}

/// A line of the file: the operator, and the placements of its tensors, inputs before outputs.
struct OperatorLine {
  std::string text;
  std::vector<std::vector<Placement>> placements;
};
OperatorLine line_from(const std::string& line) {
  OperatorLine made;
  size_t first = 0;
  for (size_t found = line.find(kAt); found != line.npos; found = line.find(kAt, first)) {
    const size_t begin = found + std::string_view(kAt).size(), end = std::min(line.find(']', begin), line.size());
    made.text += line.substr(first, found - first);
    made.placements.push_back(placements_from(std::string_view(line).substr(begin, end - begin)));
    first = std::min(end + 1, line.size());
  }
  made.text += line.substr(first);
  return made;
}

class Matcher {
 public:
  Matcher(const GraphPlanFile& file, Graph graph, const GraphLayout& layout) : file_(file) {
    plan_.layout = layout;
    plan_.graph = std::move(graph);
    plan_.seconds = file.step_seconds;
    plan_.bytes = file.memory_bytes;
  }

  GraphPlan run() {
    check_operators();
    set_stages();
    for (size_t o = 0; o < file_.operators.size(); ++o) set_strategy(o);
    return std::move(plan_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& cure) const {
    throw UsageError(fmt::format("{}: {}", file_.name, what), cure);
  }

  void check_operators() {
    const std::vector<GraphOperator>& operators = plan_.graph.operators;
    for (size_t o = 0; o < std::min(operators.size(), file_.operators.size()); ++o) {
      const std::string here = operator_text(plan_.graph, operators[o], nullptr);
      try {
        lines_.push_back(line_from(file_.operators[o]));
      } catch (const UsageError& error) {
        fail(fmt::format("operator {}: {}", o, error.what()), "placements are replicate, shard(0), partial(sum)");
      }
      if (lines_.back().text == here) continue;
      fail(fmt::format("the plan is for another module or for other sizes: operator {} is \"{}\" there, \"{}\" here", o,
                       lines_.back().text, here),
           "plan anew with .plan = \"auto\"");
    }
    if (operators.size() == file_.operators.size()) return;
    fail(fmt::format("the plan is for another module: it has {} operators there, {} here", file_.operators.size(),
                     operators.size()),
         "plan anew with .plan = \"auto\"");
  }

  void set_stages() {
    Graph& graph = plan_.graph;
    const int64_t count = static_cast<int64_t>(graph.operators.size());
    if (file_.stages.size() != plan_.layout.meshes.size()) {
      fail(fmt::format("it has {} stages, and its layout \"{}\" has {}", file_.stages.size(), file_.layout,
                       plan_.layout.meshes.size()),
           "list one for each mesh of the layout");
    }
    graph.num_layers = static_cast<int>(file_.stages.size());
    graph.layer_names.clear();
    int64_t next = 0;
    for (size_t s = 0; s < file_.stages.size(); ++s) {
      const GraphPlanFile::Stage& stage = file_.stages[s];
      if (stage.first != next || stage.last >= count) {
        fail(fmt::format("stage {} has operators {}-{}, and should begin with {} and end by {}", s, stage.first,
                         stage.last, next, count - 1),
             "let stages follow each other, and have all operators together");
      }
      if (stage.mesh != to_string(plan_.layout.meshes[s])) {
        fail(fmt::format("stage {} has the mesh {}, and {} in the layout \"{}\"", s, stage.mesh,
                         to_string(plan_.layout.meshes[s]), file_.layout),
             "write the same");
      }
      for (int64_t o = stage.first; o <= stage.last; ++o) graph.operators[at(o)].layer = static_cast<int>(s);
      graph.layer_names.push_back(fmt::format("stage {}", s));
      plan_.stages.push_back({static_cast<int>(s), static_cast<int>(s) + 1});
      plan_.recompute.push_back(stage.recompute);
      plan_.stage_bytes.push_back(stage.memory_bytes);
      next = stage.last + 1;
    }
    if (next != count) {
      fail(fmt::format("its stages end with operator {}, and the module with {}", next - 1, count - 1),
           "let stages have all operators together");
    }
  }

  /// Returns the operator's strategy that the line describes.
  void set_strategy(size_t o) {
    const GraphOperator& op = plan_.graph.operators[o];
    const StageMesh& mesh = plan_.layout.meshes[at(op.layer)];
    auto known = ways_.find(op.layer);
    if (known == ways_.end()) known = ways_.emplace(op.layer, strategies_of(plan_.graph, mesh)).first;
    for (const OperatorStrategy& way : known->second[o]) {
      std::vector<std::vector<Placement>> placements = way.inputs;
      placements.insert(placements.end(), way.outputs.begin(), way.outputs.end());
      if (placements != lines_[o].placements) continue;
      plan_.operators.strategies.push_back(way);
      return;
    }
    std::string ways;
    for (size_t i = 0; i < std::min<size_t>(3, known->second[o].size()); ++i) {
      ways += fmt::format("{}\"{}\"", i == 0 ? "" : ", or ", operator_text(plan_.graph, op, &known->second[o][i]));
    }
    fail(fmt::format("no rule computes operator {} as \"{}\" on the mesh {}", o, file_.operators[o], to_string(mesh)),
         fmt::format("take one of its {} ways, such as {}", known->second[o].size(), ways));
  }

  const GraphPlanFile& file_;
  GraphPlan plan_;
  std::vector<OperatorLine> lines_;
  std::map<int, std::vector<std::vector<OperatorStrategy>>> ways_;  ///< by stage
};

}  // namespace

std::string graph_plan_to_json(const GraphPlan& plan, int64_t batch, const std::string& cluster) {
  Json stages = Json::array(), operators = Json::array();
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    size_t first = 0;
    while (plan.graph.operators[first].layer < plan.stages[s].first) ++first;
    size_t last = plan.graph.operators.size() - 1;
    while (plan.graph.operators[last].layer >= plan.stages[s].last) --last;
    stages.push_back({{"operators", fmt::format("{}-{}", first, last)},
                      {"mesh", to_string(plan.layout.meshes[s])},
                      {"recompute", static_cast<bool>(plan.recompute[s])},
                      {"memory_bytes", plan.stage_bytes[s]}});
  }
  for (size_t o = 0; o < plan.graph.operators.size(); ++o) {
    operators.push_back(operator_text(plan.graph, plan.graph.operators[o], &plan.operators.strategies[o]));
  }
  const Json json = {{"format", kGraphPlanFormat},
                     {"world_size", plan.layout.num_devices()},
                     {"cluster", cluster},
                     {"batch", batch},
                     {"layout", plan.layout.to_string()},
                     {"stages", stages},
                     {"operators", operators},
                     {"predicted", {{"step_seconds", plan.seconds}, {"memory_bytes", plan.bytes}}}};
  return json.dump(2) + "\n";
}

GraphPlanFile graph_plan_from_json(std::string_view text, const std::string& name) {
  const Json json = parse_plan(text, name);
  JsonReader read = plan_reader(json, name);
  GraphPlanFile file;
  file.name = name;
  std::string format;
  read("format", format);
  if (format != kGraphPlanFormat) {
    read.fail(fmt::format("its \"format\" is \"{}\", not \"{}\"", format, kGraphPlanFormat),
              "parallelize() writes such plans with .write_plan; those of `trireme plan` are for `trireme train`");
  }
  read("world_size", file.world_size);
  read("cluster", file.cluster);
  read("batch", file.batch);
  read("layout", file.layout);
  const Json &stages = read.part("stages"), &operators = read.part("operators");
  if (!stages.is_array() || !operators.is_array()) read.fail("its \"stages\" and \"operators\" are no lists");
  for (const Json& each : stages) {
    JsonReader stage = plan_reader(each, name, fmt::format("stage {}", file.stages.size()));
    GraphPlanFile::Stage& made = file.stages.emplace_back();
    std::tie(made.first, made.last) = read_range(stage, "operators");
    stage("mesh", made.mesh);
    stage("recompute", made.recompute);
    stage("memory_bytes", made.memory_bytes);
    stage.finish();
  }
  for (const Json& each : operators) {
    if (!each.is_string()) read.fail(fmt::format("operator {} is no text", file.operators.size()));
    file.operators.push_back(each.get<std::string>());
  }
  JsonReader predicted = read.inside("predicted");
  predicted("step_seconds", file.step_seconds);
  predicted("memory_bytes", file.memory_bytes);
  predicted.finish();
  read.finish();
  return file;
}

void check_world(const GraphPlanFile& file, int world) {
  if (file.world_size != world) {
    throw UsageError(fmt::format("{} is a plan for {} workers, and there are {}", file.name, file.world_size, world),
                     fmt::format("start {} workers, or plan anew with .plan = \"auto\"", file.world_size));
  }
  graph_layout_from(file.layout, world);
}

GraphPlan graph_plan_of(const GraphPlanFile& file, const std::function<Graph(int64_t samples)>& graph_of,
                        int64_t batch) {
  if (file.batch != batch) {
    throw UsageError(
        fmt::format("{} is a plan for steps of {} samples, and this one has {}", file.name, file.batch, batch),
        "give the batch that was planned, or plan anew with .plan = \"auto\"");
  }
  const GraphLayout layout = graph_layout_from(file.layout, static_cast<int>(file.world_size));
  const int64_t parts = int64_t{layout.replicas} * layout.micro_batches;
  if (batch % parts != 0) {
    throw UsageError(fmt::format("{}: a batch of {} cannot be cut as \"{}\" says", file.name, batch, file.layout),
                     "let replicas times micro-batches divide it");
  }
  return Matcher(file, graph_of(batch / parts), layout).run();
}

}  // namespace trireme
