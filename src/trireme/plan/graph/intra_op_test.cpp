// The intra-operator pass: finds Megatron's layout where it is best, equals exhaustive search on small graphs, and has
// the simulator's costs.
#include "trireme/plan/graph/intra_op.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/simulate/block_cost.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

ModelConfig gpt(int64_t layers, int64_t hidden) {
  ModelConfig model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = model.kv_heads = 16;
  model.ffn = 4 * hidden;
  model.seq = 512;
  model.vocab = 32000;
  return model;
}

ModelConfig llama(int64_t layers, int64_t hidden) {
  ModelConfig model = gpt(layers, hidden);
  model.kind = ModelKind::kLlama;
  model.kv_heads = 8;
  model.ffn = 3 * hidden;
  model.tied = false;
  return model;
}

double forward_flops(const Graph& graph) {
  double sum = 0;
  for (const GraphOperator& op : graph.operators) {
    sum += op.work.attention_flops;
    for (const Product& product : op.work.forward_products) sum += product.flops();
    if (!op.work.is_linear) continue;
    const auto& output = graph.tensors[static_cast<size_t>(op.outputs[0])].sizes;
    const auto& weight = graph.tensors[static_cast<size_t>(op.inputs[static_cast<size_t>(op.work.factors[1])])].sizes;
    // A convolution's weight is [out, in, kernel …], a matmul's [in, out].
    const double depth =
        weight.size() > 2 ? elements(weight) / static_cast<double>(weight[0]) : static_cast<double>(weight[0]);
    sum += 2 * elements(output) * depth;
  }
  return sum;
}

Job job_for(const ModelConfig& model, int64_t micro_batch) {
  Job job;
  job.model = model;
  job.layout.micro_batch = job.layout.global_batch = micro_batch;
  return job;
}

TEST(Graph, HasTheParametersOfTheModel) {
  for (ModelConfig model : {gpt(3, 256), llama(2, 512)}) {
    const Graph graph = graph_of(model, 2);
    graph.check();
    EXPECT_EQ(graph.num_parameters(), static_cast<double>(count_parameters(model)));
    EXPECT_EQ(graph.num_layers, model.layers + 2);
  }
  ModelConfig mlp;
  mlp.kind = ModelKind::kMlp;
  mlp.layers = 5;
  const Graph perceptron = graph_of(mlp, 4);
  perceptron.check();
  EXPECT_EQ(perceptron.num_parameters(), static_cast<double>(count_parameters(mlp)));
  for (const int64_t depth : {18, 34, 50, 101}) {
    ModelConfig resnet;
    resnet.kind = ModelKind::kResNet;
    resnet.depth = depth;
    resnet.channels = 3;
    for (const int64_t image : {32, 224}) {
      resnet.image = image;
      const Graph graph = graph_of(resnet, 8);
      graph.check();
      EXPECT_EQ(graph.num_parameters(), static_cast<double>(count_parameters(resnet))) << depth;
    }
  }
}

TEST(Graph, CostsWhatTheSimulatorCounts) {
  for (const char* name : {"a100-80gb", "h100-80gb", "v100-16gb"}) {
    const Cluster cluster = find_cluster(name);
    for (const ModelConfig& model : {gpt(3, 2048), llama(3, 2048)}) {
      Job job = job_for(model, 4);
      job.layout.compute = NumberType::kFloat16;
      const bool fused = behaviour_of(job, cluster).flash_attention;
      const Graph graph =
          graph_of(model, 4, {.element_bytes = 2, .fused = fused, .gated_traffic = cluster.stack.gated_traffic});
      IntraOpProblem problem{&graph, cluster, {{1}}, {.type = NumberType::kFloat16}};
      const IntraOpPlan plan = plan_operators(problem);
      const std::vector<BlockCost> blocks = block_costs(job, cluster);
      double flops = 0;
      for (size_t layer = 0; layer < blocks.size(); ++layer) {
        const BlockCost& block = blocks[layer];
        const double seconds = block.forward + block.backward_input + block.backward_weight;
        EXPECT_NEAR(plan.layer_seconds[layer], seconds, 0.002 * seconds) << name << " " << layer;
        flops += block.model_flops;
        if (block.name == "block") {
          const double matrix = fused ? 0 : 5.0 * 16 * 512 * 512 * 4;  // which unfused attention keeps as well
          EXPECT_NEAR(plan.layer_activation_bytes[layer] + matrix, block.activation_bytes,
                      1e-6 * block.activation_bytes);
        }
      }
      if (!fused) {
        EXPECT_NEAR(3 * forward_flops(graph), flops, 1e-6 * flops);
      }
    }
  }
}

/// Placements of a parameter: "[shard(0, stretches 3)]".
std::string placement_of(const Graph& graph, const IntraOpPlan& plan, const std::string& name) {
  for (const auto& [who, where] : placements_of(graph, plan, {0, graph.num_layers})) {
    if (who.find(name) != std::string::npos) return where;
  }
  return "none";
}

TEST(IntraOp, FindsMegatronWhenMemoryForbidsReplicas) {
  for (const bool is_llama : {false, true}) {
    const ModelConfig model = is_llama ? llama(4, 4096) : gpt(4, 4096);
    const Graph graph = graph_of(model, 1);
    IntraOpProblem problem{&graph, find_cluster("h100-80gb"), {{4}}, {}};
    // A single sample cannot be sharded by samples.
    const IntraOpPlan plan = plan_operators(problem);
    EXPECT_EQ(placement_of(graph, plan, "mlp.down.weight"), "[shard(1)]");
    EXPECT_EQ(placement_of(graph, plan, "attention.output.weight"), "[shard(1)]");
    EXPECT_TRUE(placement_of(graph, plan, "attention.qkv.weight").starts_with("[shard(0"));
    EXPECT_TRUE(placement_of(graph, plan, is_llama ? "mlp.(gate|up)" : "mlp.up").starts_with("[shard(0"));
  }
}

TEST(IntraOp, PutsSamplesOnTheSlowAxisAndTensorsOnTheFast) {
  // Two hosts of four devices, a slow network between them. The first axis crosses it.
  Cluster cluster = find_cluster("a100-80gb");
  cluster.devices_per_host = 4;
  cluster.between.bandwidth = 3e9;
  const Graph graph = graph_of(gpt(4, 4096), 2);
  IntraOpProblem problem{&graph, cluster, {{2, 4}}, {.micro_batches = 64}};
  const IntraOpPlan plan = plan_operators(problem);
  EXPECT_EQ(placement_of(graph, plan, "mlp.down.weight"), "[replicate, shard(1)]");
  EXPECT_TRUE(placement_of(graph, plan, "attention.qkv.weight").starts_with("[replicate, shard(0"));
}

TEST(IntraOp, PrefersReplicasForSmallModels) {
  const Graph graph = graph_of(gpt(2, 512), 8);
  IntraOpProblem problem{&graph, find_cluster("a100-80gb"), {{4}}, {.micro_batches = 8}};
  EXPECT_EQ(placement_of(graph, plan_operators(problem), "mlp.up.weight"), "[replicate]");
}

TEST(IntraOp, KeepsTheLimit) {
  const Graph graph = graph_of(gpt(4, 2048), 8);
  IntraOpProblem problem{&graph, find_cluster("a100-80gb"), {{4}}, {.micro_batches = 8}};
  const IntraOpPlan free = plan_operators(problem);
  problem.limit_bytes = 0.5 * free.bytes;
  const IntraOpPlan held = plan_operators(problem);
  ASSERT_NE(held.proof, ChoiceProof::kInfeasible);
  EXPECT_LE(held.bytes, problem.limit_bytes);
  EXPECT_GT(held.seconds, free.seconds);
  problem.limit_bytes = 0.05 * free.bytes;
  const IntraOpPlan none = plan_operators(problem);
  EXPECT_EQ(none.proof, ChoiceProof::kInfeasible);
  EXPECT_GT(none.least_bytes, problem.limit_bytes);
}

