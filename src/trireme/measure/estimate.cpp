#include "trireme/measure/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/config/model_flops.h"

namespace trireme::measure {
namespace {

// Of a usual core; the answer is rounded to one digit.
constexpr double kRoundSeconds = 60e-6, kSecondsPerByte = 0.6e-9;  // a round of bench comm: fixed part, and per byte
constexpr double kFlopsPerCore = 40e9;                             // of a training step in float32
constexpr double kStartRanks = 0.5, kStartMpi = 2, kStartGloo = 6, kStartTraining = 2, kStartPyTorch = 6;

}  // namespace

double estimate_comm_seconds(const CommOptions& options, int cores) {
  double seconds = 0;
  for (const int ranks : options.ranks) {
    seconds += kStartRanks + (options.compare_mpi ? kStartMpi : 0) + (options.compare_gloo ? kStartGloo : 0);
    const double crowd = std::max(1.0, static_cast<double>(ranks) / std::max(1, cores));
    for (const Operation operation : options.operations) {
      size_t ours = options.buffers.size();
      if (operation == Operation::kAllReduce) ours *= options.algorithms.size();
      const auto contestants =
          static_cast<double>(ours + 1 + (options.compare_mpi ? 1 : 0) + (options.compare_gloo ? 1 : 0));
      for (const uint64_t bytes : options.sizes) {
        const double round = crowd * (kRoundSeconds + kSecondsPerByte * static_cast<double>(bytes));
        seconds += contestants * options.seconds_per_point.value_or(usual_rounds(bytes) * round);
      }
    }
  }
  return seconds;
}

double estimate_train_seconds(const TrainPlan& plan, const TrainOptions& options, size_t num_peers, int cores) {
  double ours = 0;
  for (const TrainCase& each : plan.cases) {
    const double flops = model_flops(each.config.model, each.samples_per_step);
    if (flops == 0 || each.config.train.device != DeviceKind::kCpu) return 0;
    const double busy = std::min<double>(each.num_workers * static_cast<double>(each.config.train.threads), cores);
    ours += kStartTraining +
            static_cast<double>(options.warmup + options.steps) * flops / (kFlopsPerCore * std::max(1.0, busy));
  }
  const double each = ours / static_cast<double>(plan.cases.size()) - kStartTraining + kStartPyTorch;
  return options.repeats * (ours + static_cast<double>(num_peers) * each);
}

std::string rough_duration(double seconds) {
  const auto one_digit = [](double value) {
    const double power = std::pow(10, std::floor(std::log10(std::max(1.0, value))));
    return std::max(1.0, std::round(value / power) * power);
  };
  if (seconds < 60) return fmt::format("about {:.0f} s", one_digit(seconds));
  if (seconds < 3600) return fmt::format("about {:.0f} min", std::max(1.0, std::round(seconds / 60)));
  return fmt::format("about {:.1f} h", seconds / 3600);
}

}  // namespace trireme::measure
