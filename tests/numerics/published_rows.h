// Measurements that others have published, as jobs for the simulator. Sources stand beside the rows.
#pragma once

#include <string>
#include <vector>

#include "trireme/simulate/simulate.h"

namespace trireme::published {

enum class Quantity {
  kStep,           ///< seconds of a step
  kBlockForward,   ///< seconds of one transformer block
  kBlockBackward,  ///< with recomputation
  kMeanForward,    ///< seconds of a stage, the mean over stages
  kMeanInput,      ///< backward for inputs
  kMeanWeight,     ///< backward for weights
};

struct Row {
  std::string source, name, cluster;
  Job job;
  Quantity quantity = Quantity::kStep;
  double seconds = 0;    ///< measured
  double gigabytes = 0;  ///< measured, of the fullest device; 0: not said
  bool fitted = true;    ///< false: a row of the same hardware that no constant was chosen by
};

inline ModelShape gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t seq, int64_t vocab) {
  ModelShape m;
  m.kind = ShapeKind::kGpt;
  m.layers = layers;
  m.hidden = hidden;
  m.heads = m.kv_heads = heads;
  m.ffn = 4 * hidden;
  m.seq = seq;
  m.vocab = vocab;
  return m;
}

inline ModelShape llama(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn, int64_t seq,
                        int64_t vocab) {
  ModelShape m = gpt(layers, hidden, heads, seq, vocab);
  m.kind = ShapeKind::kLlama;
  m.kv_heads = kv_heads;
  m.ffn = ffn;
  m.tied = false;
  return m;
}

inline JobLayout cut(int64_t tp, int64_t pp, int64_t dp, int64_t micro_batch, int64_t global_batch,
                     RecomputeKind recompute, NumberType type = NumberType::kFloat16) {
  JobLayout l;
  l.tp = tp;
  l.pp = pp;
  l.dp = dp;
  l.micro_batch = micro_batch;
  l.global_batch = global_batch;
  l.recompute = recompute;
  l.compute = type;
  return l;
}

inline JobLayout with(JobLayout layout, int zero, bool sequence = false, int64_t interleave = 1) {
  layout.zero = zero;
  layout.sequence = sequence;
  layout.interleave = interleave;
  return layout;
}

/// Seconds from the TFLOP/s a device that Megatron's SC'21 tables count: with recomputation.
inline double megatron_seconds(const ModelShape& m, double batch, double devices, double tflops, double factor = 96) {
  const double h = static_cast<double>(m.hidden), l = static_cast<double>(m.layers), s = static_cast<double>(m.seq);
  const double v = static_cast<double>(m.vocab);
  const double head = factor == 96 ? 16 : 12;
  return factor * batch * s * l * h * h * (1 + s / (6 * h) + v / (head * l * h)) / (devices * tflops * 1e12);
}

inline std::vector<Row> rows() {
  constexpr auto kNone = RecomputeKind::kNone, kFull = RecomputeKind::kFull, kSelective = RecomputeKind::kSelective;
  constexpr auto kBf16 = NumberType::kBfloat16;
  const std::string a100 = "a100-80gb", h100 = "h100-80gb", v100 = "v100-16gb";
  std::vector<Row> rows;

  {
    const std::string source = "Megatron-LM, SC'21";
    const auto add = [&](const char* name, const ModelShape& m, const JobLayout& l, double tflops, bool fitted = true) {
      const double seconds =
          megatron_seconds(m, static_cast<double>(l.global_batch), static_cast<double>(l.num_devices()), tflops);
      rows.push_back({source, name, a100, {m, l}, Quantity::kStep, seconds, 0, fitted});
    };
    add("1.7B, TP1 DP32", gpt(24, 2304, 24, 2048, 51200), cut(1, 1, 32, 16, 512, kFull), 137);
    add("7.5B, TP4 DP32", gpt(36, 4096, 32, 2048, 51200), cut(4, 1, 32, 16, 512, kFull), 142);
    add("18.4B, TP8 DP32", gpt(40, 6144, 48, 2048, 51200), cut(8, 1, 32, 8, 1024, kFull), 135);
    add("3.6B, TP2 DP32", gpt(30, 3072, 32, 2048, 51200), cut(2, 1, 32, 16, 512, kFull), 138, false);
    add("39.1B, TP8 PP2 DP32", gpt(48, 8192, 64, 2048, 51200), cut(8, 2, 32, 4, 1536, kFull), 138, false);
    add("76.1B, TP8 PP4 DP32", gpt(60, 10240, 80, 2048, 51200), cut(8, 4, 32, 2, 1792, kFull), 140, false);
    add("145.6B, TP8 PP8 DP24", gpt(80, 12288, 96, 2048, 51200), cut(8, 8, 24, 2, 2304, kFull), 148, false);
    add("310.1B, TP8 PP16 DP15", gpt(96, 16384, 128, 2048, 51200), cut(8, 16, 15, 1, 2160, kFull), 155, false);
    add("529.6B, TP8 PP35 DP9", gpt(105, 20480, 128, 2048, 51200), cut(8, 35, 9, 1, 2520, kFull), 163, false);
    add("1008B, TP8 PP64 DP6", gpt(128, 25600, 160, 2048, 51200), cut(8, 64, 6, 1, 3072, kFull), 163, false);
    const std::string one_node = "Megatron-LM, tensor parallelism in a node";
    const auto step = [&](const char* name, const ModelShape& m, const JobLayout& l, double ms) {
      rows.push_back({one_node, name, a100, {m, l}, Quantity::kStep, ms / 1e3});
    };
    step("1B, TP1", gpt(24, 1920, 15, 1024, 51200), cut(1, 1, 1, 16, 16, kFull), 1076);
    step("2B, TP2", gpt(30, 2304, 18, 1024, 51200), cut(2, 1, 1, 16, 16, kFull), 1026);
    step("4B, TP4", gpt(36, 3072, 24, 1024, 51200), cut(4, 1, 1, 16, 16, kFull), 1162);
    step("8B, TP8", gpt(42, 4096, 32, 1024, 51200), cut(8, 1, 1, 16, 16, kFull), 1343);
    step("1B, DP128", gpt(24, 1920, 15, 1024, 51200), cut(1, 1, 128, 16, 2048, kFull), 1153);
  }
  {
    const std::string source = "Korthikanti et al., one block of 22B";
    const ModelShape m = gpt(48, 6144, 64, 2048, 51200), block = gpt(1, 6144, 64, 2048, 51200);
    const auto add = [&](const char* name, RecomputeKind recompute, bool sequence, double forward, double backward) {
      const Job job{block, with(cut(8, 1, 1, 4, 4, recompute), 0, sequence)};
      rows.push_back({source, std::string(name) + ", forward", a100, job, Quantity::kBlockForward, forward / 1e3});
      rows.push_back({source, std::string(name) + ", backward", a100, job, Quantity::kBlockBackward, backward / 1e3});
    };
    add("nothing", kNone, false, 7.7, 11.9);
    add("sequence parallel", kNone, true, 7.2, 11.8);
    add("full recomputation", kFull, false, 7.7, 19.5);
    add("selective", kSelective, false, 7.7, 13.2);
    add("selective, sequence parallel", kSelective, true, 7.2, 13.1);
    const std::string whole = "Korthikanti et al.";
    rows.push_back({whole, "22B, full", a100, {m, cut(8, 1, 1, 4, 4, kFull)}, Quantity::kStep, 1.42});
    rows.push_back(
        {whole, "22B, SP selective", a100, {m, with(cut(8, 1, 1, 4, 4, kSelective), 0, true)}, Quantity::kStep, 1.10});
    rows.push_back({whole,
                    "175B, PP8 interleave 3, full",
                    a100,
                    {gpt(96, 12288, 96, 2048, 51200), with(cut(8, 8, 1, 1, 64, kFull), 0, false, 3)},
                    Quantity::kStep,
                    18.13});
  }
  {
    const std::string source = "Zero Bubble, 1F1B";
    rows.push_back({source,
                    "1.5B, PP8",
                    a100,
                    {gpt(22, 2304, 24, 1024, 51200), cut(1, 8, 1, 6, 144, kNone)},
                    Quantity::kStep,
                    144 / (8 * 11.8),
                    30});
    rows.push_back({source,
                    "14.6B, PP16",
                    a100,
                    {gpt(46, 5120, 40, 1024, 51200), cut(1, 16, 1, 1, 48, kNone)},
                    Quantity::kStep,
                    48 / (16 * 1.40),
                    32});
    const std::string profile = "Zero Bubble, profiled times";
    const auto times = [&](const char* name, const Job& job, double forward, double input, double weight) {
      const std::string text = name;
      rows.push_back({profile, text + " T_F", a100, job, Quantity::kMeanForward, forward / 1e3});
      rows.push_back({profile, text + " T_B", a100, job, Quantity::kMeanInput, input / 1e3});
      rows.push_back({profile, text + " T_W", a100, job, Quantity::kMeanWeight, weight / 1e3});
    };
    times("1.5B", {gpt(22, 2304, 24, 1024, 51200), cut(1, 8, 1, 6, 144, kNone)}, 18.522, 18.086, 9.337);
    times("14.6B", {gpt(46, 5120, 40, 1024, 51200), cut(1, 16, 1, 1, 48, kNone)}, 11.347, 11.248, 8.132);
  }
  {
    const std::string source = "llm.c, ZeRO-1";
    rows.push_back({source,
                    "124M, DP8",
                    a100,
                    {gpt(12, 768, 12, 1024, 50304), with(cut(1, 1, 8, 64, 512, kNone, kBf16), 1)},
                    Quantity::kStep,
                    0.300});
    rows.push_back({source,
                    "774M, DP8",
                    a100,
                    {gpt(36, 1280, 20, 1024, 50304), with(cut(1, 1, 8, 32, 512, kNone, kBf16), 1)},
                    Quantity::kStep,
                    1.7});
  }
  {
    const std::string source = "Megatron-Core";
    const auto add = [&](const char* name, const ModelShape& m, const JobLayout& l, double tflops) {
      rows.push_back(
          {source,
           name,
           h100,
           {m, l},
           Quantity::kStep,
           megatron_seconds(m, static_cast<double>(l.global_batch), static_cast<double>(l.num_devices()), tflops, 72)});
    };
    add("1.7B, TP1 DP48", gpt(24, 2048, 16, 4096, 131072), with(cut(1, 1, 48, 4, 192, kNone, kBf16), 1), 408.8);
    add("16B, TP4 DP48", gpt(32, 6144, 48, 4096, 131072), with(cut(4, 1, 48, 4, 192, kNone, kBf16), 1, true), 489.1);
    const std::string titan = "torchtitan, Llama 3.1 8B";
    const ModelShape m = llama(32, 4096, 32, 8, 14336, 8192, 128256);
    const auto fsdp = [&](const char* name, int64_t dp, double tokens, double gib) {
      rows.push_back({titan,
                      name,
                      h100,
                      {m, with(cut(1, 1, dp, 2, 2 * dp, kSelective, kBf16), 3)},
                      Quantity::kStep,
                      2 * 8192 / tokens,
                      gib * 1.073741824});
    };
    fsdp("FSDP8", 8, 6667, 77.0);
    fsdp("FSDP128", 128, 6514, 62.0);
  }
  {
    // llm-foundry, scripts/train/benchmarking/README.md; tokens are a second and device.
    struct Size {
      const char* name;
      int64_t layers, hidden, heads;
    };
    struct Run {
      Size size;
      int64_t dp, seq, micro_batch, accumulation;
      RecomputeKind recompute;
      double tokens;
    };
    constexpr Size k125M{"125M", 12, 768, 12}, k350M{"350M", 24, 1024, 16}, k760M{"760M", 24, 1536, 12},
        k1B{"1B", 24, 2048, 16}, k3B{"3B", 32, 2560, 20}, k7B{"7B", 32, 4096, 32}, k13B{"13B", 40, 5120, 40},
        k30B{"30B", 48, 7168, 56}, k70B{"70B", 80, 8192, 64};
    const auto add = [&](const std::string& cluster, bool fitted, const std::vector<Run>& runs) {
      for (const Run& r : runs) {
        std::string name = std::string(r.size.name) + " on " + std::to_string(r.dp);
        if (r.seq != 2048) name += ", s" + std::to_string(r.seq);
        const int64_t samples = r.micro_batch * r.accumulation;
        rows.push_back({"MosaicML MPT, FSDP",
                        name,
                        cluster,
                        {gpt(r.size.layers, r.size.hidden, r.size.heads, r.seq, 50368),
                         with(cut(1, 1, r.dp, r.micro_batch, r.dp * samples, r.recompute, kBf16), 3)},
                        Quantity::kStep,
                        static_cast<double>(samples * r.seq) / r.tokens,
                        0,
                        fitted});
      }
    };
    add(h100, true,
        {{k7B, 8, 2048, 6, 1, kNone, 10643},
         {k13B, 8, 2048, 2, 1, kNone, 4792},
         {k13B, 64, 2048, 2, 1, kNone, 4800},
         {k30B, 8, 2048, 3, 21, kFull, 2002},
         {k30B, 16, 2048, 10, 3, kFull, 2263},
         {k30B, 32, 2048, 14, 3, kFull, 2308},
         {k70B, 32, 2048, 2, 16, kFull, 882},
         {k70B, 64, 2048, 8, 4, kFull, 1039},
         {k7B, 8, 4096, 16, 2, kFull, 8611},
         {k7B, 8, 8192, 8, 2, kFull, 6935},
         {k3B, 16, 2048, 10, 3, kNone, 24142},
         {k3B, 64, 2048, 6, 3, kNone, 22525},
         {k1B, 8, 2048, 14, 1, kNone, 45455},
         {k1B, 64, 2048, 20, 1, kNone, 44402}});
    add(h100, false,
        {{k13B, 8, 1024, 40, 3, kFull, 5502},
         {k13B, 8, 4096, 10, 3, kFull, 4717},
         {k13B, 8, 16384, 3, 3, kFull, 2985},
         {k7B, 8, 1024, 64, 2, kFull, 10203},
         {k7B, 8, 32768, 2, 2, kFull, 3318},
         {k3B, 8, 8192, 3, 6, kNone, 16578},
         {k3B, 8, 512, 40, 6, kNone, 27965},
         {k1B, 8, 8192, 3, 4, kNone, 29157},
         {k1B, 8, 512, 56, 4, kNone, 52275},
         {k760M, 32, 2048, 24, 1, kNone, 67971}});
    add(a100, false,
        {{k70B, 64, 2048, 8, 4, kFull, 410},
         {k70B, 32, 2048, 2, 16, kFull, 373},
         {k30B, 8, 2048, 3, 21, kFull, 916},
         {k13B, 8, 2048, 2, 3, kNone, 2262},
         {k13B, 8, 4096, 10, 3, kFull, 2060},
         {k7B, 8, 2048, 6, 2, kNone, 4641},
         {k7B, 8, 8192, 8, 2, kFull, 3206},
         {k3B, 8, 2048, 10, 2, kNone, 10811},
         {k1B, 8, 2048, 14, 4, kNone, 20513},
         {k350M, 8, 2048, 32, 2, kNone, 58782},
         {k125M, 8, 2048, 32, 2, kNone, 141737}});
  }
  {
    const std::string source = "one H200, GPT-2, compiled PyTorch";
    const auto add = [&](const char* name, const ModelShape& m, int64_t batch, double tokens) {
      rows.push_back({source,
                      name,
                      "h200-141gb",
                      {m, cut(1, 1, 1, batch, batch, kNone, kBf16)},
                      Quantity::kStep,
                      static_cast<double>(batch * m.seq) / tokens});
    };
    add("124M, batch 32", gpt(12, 768, 12, 1024, 50304), 32, 522600);
    add("124M, batch 64", gpt(12, 768, 12, 1024, 50304), 64, 540349);
    add("1.5B, batch 16", gpt(48, 1600, 25, 1024, 50304), 16, 48161);
  }
  {
    const std::string source = "Alpa";
    const ModelShape small = gpt(24, 1024, 16, 1024, 51200), large = gpt(24, 2048, 32, 1024, 51200);
    rows.push_back({source,
                    "350M on 1",
                    v100,
                    {small, cut(1, 1, 1, 16, 1024, kFull)},
                    Quantity::kStep,
                    megatron_seconds(small, 1024, 1, 47.53)});
    rows.push_back({source,
                    "1.3B, DP2 PP2",
                    v100,
                    {large, cut(1, 2, 2, 4, 1024, kFull)},
                    Quantity::kStep,
                    megatron_seconds(large, 1024, 4, 55.89)});
    const std::string ddp = "PyTorch DDP, ResNet-50, float32";
    const auto resnet = [&](const char* name, int64_t dp, double seconds) {
      Job job;
      job.model.kind = ShapeKind::kResNet;
      job.layout = cut(1, 1, dp, 32, 32 * dp, kNone, NumberType::kFloat32);
      job.layout.overlap = true;
      rows.push_back({ddp, name, v100, job, Quantity::kStep, seconds});
    };
    resnet("1 GPU, batch 32", 1, 0.097);
    resnet("8 GPUs, batch 32 each", 8, 0.104);
    const std::string one = "Alpa, one step of 8 layers";
    rows.push_back({one,
                    "1 GPU, h2048",
                    v100,
                    {gpt(8, 2048, 32, 1024, 25600), cut(1, 1, 1, 8, 8, kFull)},
                    Quantity::kStep,
                    0.4535,
                    9.54});
    rows.push_back({one,
                    "2 GPUs, h3072, reduce-scatter",
                    v100,
                    {gpt(8, 3072, 48, 1024, 25600), with(cut(1, 1, 2, 4, 8, kFull), 2)},
                    Quantity::kStep,
                    0.5367,
                    10.34});
    rows.push_back({one,
                    "4 GPUs, h4096, TP4",
                    v100,
                    {gpt(8, 4096, 64, 1024, 25600), cut(4, 1, 1, 8, 8, kFull)},
                    Quantity::kStep,
                    0.4457,
                    7.77});
    rows.push_back({source,
                    "2.6B, DP2 TP2 PP2, 4 micro-batches",
                    v100,
                    {gpt(32, 2560, 32, 1024, 51200), cut(2, 2, 2, 4, 32, kFull)},
                    Quantity::kStep,
                    2.425,
                    8.745,
                    false});
  }
  return rows;
}

/// What the simulator says to a row.
inline double predict(const Row& row, const Simulation& simulation) {
  const BlockCost& block = simulation.blocks[1];
  StagePart mean;
  for (const StageCost& stage : simulation.stages) {
    const double share = 1.0 / static_cast<double>(simulation.stages.size());
    mean.forward += share * stage.sum.forward;
    mean.backward_input += share * stage.sum.backward_input;
    mean.backward_weight += share * stage.sum.backward_weight;
  }
  if (row.quantity == Quantity::kMeanForward) return mean.forward;
  if (row.quantity == Quantity::kMeanInput) return mean.backward_input;
  if (row.quantity == Quantity::kMeanWeight) return mean.backward_weight;
  if (row.quantity == Quantity::kBlockForward) return block.forward;
  if (row.quantity == Quantity::kBlockBackward) return block.backward_input + block.backward_weight;
  return simulation.step_seconds;
}

}  // namespace trireme::published
