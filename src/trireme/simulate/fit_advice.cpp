// Suggests changes that make a job fit into device memory.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

constexpr size_t kMostWays = 4;  ///< upper bound on suggestions for the same devices
constexpr int64_t kMostDevices = 131'072;

struct Change {
  std::string words;
  Layout layout;
};

std::vector<Change> changes(const Job& job, const Cluster& cluster) {
  std::vector<Change> list;
  const Layout& now = job.layout;
  const auto add = [&](std::string words, auto change) {
    Layout layout = now;
    change(layout);
    if (!(layout == now)) list.push_back({std::move(words), layout});
  };
  if (now.recompute.kind != RecomputeKind::kFull) {
    add("train.recompute = full", [](Layout& l) { l.recompute = RecomputeKind::kFull; });
  }
  if (now.tp > 1 && !now.sequence && job.model.is_language()) {
    add("parallel.sequence = true", [](Layout& l) { l.sequence = true; });
  }
  for (int zero = now.zero + 1; zero <= 3 && now.num_replicas() > 1; ++zero) {
    add(fmt::format("parallel.zero = {}", zero), [&](Layout& l) { l.zero = zero; });
  }
  if (now.micro_batch > 1) {
    add("train.micro_batch = 1", [](Layout& l) { l.micro_batch = 1; });
  }
  for (int64_t factor = 2; factor <= 8 && factor <= now.dp; factor *= 2) {
    if (now.dp % factor != 0) break;
    if (now.tp * factor <= cluster.devices_per_host) {
      add(fmt::format("parallel.tp = {}, dp = {}", now.tp * factor, now.dp / factor), [&](Layout& l) {
        l.tp *= factor;
        l.dp /= factor;
      });
    }
    add(fmt::format("parallel.pp = {}, dp = {}", now.pp * factor, now.dp / factor), [&](Layout& l) {
      l.pp *= factor;
      l.dp /= factor;
    });
  }
  return list;
}

/// Returns the layout with every option that saves activations, and appends the names of those it turned on.
Layout with_savings(const Job& job, std::vector<std::string>& words) {
  Layout layout = job.layout;
  if (layout.recompute.kind != RecomputeKind::kFull) {
    layout.recompute = RecomputeKind::kFull;
    words.emplace_back("train.recompute = full");
  }
  if (layout.tp > 1 && !layout.sequence && job.model.is_language() && job.model.seq / layout.cp % layout.tp == 0) {
    layout.sequence = true;
    words.emplace_back("parallel.sequence = true");
  }
  if (layout.micro_batch > 1) {
    layout.micro_batch = 1;
    words.emplace_back("train.micro_batch = 1");
  }
  return layout;
}

class Advisor {
 public:
  explicit Advisor(const Simulation& simulation) : s_(simulation) {}

  std::vector<std::string> ways() {
    for (const Change& change : changes(s_.job, s_.cluster)) {
      if (ways_.size() == kMostWays) break;
      if (const std::optional<Simulation> other = fitting(change.layout)) add(change.words, *other);
    }
    more_devices();
    ways_.push_back(fmt::format("this layout on devices with {}", format_gigabytes(s_.memory_bytes())));
    return std::move(ways_);
  }

 private:
  /// Simulates a layout on the same kinds of devices; nullopt if it does not fit or cannot split the model.
  std::optional<Simulation> fitting(const Layout& layout) const {
    try {
      Job job = s_.job;
      job.layout = layout;
      Simulation other = s_.kinds.empty() ? simulate(job, s_.cluster) : simulate_mix(job, s_.kinds);
      if (other.fits()) return other;
    } catch (const UsageError&) {
    }
    return std::nullopt;
  }

  void add(const std::string& words, const Simulation& other) {
    ways_.push_back(fmt::format("{}: {}, {} a step", words, format_gigabytes(other.memory_bytes()),
                                format_duration(other.step_seconds)));
  }

  /// Suggests the fewest devices with a longer pipeline, and with more ZeRO-3 replicas; also with every option that
  /// saves activations, if fewer devices do then.
  void more_devices() {
    std::vector<std::string> savings;
    const Layout saving = with_savings(s_.job, savings);
    for (const bool replicas : {false, true}) {
      const int64_t plain = grow(s_.job.layout, replicas, {}, kMostDevices);
      if (!savings.empty()) grow(saving, replicas, savings, plain - 1);
    }
  }

  /// Doubles the devices until the job fits, adds the suggestion and returns their number; `most` + 1 if no doubling
  /// fits.
  int64_t grow(Layout layout, bool replicas, const std::vector<std::string>& savings, int64_t most) {
    if (layout.has_uneven_stages()) return most + 1;
    layout.stages.clear();                // uniform stages
    if (!replicas) layout.split.clear();  // the split was for fewer stages
    while (2 * layout.num_devices() <= most) {
      (replicas ? layout.dp : layout.pp) *= 2;
      if (layout.pp * layout.interleave > static_cast<int64_t>(s_.blocks.size())) break;
      if (replicas) layout.zero = 3;
      const std::optional<Simulation> other = fitting(layout);
      if (!other) continue;
      std::vector<std::string> words = {replicas ? fmt::format("parallel.dp = {}, parallel.zero = 3", layout.dp)
                                                 : fmt::format("parallel.pp = {}", layout.pp)};
      words.insert(words.end(), savings.begin(), savings.end());
      add(fmt::format("{} with {}", counted(layout.num_devices(), "device"), join(words, ", ")), *other);
      return layout.num_devices();
    }
    return most + 1;
  }

  const Simulation& s_;
  std::vector<std::string> ways_;
};

}  // namespace

std::vector<std::string> ways_to_fit(const Simulation& simulation) {
  if (simulation.fits()) return {};
  return Advisor(simulation).ways();
}

}  // namespace trireme
