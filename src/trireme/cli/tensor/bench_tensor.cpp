// `trireme-tensor bench-tensor`: times of operators on plain tensors and on mesh tensors, on this thread.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/tensor/commands.h"
#include "trireme/comm/world.h"
#include "trireme/layout/operator.h"
#include "trireme/observe/style.h"
#include "trireme/observe/table.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme::cli {
namespace {

struct TensorTiming {
  std::string name;
  std::string placements;  ///< of the inputs: "replicate, one worker", "shard(0); shard(0), two workers"
  int calls = 1;           ///< operators that the body runs
  double plain_us = 0;     ///< median, on tensors of the local sizes
  double mesh_us = 0;
};

using Tensors = std::vector<at::Tensor>;

struct Subject {
  const char* name;
  std::vector<std::vector<int64_t>> sizes;  ///< of the inputs
  std::vector<Placement> cuts;              ///< of the inputs, on two workers: such that nothing moves
  std::function<at::Tensor(Tensors&)> body;
  int calls = 1;
};

const Placement kWhole = Placement::replicate();

/// Attention and MLP of a transformer, up to the sums that end them: heads of 16, weights as Megatron cuts them.
at::Tensor transformer_block(Tensors& t) {
  const at::Tensor &x = t[0], &scale = t[1], &shift = t[2], &qkv = t[3], &out = t[4], &up = t[5], &down = t[6];
  const int64_t batch = x.size(0), seq = x.size(1);
  const at::Tensor normed = at::layer_norm(x, {x.size(2)}, scale, shift);
  const auto parts = at::linear(normed, qkv).chunk(3, -1);
  const auto heads = [&](const at::Tensor& part) {
    return part.view({batch, seq, part.size(2) / 16, 16}).transpose(1, 2);
  };
  const at::Tensor attended = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]));
  const at::Tensor joined = attended.transpose(1, 2).reshape({batch, seq, parts[0].size(2)});
  const at::Tensor attention = at::linear(joined, out);
  return attention + at::linear(at::gelu(at::linear(normed, up)), down);
}

std::vector<Subject> subjects() {
  const Placement rows = Placement::shard(0), columns = Placement::shard(1);
  const std::vector<int64_t> square = {64, 64}, line = {64};
  return {
      {"add", {square, square}, {rows, rows}, [](Tensors& t) { return t[0] + t[1]; }},
      {"add_", {square, square}, {rows, rows}, [](Tensors& t) { return t[0].add_(t[1]); }},
      {"mul", {square, square}, {columns, columns}, [](Tensors& t) { return t[0] * t[1]; }},
      {"gelu", {square}, {columns}, [](Tensors& t) { return at::gelu(t[0]); }},
      {"sum", {square}, {rows}, [](Tensors& t) { return t[0].sum(); }},
      {"softmax", {square}, {rows}, [](Tensors& t) { return at::softmax(t[0], 1); }},
      {"layer_norm",
       {square, line, line},
       {rows, kWhole, kWhole},
       [](Tensors& t) { return at::layer_norm(t[0], {64}, t[1], t[2]); }},
      {"mm", {square, square}, {rows, kWhole}, [](Tensors& t) { return at::mm(t[0], t[1]); }},
      {"mm, summed dimension cut", {square, square}, {columns, rows}, [](Tensors& t) { return at::mm(t[0], t[1]); }},
      {"linear, columns",
       {square, square, line},
       {kWhole, rows, rows},
       [](Tensors& t) { return at::linear(t[0], t[1], t[2]); },
       2},
      {"linear, rows", {square, square}, {columns, columns}, [](Tensors& t) { return at::linear(t[0], t[1]); }, 2},
      {"view",
       {square},
       {rows},
       [](Tensors& t) {
         return t[0].view({t[0].size(0), 8, 8});
       }},
      {"transpose", {square}, {rows}, [](Tensors& t) { return t[0].transpose(0, 1); }},
      {"cat",
       {square, square},
       {rows, rows},
       [](Tensors& t) {
         return at::cat({t[0], t[1]}, 1);
       }},
      {"transformer block",
       {{2, 16, 64}, line, line, {192, 64}, square, {256, 64}, {64, 256}},
       {kWhole, kWhole, kWhole, Placement::shard(0, 3), columns, rows, columns},
       transformer_block,
       31},
  };
}

