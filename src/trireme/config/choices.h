// Enums of keys with a few values, each with the one list of its names. Enums of lower layers (optimizers, compression
// methods, server modes, number types) are defined there.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/base/names.h"
#include "trireme/compress/formats/block_format.h"

namespace trireme {

enum class DataKind : uint8_t { kAuto, kText, kTokens, kImages, kGenerated };
constexpr auto names_of(DataKind) {
  return std::to_array<std::string_view>({"auto", "text", "tokens", "images", "generated"});
}

enum class FileCache : uint8_t {
  kMap,     ///< mapped: pages are loaded on access; the file must not shrink meanwhile (SIGBUS)
  kMemory,  ///< the whole file is read at the start
};
constexpr auto names_of(FileCache) { return std::to_array<std::string_view>({"mmap", "memory"}); }

/// How held-out samples are chosen.
enum class HoldOut : uint8_t {
  kRandom,  ///< drawn from all samples by train.seed
  kEnd,     ///< the last ones: for data ordered by time; the rule of older versions
};
constexpr auto names_of(HoldOut) { return std::to_array<std::string_view>({"random", "end"}); }

enum class DeviceKind : uint8_t { kCpu, kCuda };
constexpr auto names_of(DeviceKind) { return std::to_array<std::string_view>({"cpu", "cuda"}); }

/// What to do about a gradient that is not finite.
enum class OnNan : uint8_t { kStop, kSkip, kRollback };
constexpr auto names_of(OnNan) { return std::to_array<std::string_view>({"stop", "skip", "rollback"}); }

/// Which weights decay: those of two or more dims, or all.
enum class Decay : uint8_t { kMatrices, kAll };
constexpr auto names_of(Decay) { return std::to_array<std::string_view>({"matrices", "all"}); }

/// The learning rate after warm-up.
enum class LrSchedule : uint8_t { kConstant, kCosine, kLinear, kStep };
constexpr auto names_of(LrSchedule) {
  return std::to_array<std::string_view>({"constant", "cosine", "linear", "step"});
}

/// How the learning rate scales with the number of replicas.
enum class LrScaling : uint8_t { kNone, kLinear, kSqrt };
constexpr auto names_of(LrScaling) { return std::to_array<std::string_view>({"none", "linear", "sqrt"}); }

/// How ZeRO-2 and ZeRO-3 accumulate gradients over micro-batches.
enum class ZeroAccumulation : uint8_t {
  kAuto,       ///< the software's default: kWhole in Trireme's trainer, kFractions in published systems
  kWhole,      ///< accumulates full gradients, reduce-scatters once: bit-equal to training without ZeRO
  kFractions,  ///< reduce-scatters each micro-batch, accumulates shards: less memory, not bit-equal
};
constexpr auto names_of(ZeroAccumulation) { return std::to_array<std::string_view>({"auto", "whole", "shares"}); }

/// Whether gradients are sent during the backward pass.
enum class Overlap : uint8_t {
  kAuto,  ///< as the software does: Trireme's trainer kOn, simulated clusters as their stack says
  kOn,
  kOff,
};
constexpr auto names_of(Overlap) { return std::to_array<std::string_view>({"auto", "on", "off"}); }

enum class Aggregation : uint8_t { kAverage, kSum, kAdasum, kServer };
constexpr auto names_of(Aggregation) { return std::to_array<std::string_view>({"average", "sum", "adasum", "server"}); }

enum class MatmulType : uint8_t { kCompute, kFp8 };
constexpr auto names_of(MatmulType) { return std::to_array<std::string_view>({"compute", "fp8"}); }

enum class GradientType : uint8_t { kCompute, kFloat32 };
constexpr auto names_of(GradientType) { return std::to_array<std::string_view>({"compute", "float32"}); }

/// Format in which ZeRO-3 sends weights; kNone: as they are.
enum class GatherFormat : uint8_t { kNone, kInt8 };
constexpr auto names_of(GatherFormat) { return std::to_array<std::string_view>({"none", "int8"}); }

enum class ErrorFeedback : uint8_t {
  kAuto,  ///< the method's default
  kOn,
  kOff,
};
constexpr auto names_of(ErrorFeedback) { return std::to_array<std::string_view>({"auto", "on", "off"}); }

/// What replicas that update locally do when they synchronize; kNone: no local updates.
enum class LocalMethod : uint8_t { kNone, kAverage, kDiloco };
constexpr auto names_of(LocalMethod) { return std::to_array<std::string_view>({"none", "average", "diloco"}); }

/// Format in which DiLoCo sends its outer step.
enum class OuterFormat : uint8_t { kFloat32, kInt8 };
constexpr auto names_of(OuterFormat) { return std::to_array<std::string_view>({"float32", "int8"}); }

/// The packed format of a choice; nullopt: not packed.
inline std::optional<BlockFormat> block_format(GatherFormat format) {
  return format == GatherFormat::kInt8 ? std::optional(BlockFormat::kInt8) : std::nullopt;
}
inline std::optional<BlockFormat> block_format(OuterFormat format) {
  return format == OuterFormat::kInt8 ? std::optional(BlockFormat::kInt8) : std::nullopt;
}

}  // namespace trireme
