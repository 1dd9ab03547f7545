// What compression keeps goes on under any other tensor, pipeline and data parallelism: its sum over replicas stays, to
// the bit.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "numerics/server_cases.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

/// By name of what is kept: the whole parameter's, summed over its uses, which one worker or two of a pipeline may
/// push, and over replicas.
using Kept = std::map<std::string, torch::Tensor>;

/// Pieces of all ranks, put together by the meshes on which the parameters lie: not by the code that moves them.
class Collector {
 public:
  void add(Trainer& trainer) {
    const RankGroups& groups = trainer.groups();
    {
      const std::lock_guard lock(mutex_);
      for (const StatePiece& piece : trainer.pieces()) {
        if (piece.kind == StateKind::kReplicated) continue;
        const int replica = piece.kind == StateKind::kSharded ? 0 : groups.replica;  // parts of one, or each its own
        std::vector<float>& part = parts_[{piece.name, replica, groups.place}];
        part.resize(piece.total, 0.f);
        std::copy(piece.values.begin(), piece.values.end(), part.begin() + static_cast<std::ptrdiff_t>(piece.first));
      }
    }
    std::vector<int32_t> met = {1};
    if (groups.replicas()) groups.replicas()->all_reduce(met);
    if (groups.model()) groups.model()->all_reduce(met);
    for (const auto& [id, values] : copy_of_parts()) {
      const auto& [name, replica, place] = id;
      const int entry = trainer.parameters().find(tensor_of_piece(name));
      if (entry < 0 || place > 0) continue;
      // Of what all places have alike, the first one's.
      const ParameterStore::Entry& known = trainer.parameters().entries()[static_cast<size_t>(entry)];
      const MeshSpec* spec = mesh_spec(known.parameter);
      const bool is_cut = spec && !spec->layout->is_replicated;
      std::vector<float> own = is_cut ? part_at({name, replica, groups.place}) : values;
      ASSERT_EQ(static_cast<int64_t>(own.size()), local_part(known.parameter).numel()) << name;
      const torch::Tensor part = torch::from_blob(own.data(), local_part(known.parameter).sizes()).clone();
      const torch::Tensor whole = full(ParameterStore::as_whole(known, part));
      if (groups.replica != 0 || groups.place != 0) continue;
      const std::lock_guard lock(mutex_);
      const size_t end = name.find(" (second use)");
      wholes_[name.substr(0, end)][replica].emplace(end == std::string::npos ? 0 : 1, whole.clone());
    }
  }
  Kept sums() const {
    Kept kept;
    for (const auto& [name, of_replicas] : wholes_) {
      torch::Tensor& sum = kept[name];
      for (const auto& [replica, of_uses] : of_replicas) {
        torch::Tensor own;
        for (const auto& [use, whole] : of_uses) own = own.defined() ? own + whole : whole.clone();
        sum = sum.defined() ? sum + own : own;
      }
    }
    return kept;
  }

 private:
  using Id = std::tuple<std::string, int, int>;
  std::map<Id, std::vector<float>> copy_of_parts() {
    const std::lock_guard lock(mutex_);
    return parts_;
  }
  std::vector<float> part_at(const Id& id) {
    const std::lock_guard lock(mutex_);
    return parts_.at(id);
  }

  std::mutex mutex_;
  std::map<Id, std::vector<float>> parts_;
  std::map<std::string, std::map<int, std::map<int, torch::Tensor>>> wholes_;  ///< by name, replica and use
};

struct Cut {
  int dp = 1, tp = 1, pp = 1;
  int workers() const { return dp * tp * pp; }
  Words words() const {
    return {fmt::format("--parallel.dp={}", dp), fmt::format("--parallel.tp={}", tp),
            fmt::format("--parallel.pp={}", pp)};
  }
  std::string to_string() const { return fmt::format("dp={},tp={},pp={}", dp, tp, pp); }
};

/// Three steps in one cut, saved; then the next cut goes on from there, and from what that has saved the one after it.
void expect_sums_stay(const std::string& model, const Words& words, int servers, const std::vector<Cut>& cuts) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("trireme-residuals-{}-{}", model, servers);
  std::filesystem::remove_all(folder);
  Kept first;
  for (size_t i = 0; i < cuts.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}, {} servers, {}", model, servers, cuts[i].to_string()));
    Collector collector;
    train_between(served(model, words + cuts[i].words(), servers), cuts[i].workers(), folder, i == 0 ? 0 : 3, 3,
                  [&](Trainer& trainer) { collector.add(trainer); });
    const Kept kept = collector.sums();
    if (i == 0) {
      first = kept;
      int num_kept = 0;
      for (const auto& [name, tensor] : first) num_kept += tensor.count_nonzero().item<int64_t>() > 0 ? 1 : 0;
      EXPECT_GT(num_kept, 10) << "something is kept";
    }
    ASSERT_EQ(kept.size(), first.size());
    for (const auto& [name, tensor] : first) {
      ASSERT_TRUE(kept.contains(name)) << name;
      EXPECT_TRUE(same_bits(kept.at(name), tensor)) << name;
    }
  }
  std::filesystem::remove_all(folder);
}

const Words kRounds = {"--compression.method=bfloat16", "--compression.error_feedback=on"};

TEST(ResidualPlaces, SumsStayUnderOtherTensorParallelism) {
  at::set_num_threads(1);
  for (const char* model : {"gpt2", "llama", "mlp"}) {
    expect_sums_stay(model, kRounds, 0, {{2, 2, 1}, {2, 1, 1}, {2, 2, 1}});
    expect_sums_stay(model, kRounds, 0, {{2, 1, 1}, {2, 2, 1}, {2, 1, 1}});
  }
  expect_sums_stay("llama", kRounds + Words{"--parallel.sequence"}, 0, {{2, 2, 1}, {2, 4, 1}});
}

TEST(ResidualPlaces, AndUnderOtherPipelinesAndReplicas) {
  at::set_num_threads(1);
  expect_sums_stay("gpt2", kRounds + Words{"--model.tied=false"}, 0,
                   {{2, 2, 1}, {2, 1, 2}, {2, 2, 2}, {4, 1, 1}, {2, 2, 1}});
}

// Servers have one copy of what all places hold, and its residual is with the first.
TEST(ResidualPlaces, OfPushesToServers) {
  at::set_num_threads(1);
  const Words sparse = {"--compression.method=topk", "--compression.density=0.1", "--model.heads=4"};
  expect_sums_stay("gpt2", sparse, 2, {{2, 2, 1}, {2, 1, 1}, {2, 2, 2}, {2, 4, 1}});
  expect_sums_stay("llama", sparse, 1, {{2, 1, 1}, {2, 2, 1}, {2, 1, 1}});
}

}  // namespace
}  // namespace trireme