/// Medians of both, in turns, so that what disturbs one disturbs the other.
void measure(const std::function<void()>& plain, const std::function<void()>& mesh, TensorTiming& timing) {
  constexpr int kRounds = 151;
  int repeats = 20;
  const auto microseconds = [&repeats](const std::function<void()>& body) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i) body();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / repeats;
  };
  std::vector<double> plain_us, mesh_us;
  microseconds(plain);
  // Short rounds: few of them are interrupted.
  repeats = std::clamp(static_cast<int>(300 / microseconds(mesh)), 3, 300);
  for (int round = 0; round < kRounds; ++round) {
    plain_us.push_back(microseconds(plain));
    mesh_us.push_back(microseconds(mesh));
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
    return values[kRounds / 2];
  };
  timing.plain_us = median(plain_us);
  timing.mesh_us = median(mesh_us);
}

TensorTiming measure_on(const std::shared_ptr<DeviceMesh>& mesh, const Subject& subject, bool cut) {
  TensorTiming timing{subject.name, "", subject.calls};
  Tensors plain, laid_out;
  for (size_t i = 0; i < subject.sizes.size(); ++i) {
    const Placement placement = cut ? subject.cuts[i] : kWhole;
    laid_out.push_back(distribute(at::randn(subject.sizes[i]), mesh, {placement}));
    plain.push_back(local_part(laid_out.back()).clone());
    timing.placements += (i == 0 ? "" : "; ") + placement.to_string();
  }
  if (!cut) timing.placements = "replicate";
  const MovementCounts before = mesh->counts();
  measure([&] { subject.body(plain); }, [&] { subject.body(laid_out); }, timing);
  for (const Movement movement :
       {Movement::kAllGather, Movement::kAllToAll, Movement::kAllReduce, Movement::kReduceScatter}) {
    if (mesh->counts().calls_of(movement) != before.calls_of(movement)) {
      throw Error(fmt::format("{} with {} needs an {}, but only what moves nothing is to be measured", subject.name,
                              timing.placements, name_of(movement)));
    }
  }
  return timing;
}

/// Runs two ranks as threads, of which one measures; nothing is communicated.
std::vector<TensorTiming> measure_tensor_overhead(const std::string& only) {
  std::vector<TensorTiming> timings;
  for (const int ranks : {1, 2}) {
    run_as_threads(ranks, [&](World& world) {
      const auto mesh = DeviceMesh::make(world.comm(), Mesh::parse(fmt::format("tp={}", ranks)));
      if (world.rank() != 0) return;
      at::set_num_threads(1);  // which is a thread's own setting
      for (const Subject& subject : subjects()) {
        if (std::string_view(subject.name).find(only) == std::string_view::npos) continue;
        timings.push_back(measure_on(mesh, subject, ranks == 2));
        timings.back().placements += ranks == 1 ? ", one worker" : ", two workers";
      }
    });
  }
  return timings;
}

struct TensorFlags {
  bool json = false;
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
  fmt::print("{}\n{} operators have a rule: docs/mesh_operators.md\n",
             table.to_text({.bold_header = has_colour(STDOUT_FILENO), .rule = true}), covered_operators().size());
  return 0;
}

}  // namespace

void add_bench_tensor(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TensorFlags>();
  CLI::App* command = app.add_subcommand("bench-tensor", "what trireme bench tensor measures");
  command->add_flag("--json", flags->json, "one object on stdout");
  command->add_option("--only", flags->only, "operators whose names contain this");
  command->callback([flags, &exit_code] { exit_code = show_timings(*flags); });
}

}  // namespace trireme::cli
