// What a worker holds in each stage of ZeRO is what the formulas say, within 5 %: counted in bytes that were really
// taken, on every worker, between two steps.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "numerics/training.h"
#include "trireme/plan/config_job.h"
#include "trireme/simulate/simulate.h"
#include "trireme/tensor/held_memory.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

/// Bytes a parameter.
struct Held {
  double states = 0;   ///< weights, gradients, optimizer
  double buffers = 0;  ///< as the trainer counts them
  double taken = 0;    ///< of libtorch's allocator and of communicators, all in all
  double most = 0;     ///< the same, at any moment of a step
};

struct Measured {
  std::vector<Held> ranks;
  double parameters = 0;
};

/// Samples are short, so that what passes hold is little.
Config config_for(const Words& model, int workers, int zero, const Words& precision) {
  Words words = {"--model.seq=4",
                 "--train.micro_batch=1",
                 "--optimizer.warmup_steps=0",
                 "--data.generated_size=20000",
                 "--train.steps=10",
                 fmt::format("--train.leaves={}", workers),
                 fmt::format("--train.global_batch={}", workers),
                 fmt::format("--parallel.dp={}", workers),
                 fmt::format("--parallel.zero={}", zero)};
  words.insert(words.begin(), model.begin(), model.end());
  words.insert(words.end(), precision.begin(), precision.end());
  ConfigSources sources;
  sources.arguments = words;
  return resolve(sources);
}

Measured measure(const Config& config, int workers) {
  const OpenedData data = open_data(data_options_of(config));
  Measured measured;
  measured.ranks.resize(static_cast<size_t>(workers));
  std::mutex mutex;
  run_as_threads(workers, [&](World& world) {
    at::set_num_threads(1);
    const HeldMemory memory;
    Trainer trainer(world, build_model(config), config, data);
    for (int step = 0; step < 2; ++step) trainer.step();
    const StateParts parts = trainer.state_parts();
    const auto parameters = static_cast<double>(trainer.part().num_parameters());
    const auto each = [&](auto bytes) { return static_cast<double>(bytes) / parameters; };
    const std::lock_guard lock(mutex);
    measured.ranks[static_cast<size_t>(world.rank())] = {each(parts.sum()), each(parts.buffers),
                                                         each(memory.now_bytes()), each(memory.most_bytes())};
    measured.parameters = parameters;
  });
  return measured;
}

/// 16 bytes a parameter: those of the paper.
double formula(int zero, double replicas, bool mixed) {
  const double weights = mixed ? 2 : 4, gradients = weights, optimizer = mixed ? 12 : 8;
  return weights / (zero >= 3 ? replicas : 1) + gradients / (zero >= 2 ? replicas : 1) +
         optimizer / (zero >= 1 ? replicas : 1);
}

/// What `trireme simulate` says of states and buffers, and the gradient of the second use of a tied embedding.
double predicted(const Config& config, double parameters) {
  Cluster cluster = find_cluster("a100-80gb");
  cluster.stack = {};
  cluster.stack.sums_in_tree = true;
  const Job job = job_of(config, trireme_on(cluster));
  const RankMemory memory = simulate(job, cluster).ranks[0].memory;
  const auto tied = static_cast<double>(config.model.tied ? config.model.vocab * config.model.hidden : 0);
  const double num_shards = config.parallel.zero >= 2 ? static_cast<double>(config.parallel.dp) : 1;
  return (memory.states() + memory.buffers + tied * job.layout.gradient_bytes() / num_shards) / parameters;
}

const Words kGpt = {"--model=gpt2-tiny", "--model.layers=16", "--model.hidden=128", "--model.heads=4"};
const Words kManyWords = {"--model=gpt2-tiny", "--model.layers=12", "--model.hidden=128", "--model.heads=4",
                          "--model.vocab=4096"};
const Words kLlama = {"--model=llama-tiny", "--model.layers=14", "--model.hidden=144", "--model.heads=4",
                      "--model.kv_heads=2", "--model.ffn=400",   "--model.vocab=1000"};
