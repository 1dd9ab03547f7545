// Compressed sums on GPU memory, compared bit for bit with the same sums on host memory.
#pragma once

#include "gpu/gpu_comm_checks.h"
#include "trireme/compress/adasum.h"
#include "trireme/compress/compress_test_util.h"
#include "trireme/compress/compressed_reducer.h"
#include "trireme/compress/cuda/gpu_processor.h"

namespace trireme {

/// Three steps of two groups, so that what a step keeps shows in the next one, and a fourth from what the other side
/// has saved. With `shares`, ranks need parts of the sums only.
inline void compare_compressed(Communicator& comm, const CompressionOptions& options, bool shards) {
  std::vector<GroupLayout> groups = {
      {"first", 70001, {{"a", 0, 240, 200}, {"b", 48000, 60, 200}, {"c", 60000, 1, 10001}}}, {"second", 1537, {}}};
  for (GroupLayout& group : groups) {
    if (shards) group.shards = block_parts(group.count, comm.size());
  }
  int device = 0;
  gpu::check(cudaGetDevice(&device), "cudaGetDevice");
  CompressedReducer on_host(comm, options, groups), on_gpu(comm, options, groups, make_gpu_processor(device));
  Processor& processor = on_gpu.processor();
  const auto rank = static_cast<uint64_t>(comm.rank());
  for (uint64_t step = 0; step < 4; ++step) {
    if (step == 3) {  // each goes on from what the other one saved
      const StatePieces saved = on_host.save();
      std::vector<StatePieces> by_rank(static_cast<size_t>(comm.size()));
      by_rank[static_cast<size_t>(comm.rank())] = on_gpu.save();
      std::vector<StatePieces> of_host(by_rank.size());
      of_host[static_cast<size_t>(comm.rank())] = saved;
      on_host.load(by_rank);
      on_gpu.load(of_host);
      on_host.rescale(0.5f);
      on_gpu.rescale(0.5f);
    }
    std::vector<std::vector<float>> values;
    std::vector<Array<float>> there;
    for (const GroupLayout& group : groups) {
      values.push_back(test_values(group.count, rank, step));
      there.emplace_back(processor, group.count);
      processor.from_host(values.back(), there.back().span());
    }
    for (int g = 0; g < 2; ++g) {
      on_host.start(g, values[static_cast<size_t>(g)], step);
      on_gpu.start(g, there[static_cast<size_t>(g)].span(), step, processor.after(nullptr));
    }
    on_host.finish();
    on_gpu.finish();
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<float> found(groups[g].count);
      processor.to_host(there[g].span(), found);
      size_t first = 0, count = groups[g].count;
      if (shards) {
        for (int r = 0; r < comm.rank(); ++r) first += groups[g].shards[static_cast<size_t>(r)];
        count = groups[g].shards[static_cast<size_t>(comm.rank())];
      }
      for (size_t i = first; i < first + count; ++i) {
        if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(values[g][i])) continue;
        throw Error(fmt::format("{} {}, group {}, step {}: element {} is {} instead of {}", label(options),
                                shards ? "in shares" : "whole", g, step, i, found[i], values[g][i]));
      }
    }
  }
  if (on_gpu.report().bytes_sent != on_host.report().bytes_sent) throw Error(label(options) + " sends other bytes");
}

inline void compare_adasum(Communicator& comm) {
  const GroupLayout layout = checked({"group", 70001, {{"a", 0, 240, 200}, {"b", 48000, 1, 22001}}});
  int device = 0;
  gpu::check(cudaGetDevice(&device), "cudaGetDevice");
  const std::unique_ptr<Processor> processor = make_gpu_processor(device);
  std::vector<float> values = test_values(layout.count, static_cast<uint64_t>(comm.rank()), 0), found(layout.count);
  const Array<float> there(*processor, layout.count), scratch(*processor, layout.count + 5);
  processor->from_host(values, there.span());
  const size_t bytes = adasum(comm, layout, values);
  if (adasum(comm, layout, there.span(), scratch.span(), *processor) != bytes) throw Error("adasum sends other bytes");
  processor->to_host(there.span(), found);
  for (size_t i = 0; i < layout.count; ++i) {
    if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(values[i])) continue;
    throw Error(fmt::format("adasum: element {} is {} instead of {}", i, found[i], values[i]));
  }
}

/// Each reducer splits the communicator, which takes NCCL up to a second: not `all_methods`, but one of each family.
inline int check_gpu_compression(Communicator& comm, bool all_methods) {
  compare_adasum(comm);
  int cases = 1;
  std::vector<CompressionOptions> all = all_options();
  all.push_back({.method = Method::kTernGrad, .clip_deviations = 1.5f, .seed = 7});
  all.push_back({.method = Method::kDgc, .density = 0.05, .clip_norm = 0.5f, .seed = 7});
  all.push_back({.method = Method::kPowerSgd, .rank = 7, .seed = 7});
  for (CompressionOptions options : all) {
    const bool is_one_of_few = options.method == Method::kTopK || options.method == Method::kSign ||
                               (options.method == Method::kPowerSgd && options.rank == 2);
    if (!all_methods && !is_one_of_few) continue;
    for (const bool shards : {false, true}) {
      if (shards && !block_format(options)) continue;
      compare_compressed(comm, options, shards);
      ++cases;
    }
    options.warmup_steps = 1;
    options.error_feedback = false;
    if (feedback_of(options.method) == Feedback::kAlways) options.error_feedback.reset();
    compare_compressed(comm, options, false);
    ++cases;
  }
  return cases;
}

}  // namespace trireme
