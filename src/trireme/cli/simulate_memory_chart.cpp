#include "trireme/cli/simulate_memory_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/simulate/memory_over_time.h"

namespace trireme::cli {
namespace {

/// Left edge and width are those of the timeline, so that one is below the other.
constexpr double kLeft = 64, kWidth = 960, kRight = 116, kTop = 56, kChart = 72, kGap = 16;

struct Kind {
  const char* name;
  const char* colour;
  double RankMemory::*bytes;
};

/// From the bottom up: what stays, and what comes and goes.
constexpr Kind kKinds[] = {
    {"weights", "#5b9bd5", &RankMemory::weights},         {"gradients", "#f0a540", &RankMemory::gradients},
    {"optimizer", "#7fbf7b", &RankMemory::optimizer},     {"buffers", "#b79bd1", &RankMemory::buffers},
    {"activations", "#9aa5b1", &RankMemory::activations},
};

/// From bytes to a height, and from seconds to a place.
struct Scale {
  double most_bytes = 1, end = 1;
  double limit = 0;
  double height(double bytes) const { return bytes / most_bytes * kChart; }
  double x(double seconds) const { return kLeft + seconds / end * kWidth; }
  bool has_limit() const { return limit <= most_bytes; }
};

/// Where a device has much more memory than is used, its limit would leave nothing to see.
Scale scale_of(const Simulation& s) {
  constexpr double kMostRoom = 4;
  Scale scale{.most_bytes = s.memory_bytes(), .end = 0, .limit = s.cluster.device.memory_bytes};
  if (scale.limit <= kMostRoom * scale.most_bytes) scale.most_bytes = std::max(scale.most_bytes, scale.limit);
  for (const SimulatedRank& rank : s.ranks) scale.end = std::max(scale.end, rank.played.end);
  return scale;
}

/// A kind that stays, from `under` bytes up.
std::string band(const Kind& kind, double under, double bytes, const Scale& scale, double bottom) {
  return fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.2f}\" width=\"{:.0f}\" height=\"{:.2f}\" fill=\"{}\"><title>{} {:.2f} "
      "GB</title></rect>\n",
      kLeft, bottom - scale.height(under + bytes), kWidth, scale.height(bytes), kind.colour, kind.name, bytes / 1e9);
}

/// Activations above all that stays.
std::string steps(const Kind& kind, double under, const std::vector<MemoryPoint>& points, const Scale& scale,
                  double bottom) {
  const double base = bottom - scale.height(under);
  std::string path = fmt::format("M{:.0f} {:.2f}", kLeft, base);
  for (size_t i = 0; i < points.size(); ++i) {
    const double y = base - scale.height(points[i].memory.*kind.bytes);
    const double next = i + 1 < points.size() ? points[i + 1].seconds : scale.end;
    path += fmt::format("L{:.2f} {:.2f}L{:.2f} {:.2f}", scale.x(points[i].seconds), y, scale.x(next), y);
  }
  return fmt::format("<path fill=\"{}\" d=\"{}L{:.0f} {:.2f}Z\"/>\n", kind.colour, path, kLeft + kWidth, base);
}

std::string chart(const Simulation& s, size_t rank, const Scale& scale, double bottom) {
  const std::vector<MemoryPoint> points = memory_over_time(s, rank);
  std::string svg = fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", bottom - kChart / 2 + 4, rank);
  double under = 0;
  for (const Kind& kind : kKinds) {
    const bool stays = kind.bytes != &RankMemory::activations;
    const double bytes = s.ranks[rank].memory.*kind.bytes;
    svg += stays ? band(kind, under, bytes, scale, bottom) : steps(kind, under, points, scale, bottom);
    under += bytes;
  }
  svg += fmt::format("<line class=\"axis\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft,
                     kLeft + kWidth, bottom, bottom);
  svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\">peak {:.2f} GB</text>\n", kLeft + kWidth + 8, bottom - 2,
                     s.ranks[rank].memory.sum() / 1e9);
  if (scale.has_limit()) {
    const double y = bottom - scale.height(scale.limit);
    svg += fmt::format("<line class=\"limit\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kLeft,
                       kLeft + kWidth, y, y);
  }
  return svg;
}

std::string legend(const Scale& scale) {
  std::string svg;
  double x = kLeft;
  for (const Kind& kind : kKinds) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"44\">{}</text>\n",
        x, kind.colour, x + 16, kind.name);
    x += 32 + 7 * static_cast<double>(std::string_view(kind.name).size());
  }
  if (!scale.has_limit()) {
    return svg + fmt::format("<text x=\"{:.0f}\" y=\"44\">limit {:.2f} GB, {:.1f} times as high: not drawn</text>\n", x,
                             scale.limit / 1e9, scale.limit / scale.most_bytes);
  }
  return svg + fmt::format(
                   "<line class=\"limit\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"40\" y2=\"40\"/>"
                   "<text x=\"{:.0f}\" y=\"44\">limit {:.2f} GB</text>\n",
                   x, x + 16, x + 20, scale.limit / 1e9);
}

}  // namespace

std::string memory_chart(const Simulation& s) {
  const Scale scale = scale_of(s);
  const double height = kTop + (kChart + kGap) * static_cast<double>(s.ranks.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n"
      "<style>.limit{{stroke:#d62728;stroke-width:1.5;stroke-dasharray:6 4}}</style>\n"
      "<text class=\"title\" x=\"{2:.0f}\" y=\"20\">memory of each rank</text>\n",
      kLeft + kWidth + kRight, height, kLeft);
  svg += legend(scale);
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    svg += chart(s, rank, scale, kTop + (kChart + kGap) * static_cast<double>(rank) + kChart);
  }
  return svg + "</svg>\n";
}

}  // namespace trireme::cli