const Words kMixed = {"--precision.compute=bfloat16", "--precision.gradients=compute"};

class ZeroMemory : public testing::TestWithParam<std::tuple<const char*, Words>> {};

TEST_P(ZeroMemory, IsThatOfTheFormulas) {
  const auto& [name, model] = GetParam();
  for (const bool mixed : {false, true}) {
    for (const int workers : {2, 3, 4}) {
      for (int zero = 0; zero <= 3; ++zero) {
        const Config config = config_for(model, workers, zero, mixed ? kMixed : Words{});
        const Measured measured = measure(config, workers);
        const double states = formula(zero, workers, mixed), all = predicted(config, measured.parameters);
        SCOPED_TRACE(fmt::format("{}, {}, {} workers, stage {}", name, mixed ? "bfloat16" : "float32", workers, zero));
        Held largest;
        for (const Held& held : measured.ranks) {
          EXPECT_NEAR(held.states / states, 1, 0.05);
          EXPECT_NEAR(held.taken / all, 1, 0.05);
          EXPECT_NEAR((held.states + held.buffers) / held.taken, 1, 0.005) << "all that is taken is counted";
          if (held.taken > largest.taken) largest = held;
        }
        if (std::getenv("TRIREME_PRINT_TABLE")) {
          fmt::print("| {} | {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", name,
                     mixed ? "bfloat16" : "float32", workers, zero, states, largest.states, largest.buffers,
                     largest.taken, all, largest.most);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ZeroMemory,
                         testing::Values(std::tuple("gpt2", kGpt), std::tuple("gpt2 with many words", kManyWords),
                                         std::tuple("llama", kLlama)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

// With the trainer's own types, as plans count them: float32 gradients of a model in bfloat16, and nothing beside them.
TEST(ZeroMemoryOfPlans, IsWhatTheTrainerHolds) {
  const Cluster cluster = find_cluster("a100-80gb");
  for (const char* compute : {"float32", "bfloat16"}) {
    for (int zero = 0; zero <= 3; ++zero) {
      const Config config = config_for(kGpt, 2, zero, {std::string("--precision.compute=") + compute});
      const Measured measured = measure(config, 2);
      const double planned = simulate(job_of(config, trireme_on(cluster)), cluster).ranks[0].memory.states();
      for (const Held& held : measured.ranks) {
        EXPECT_NEAR(held.states * measured.parameters / planned, 1, 0.05) << compute << ", stage " << zero;
      }
    }
  }
}

// Whatever their sizes: a table of four layers, of which one is as long as the others together.
TEST(ZeroMemoryOfBuffers, IsThatOfTheLayersInUse) {
  const Words narrow = {"--model=gpt2-tiny", "--model.layers=4", "--model.hidden=64", "--model.heads=4",
                        "--model.vocab=8192"};
  const Config config = config_for(narrow, 2, 3, {});
  const Measured measured = measure(config, 2);
  const double embedding = 8192 * 64 * 4, layer = 12 * 64 * 64 * 4;
  for (const Held& held : measured.ranks) {
    // Weights and gradients of the embedding and of two layers; and the half of the embedding's second gradient.
    EXPECT_NEAR(held.buffers * measured.parameters, 2 * (embedding + 2 * layer) + embedding / 2, 0.05 * embedding);
  }
}

// Of the 16 bytes a parameter of a worker alone only those of the gradients are left, and two layers' weights.
TEST(ZeroMemoryElsewhere, HoldsGradientsAndTheLayersInUse) {
  const std::string folder = (std::filesystem::temp_directory_path() / "trireme-zero-memory-test").string();
  for (const int workers : {1, 2}) {
    const Config config = config_for(kGpt, workers, 3, {"--parallel.offload=" + folder, "--parallel.offload_weights"});
    const Measured measured = measure(config, workers);
    const double all = predicted(config, measured.parameters);
    EXPECT_LT(all, 4.0 / workers + 1.2);
    for (const Held& held : measured.ranks) EXPECT_NEAR(held.taken / all, 1, 0.05) << workers;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme
