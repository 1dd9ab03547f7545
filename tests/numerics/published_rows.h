// Measurements that others have published, as jobs for the simulator. Sources stand beside the rows.
#pragma once

#include <array>
#include <string>
#include <utility>
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
  m.kind = ModelKind::kGpt2;
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
  m.kind = ModelKind::kLlama;
  m.kv_heads = kv_heads;
  m.ffn = ffn;
  m.tied = false;
  return m;
}

inline Layout cut(int64_t tp, int64_t pp, int64_t dp, int64_t micro_batch, int64_t global_batch,
                  RecomputeKind recompute, NumberType type = NumberType::kFloat16) {
  Layout l;
  l.tp = tp;
  l.pp = pp;
  l.dp = dp;
  l.micro_batch = micro_batch;
  l.global_batch = global_batch;
  l.recompute = recompute;
  l.compute = type;
  return l;
}

inline Layout with(Layout layout, int zero, bool sequence = false, int64_t interleave = 1) {
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
    const auto add = [&](const char* name, const ModelShape& m, const Layout& l, double tflops, bool fitted = true) {
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
    const auto step = [&](const char* name, const ModelShape& m, const Layout& l, double ms, bool fitted = true) {
      rows.push_back({one_node, name, a100, {m, l}, Quantity::kStep, ms / 1e3, 0, fitted});
    };
    step("1B, TP1", gpt(24, 1920, 15, 1024, 51200), cut(1, 1, 1, 16, 16, kFull), 1076);
    step("2B, TP2", gpt(30, 2304, 18, 1024, 51200), cut(2, 1, 1, 16, 16, kFull), 1026);
    step("4B, TP4", gpt(36, 3072, 24, 1024, 51200), cut(4, 1, 1, 16, 16, kFull), 1162);
    step("8B, TP8", gpt(42, 4096, 32, 1024, 51200), cut(8, 1, 1, 16, 16, kFull), 1343);
    step("1B, DP128", gpt(24, 1920, 15, 1024, 51200), cut(1, 1, 128, 16, 2048, kFull), 1153);
    step("2B, TP2 DP128", gpt(30, 2304, 18, 1024, 51200), cut(2, 1, 128, 16, 2048, kFull), 1101);
    step("4B, TP4 DP128", gpt(36, 3072, 24, 1024, 51200), cut(4, 1, 128, 16, 2048, kFull), 1242);
    step("8B, TP8 DP128", gpt(42, 4096, 32, 1024, 51200), cut(8, 1, 128, 16, 2048, kFull), 1380);
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
    // 175B and 530B are interleaved, 3 stages a rank; all with one sample a micro-batch.
    const auto large = [&](const std::string& name, const ModelShape& shape, int64_t pp, int64_t dp, int64_t batch,
                           int64_t interleave, double full, double selective, bool fitted = false) {
      const auto add_one = [&](const char* what, RecomputeKind recompute, bool sequence, double seconds, bool seen) {
        if (seconds == 0) return;
        rows.push_back({whole,
                        name + what,
                        a100,
                        {shape, with(cut(8, pp, dp, 1, batch, recompute), 0, sequence, interleave)},
                        Quantity::kStep,
                        seconds,
                        0,
                        seen});
      };
      add_one(", full", kFull, false, full, fitted);
      add_one(", SP selective", kSelective, true, selective, false);
    };
    large("175B, PP8 interleave 3", gpt(96, 12288, 96, 2048, 51200), 8, 1, 64, 3, 18.13, 13.75, true);
    large("530B, PP35 interleave 3", gpt(105, 20480, 128, 2048, 51200), 35, 1, 280, 3, 49.05, 37.83);
    large("530B, PP35 interleave 3, DP8", gpt(105, 20480, 128, 2048, 51200), 35, 8, 2240, 3, 0, 39.15);
    large("1T, PP64", gpt(128, 25600, 160, 2048, 51200), 64, 1, 512, 1, 94.42, 71.49);
  }
  {
    // Samples a second and device of 1F1B, interleaved 1F1B (a block a stage), ZB-1p and ZB-2p; the last two are ZB-H1
    // and ZB-H2 with a solver's order. Stages have equal numbers of blocks but the first and the last, with one less.
    struct Setting {
      const char* name;
      bool fitted;  ///< the first row of 1F1B
      int64_t layers, hidden, heads, pp, micro_batch, interleave;
      std::array<double, 4> gigabytes;
      std::vector<std::pair<int64_t, std::array<double, 4>>> speeds;  ///< by micro-batches
    };
    const std::vector<Setting> settings = {
        {"1.5B, PP8",
         true,
         22,
         2304,
         24,
         8,
         6,
         3,
         {30, 40, 32, 59},
         {{24, {11.8, 13.1, 12.9, 14.5}}, {32, {12.5, 13.4, 13.4, 14.8}}, {64, {13.6, 13.9, 14.2, 14.9}}}},
        {"6.2B, PP8",
         false,
         30,
         4096,
         32,
         8,
         3,
         4,
         {39, 48, 42, 70},
         {{24, {3.50, 4.01, 3.88, 4.32}}, {32, {3.70, 4.08, 4.00, 4.35}}, {64, {4.03, 4.19, 4.20, 4.39}}}},
        {"14.6B, PP16",
         true,
         46,
         5120,
         40,
         16,
         1,
         3,
         {32, 39, 33, 51},
         {{48, {1.40, 1.54, 1.61, 1.81}}, {64, {1.49, 1.59, 1.67, 1.83}}, {128, {1.64, 1.66, 1.76, 1.85}}}},
        {"28.3B, PP32",
         false,
         62,
         6144,
         48,
         32,
         1,
         2,
         {43, 58, 44, 74},
         {{96, {0.76, 0.82, 0.87, 0.99}}, {128, {0.80, 0.85, 0.90, 1.00}}, {256, {0.88, 0.90, 0.96, 1.00}}}}};
    const std::array<std::pair<const char*, ScheduleKind>, 4> kinds = {{{"1F1B", ScheduleKind::k1F1B},
                                                                        {"interleaved", ScheduleKind::kInterleaved},
                                                                        {"ZB-H1", ScheduleKind::kZbH1},
                                                                        {"ZB-H2", ScheduleKind::kZbH2}}};
    for (const Setting& s : settings) {
      for (const auto& [micro_batches, speeds] : s.speeds) {
        for (size_t kind = 0; kind < kinds.size(); ++kind) {
          const double samples = static_cast<double>(s.micro_batch * micro_batches);
          Layout layout = cut(1, s.pp, 1, s.micro_batch, s.micro_batch * micro_batches, kNone);
          layout.schedule = kinds[kind].second;
          if (layout.schedule == ScheduleKind::kInterleaved) layout.interleave = s.interleave;
          const bool first = micro_batches == s.speeds[0].first;
          const bool fitted = s.fitted && kind == 0 && first;
          rows.push_back({std::string("Zero Bubble, ") + kinds[kind].first,
                          std::string(s.name) + ", " + std::to_string(micro_batches) + " micro-batches",
                          a100,
                          {gpt(s.layers, s.hidden, s.heads, 1024, 51200), layout},
                          Quantity::kStep,
                          samples / (static_cast<double>(s.pp) * speeds[kind]),
                          first ? s.gigabytes[kind] : 0,
                          fitted});
        }
      }
    }
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
    const std::string source = "llm.c, ZeRO-1";
    rows.push_back({source,
                    "350M, DP8",
                    a100,
                    {gpt(24, 1024, 16, 1024, 50304), with(cut(1, 1, 8, 64, 512, kNone, kBf16), 1)},
                    Quantity::kStep,
                    0.82,
                    0,
                    false});
    rows.push_back({source,
                    "1.5B, DP8",
                    h100,
                    {gpt(48, 1600, 25, 1024, 50304), with(cut(1, 1, 8, 16, 1024, kNone, kBf16), 1)},
                    Quantity::kStep,
                    2.80,
                    0,
                    false});
  }
  {
    const std::string source = "Megatron-Core";
    const auto add = [&](const char* name, const ModelShape& m, const Layout& l, double tflops, bool fitted = true) {
      rows.push_back(
          {source,
           name,
           h100,
           {m, l},
           Quantity::kStep,
           megatron_seconds(m, static_cast<double>(l.global_batch), static_cast<double>(l.num_devices()), tflops, 72),
           0,
           fitted});
    };
    add("1.7B, TP1 DP48", gpt(24, 2048, 16, 4096, 131072), with(cut(1, 1, 48, 4, 192, kNone, kBf16), 1), 408.8);
    add("16B, TP4 DP48", gpt(32, 6144, 48, 4096, 131072), with(cut(4, 1, 48, 4, 192, kNone, kBf16), 1, true), 489.1);
    add("7.1B, TP2 DP48", gpt(30, 4096, 32, 4096, 131072), with(cut(2, 1, 48, 4, 192, kNone, kBf16), 1, true), 465.9,
        false);
    add("32B, TP8 DP48", gpt(48, 7168, 56, 4096, 131072), with(cut(8, 1, 48, 4, 192, kNone, kBf16), 1, true), 459.6,
        false);
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
    const ModelShape llama3_70b = llama(80, 8192, 64, 8, 28672, 8192, 128256);
    const ModelShape llama2_13b = llama(40, 5120, 40, 40, 13824, 4096, 32000);
    const ModelShape llama2_70b = llama(80, 8192, 64, 8, 28672, 4096, 32000);
    const auto unseen = [&](const std::string& cluster, const char* name, const ModelShape& shape, int64_t tp,
                            int64_t dp, int64_t batch, RecomputeKind recompute, double tokens, bool fitted = false) {
      rows.push_back({"torchtitan",
                      name,
                      cluster,
                      {shape, with(cut(tp, 1, dp, batch, batch * dp, recompute, kBf16), 3, tp > 1)},
                      Quantity::kStep,
                      static_cast<double>(batch * shape.seq) / static_cast<double>(tp) / tokens,
                      0,
                      fitted});
    };
    unseen(h100, "Llama 3.1 8B, FSDP8 TP8", m, 8, 8, 12, kSelective, 4809.4);
    unseen(h100, "Llama 3.1 70B, FSDP32 TP8", llama3_70b, 8, 32, 16, kFull, 652.4);
    unseen(a100, "Llama 3 8B, FSDP64", m, 1, 64, 1, kSelective, 2973, true);
    unseen(a100, "Llama 3 70B, FSDP64", llama3_70b, 1, 64, 1, kFull, 331);
    unseen(a100, "Llama 2 13B, FSDP64, none", llama2_13b, 1, 64, 2, kNone, 2162, true);
    unseen(a100, "Llama 2 13B, FSDP64, selective", llama2_13b, 1, 64, 2, kSelective, 1904);
    unseen(a100, "Llama 2 70B, FSDP64", llama2_70b, 1, 64, 2, kFull, 353);
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
    add(a100, true,
        {{k70B, 64, 2048, 8, 4, kFull, 410},
         {k30B, 8, 2048, 3, 21, kFull, 916},
         {k7B, 8, 2048, 6, 2, kNone, 4641},
         {k1B, 8, 2048, 14, 4, kNone, 20513},
         {k125M, 8, 2048, 32, 2, kNone, 141737}});
    add(a100, false,
        {{k70B, 32, 2048, 2, 16, kFull, 373},
         {k13B, 8, 2048, 2, 3, kNone, 2262},
         {k13B, 8, 4096, 10, 3, kFull, 2060},
         {k7B, 8, 8192, 8, 2, kFull, 3206},
         {k3B, 8, 2048, 10, 2, kNone, 10811},
         {k350M, 8, 2048, 32, 2, kNone, 58782}});
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
    // The artifact of Alpa's paper (branch osdi22_artifact), with its heads of 128 numbers in the single steps; the row
    // with 4 micro-batches is its README's of October 2022. Its own rows share optimizer state among replicas,
    // Megatron's do not.
    struct Run {
      const char* name;
      int64_t layers, hidden, heads, tp, pp, dp, micro_batch;
      double tflops;
      bool fitted;
    };
    const auto add = [&](const std::string& source, int zero, const std::vector<Run>& runs) {
      for (const Run& r : runs) {
        const ModelShape m = gpt(r.layers, r.hidden, r.heads, 1024, 51200);
        const Layout l = with(cut(r.tp, r.pp, r.dp, r.micro_batch, 1024, kFull), zero);
        const double seconds = megatron_seconds(m, 1024, static_cast<double>(l.num_devices()), r.tflops);
        rows.push_back({source, r.name, v100, {m, l}, Quantity::kStep, seconds, 0, r.fitted});
      }
    };
    const std::string source = "Alpa";
    add("Alpa, Megatron-LM beside it", 0,
        {{"350M on 1", 24, 1024, 16, 1, 1, 1, 16, 47.53, true},
         {"1.3B, DP2 PP2", 24, 2048, 32, 1, 2, 2, 4, 55.89, true},
         {"2.6B, PP8", 32, 2560, 32, 1, 8, 1, 8, 50.44, false},
         {"6.7B, TP2 PP8", 32, 4096, 32, 2, 8, 1, 4, 56.59, true},
         {"15B, TP4 PP8", 48, 5120, 40, 4, 8, 1, 4, 58.24, true}});
    add(source, 1,
        {{"760M, PP2", 24, 1536, 16, 1, 2, 1, 8, 57.92, false},
         {"1.3B, DP2 PP2", 24, 2048, 32, 1, 2, 2, 4, 58.21, false},
         {"6.7B, DP2 TP4 PP2", 32, 4096, 32, 4, 2, 2, 8, 60.0, false},
         {"15B, DP2 TP4 PP4", 48, 5120, 40, 4, 4, 2, 4, 59.9, false},
         {"39B, TP4 PP16", 48, 8192, 64, 4, 16, 1, 1, 57, false}});
    const std::string ddp = "PyTorch DDP, ResNet-50, float32";
    const auto resnet = [&](const char* name, int64_t dp, double seconds) {
      Job job;
      job.model = {.kind = ModelKind::kResNet, .depth = 50, .channels = 3, .image = 224, .classes = 1000};
      job.layout = cut(1, 1, dp, 32, 32 * dp, kNone, NumberType::kFloat32);
      job.overlap = true;
      rows.push_back({ddp, name, v100, job, Quantity::kStep, seconds});
    };
    resnet("1 GPU, batch 32", 1, 0.097);
    resnet("8 GPUs, batch 32 each", 8, 0.104);
    const auto one_step = [&](int64_t hidden, int64_t heads, int64_t tp, int64_t dp, int zero, double seconds,
                              double gigabytes) {
      rows.push_back({"Alpa, one step of 8 layers",
                      "h" + std::to_string(hidden) + ", DP" + std::to_string(dp) + " TP" + std::to_string(tp) +
                          ", ZeRO-" + std::to_string(zero),
                      v100,
                      {gpt(8, hidden, heads, 1024, 25600), with(cut(tp, 1, dp, 8 / dp, 8, kFull), zero)},
                      Quantity::kStep,
                      seconds,
                      gigabytes});
    };
    one_step(2048, 16, 1, 1, 0, 0.4535, 9.54);
    one_step(3072, 24, 1, 2, 2, 0.5367, 10.34);
    one_step(3072, 24, 2, 1, 0, 0.5753, 9.52);
    one_step(3072, 24, 1, 2, 3, 0.6356, 0);
    one_step(4096, 32, 1, 4, 2, 0.4331, 12.42);
    one_step(4096, 32, 2, 2, 2, 0.5815, 8.74);
    one_step(4096, 32, 4, 1, 0, 0.4457, 7.77);
    one_step(4096, 32, 1, 4, 3, 0.4976, 0);
    one_step(5760, 40, 2, 4, 2, 0.5803, 11.08);
    one_step(5760, 40, 4, 2, 2, 0.5028, 8.44);
    one_step(5760, 40, 8, 1, 0, 0.4539, 7.75);
    one_step(5760, 40, 1, 8, 3, 0.5219, 0);
    rows.push_back({source,
                    "2.6B, DP2 TP2 PP2, 4 micro-batches",
                    v100,
                    {gpt(32, 2560, 32, 1024, 51200), with(cut(2, 2, 2, 4, 32, kFull), 1)},
                    Quantity::kStep,
                    2.464,
                    8.745});
  }
  return rows;
}

/// What the simulator says to a row.
inline double predict(const Row& row, const Simulation& simulation) {
  const BlockCost& block = simulation.blocks[1];
  StagePart mean;
  for (const StageCost& stage : simulation.stages) {
    const double fraction = 1.0 / static_cast<double>(simulation.stages.size());
    mean.forward += fraction * stage.sum.forward;
    mean.backward_input += fraction * stage.sum.backward_input;
    mean.backward_weight += fraction * stage.sum.backward_weight;
  }
  if (row.quantity == Quantity::kMeanForward) return mean.forward;
  if (row.quantity == Quantity::kMeanInput) return mean.backward_input;
  if (row.quantity == Quantity::kMeanWeight) return mean.backward_weight;
  if (row.quantity == Quantity::kBlockForward) return block.forward;
  if (row.quantity == Quantity::kBlockBackward) return block.backward_input + block.backward_weight;
  return simulation.step_seconds;
}

}  // namespace trireme::published