// Layers at the ends could have other placements than those between, for a gain below 0.1 %.
TEST(IntraOp, FoldingLosesNextToNothingOnTransformers) {
  const Graph graph = graph_of(gpt(5, 2048), 4);
  for (const StageMesh& mesh : {StageMesh{{4}}, StageMesh{{2, 2}}}) {
    IntraOpProblem problem{&graph, find_cluster("a100-80gb"), mesh, {.micro_batches = 4}};
    const IntraOpPlan folded = plan_operators(problem);
    problem.fold = false;
    const IntraOpPlan whole = plan_operators(problem);
    EXPECT_GE(folded.seconds, whole.seconds * (1 - 1e-9));
    EXPECT_LE(folded.seconds, whole.seconds * 1.001);
    double sum = 0;
    for (const double seconds : folded.layer_seconds) sum += seconds;
    EXPECT_NEAR(sum, folded.seconds, 1e-9 * sum);
  }
}

TEST(IntraOp, IsTheOptimumOfItsModel) {  // small random perceptrons on random meshes, against all choices
  std::mt19937 random(5);
  int cases = 0;
  for (int trial = 0; trial < 150; ++trial) {
    ModelConfig mlp;
    mlp.kind = ModelKind::kMlp;
    mlp.layers = 1 + static_cast<int64_t>(random() % 2);
    mlp.hidden = int64_t{256} << random() % 5;
    mlp.image = 16;
    mlp.classes = 64;
    const Graph graph = graph_of(mlp, int64_t{4} << random() % 6);
    IntraOpProblem problem{&graph, find_cluster(random() % 2 == 0 ? "a100-80gb" : "v100-16gb"), {{2}}, {}};
    problem.mesh = random() % 3 == 0 ? StageMesh{{2, 2}} : StageMesh{{1 << (1 + random() % 2)}};
    problem.setting.micro_batches = static_cast<double>(1 + random() % 16);
    problem.fold = false;
    const IntraOpChoices choices = choices_of(problem);
    const ChoiceProblem& all = choices.problem;
    double combinations = 1;
    for (const ChoiceNode& node : all.nodes) combinations *= static_cast<double>(node.costs.size());
    if (combinations > 1e6) continue;
    ChoiceProblem limited = all;
    std::vector<int> chosen(all.nodes.size(), 0);
    const ChoiceSolution free = solve(all);
    if (trial % 2 == 0) limited.limit_bytes = problem.limit_bytes = 0.7 * free.bytes;
    double best = kForbidden;
    for (;;) {
      const bool keeps = limited.limit_bytes <= 0 || limited.bytes_of(chosen) <= limited.limit_bytes;
      if (keeps) best = std::min(best, all.cost_of(chosen));
      size_t n = 0;
      while (n < chosen.size() && ++chosen[n] == static_cast<int>(all.nodes[n].costs.size())) chosen[n++] = 0;
      if (n == chosen.size()) break;
    }
    const IntraOpPlan plan = plan_operators(problem);
    if (best >= kForbidden) {
      EXPECT_EQ(plan.proof, ChoiceProof::kInfeasible);
    } else {
      EXPECT_NEAR(plan.seconds, best, 1e-9 * best) << trial;
    }
    ++cases;
  }
  EXPECT_GT(cases, 100);
}

TEST(IntraOp, AgreesWithHighsOnATransformer) {
  if (!has_highs()) GTEST_SKIP() << "this build has no HiGHS";
  const Graph graph = graph_of(gpt(2, 1024), 2);
  IntraOpProblem problem{&graph, find_cluster("a100-80gb"), {{2}}, {.micro_batches = 4}};
  const IntraOpPlan free = plan_operators(problem);
  for (const double fraction : {0.0, 0.6}) {
    problem.limit_bytes = fraction * free.bytes;
    const IntraOpPlan ours = plan_operators(problem);
    ChoiceSolution theirs;
    ASSERT_TRUE(solve_with_highs(choices_of(problem).problem, 120, theirs));
    ASSERT_EQ(theirs.proof, ours.proof);
    EXPECT_NEAR(theirs.cost, ours.seconds, 1e-6 * ours.seconds);
  }
}

}  // namespace
}  // namespace trireme
