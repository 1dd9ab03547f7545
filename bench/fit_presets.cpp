// Fits the constants of a preset to the published steps that choose them: `bench_fit_presets a100-80gb`. With
// `--leave-out` once for each paper, without its steps, and from the middle of the bounds, so that nothing of the paper
// is in the constants: the rows of tests/numerics/left_out_fits.inc.
//
// Prints the errors and the constants as they are and as they come out, for src/trireme/simulate/cluster_presets.cpp. A
// search by differential evolution over the logarithms of the constants, within bounds; the same numbers on every run.
// Long pipelines of many micro-batches do not take part: they tell nothing that shorter ones do not.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "../tests/numerics/fitted_constants.h"
#include "../tests/numerics/published_rows.h"
#include "trireme/base/error.h"

using namespace trireme;
using published::Constant;
using published::constants_of;
using published::paper_of;

namespace {

constexpr int kRounds = 120, kTrialsOfConstant = 4;
constexpr int64_t kMostTurns = 1100;   ///< stages times micro-batches of a row that takes part
constexpr double kWorstWanted = 0.09;  ///< errors above it weigh more
constexpr double kStartSpread = 0.5;   ///< of the first trials, in logarithms

Cluster middle_of_bounds(Cluster cluster) {
  for (const Constant& constant : constants_of(cluster))
    constant.of(cluster) = std::sqrt(constant.least * constant.most);
  return cluster;
}

bool takes_part(const published::Row& row) {
  using published::Quantity;
  const bool is_step = row.quantity == Quantity::kStep || row.quantity == Quantity::kBlockForward ||
                       row.quantity == Quantity::kBlockBackward;
  return is_step && row.fitted && row.job.layout.pp * row.job.layout.accumulation() <= kMostTurns;
}

class Fit {
 public:
  explicit Fit(const Cluster& start, const std::string& left_out = "")
      : start_(start), constants_(constants_of(start)) {
    for (published::Row& row : published::rows()) {
      if (row.cluster != start.name || paper_of(row.source) == left_out || !takes_part(row)) continue;
      rows_.push_back(std::move(row));
    }
    if (rows_.empty()) throw UsageError(fmt::format("no published step is of {}", start.name), "take another preset");
    for (const published::Row& row : rows_) ++rows_of_source_[row.source];
  }

  Cluster run() {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> share;
    std::normal_distribution<double> normal;
    const size_t count = constants_.size(), trials = kTrialsOfConstant * count;
    std::vector<std::vector<double>> points(trials);
    std::vector<double> scores;
    for (size_t i = 0; i < trials; ++i) {
      Cluster cluster = start_;
      for (const Constant& constant : constants_) {
        points[i].push_back(std::log(constant.of(cluster)) + (i > 0 ? kStartSpread * normal(random) : 0));
      }
      scores.push_back(score(at(points[i])));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < trials; ++i) {
        const size_t best = best_of(scores), one = random() % trials, other = random() % trials,
                     sure = random() % count;
        const double factor = 0.4 + 0.5 * share(random);
        std::vector<double> next = points[i];
        for (size_t k = 0; k < count; ++k) {
          if (k != sure && share(random) > 0.8) continue;
          next[k] += factor * (0.6 * (points[best][k] - points[i][k]) + points[one][k] - points[other][k]);
        }
        const double reached = score(at(next));
        if (reached >= scores[i]) continue;
        points[i] = next;
        scores[i] = reached;
      }
    }
    return at(points[best_of(scores)]);
  }

  void print(const char* title, Cluster cluster) const {
    double sum = 0, worst = 0;
    for (const published::Row& row : rows_) {
      const double error = std::fabs(error_of(row, cluster));
      sum += error;
      worst = std::max(worst, error);
    }
    fmt::print("{}: {} steps within {:.2f} % on average, {:.1f} % at worst\n", title, rows_.size(),
               100 * sum / static_cast<double>(rows_.size()), 100 * worst);
    for (const Constant& constant : constants_) fmt::print("  {:<22}{:.4g}\n", constant.name, constant.of(cluster));
  }

 private:
  static size_t best_of(const std::vector<double>& scores) {
    return static_cast<size_t>(std::min_element(scores.begin(), scores.end()) - scores.begin());
  }
  static double error_of(const published::Row& row, const Cluster& cluster) {
    return predict(row, simulate(row.job, cluster)) / row.seconds - 1;
  }

  Cluster at(const std::vector<double>& logarithms) const {
    Cluster cluster = start_;
    for (size_t k = 0; k < constants_.size(); ++k) {
      constants_[k].of(cluster) = std::clamp(std::exp(logarithms[k]), constants_[k].least, constants_[k].most);
    }
    return cluster;
  }

  /// Sources with many rows weigh less in each of them.
  double score(const Cluster& cluster) const {
    double sum = 0, weights = 0;
    for (const published::Row& row : rows_) {
      const double weight = std::pow(rows_of_source_.at(row.source), -0.25);
      const double off = std::fabs(std::log1p(error_of(row, cluster)));
      sum += weight * (off + 2 * off * off + 6 * std::max(0.0, off - kWorstWanted));
      weights += weight;
    }
    return sum / weights;
  }

  const Cluster start_;
  const std::vector<Constant> constants_;
  std::vector<published::Row> rows_;
  std::map<std::string, int> rows_of_source_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool leaves_out = argc == 3 && argv[2] == std::string("--leave-out");
  if (argc != 2 && !leaves_out) {
    fmt::print(stderr, "usage: bench_fit_presets CLUSTER [--leave-out], such as a100-80gb\n");
    return 2;
  }
  try {
    const Cluster preset = find_cluster(argv[1]);
    if (leaves_out) {
      std::set<std::string> papers;
      for (const published::Row& row : published::rows()) {
        if (row.cluster == preset.name && takes_part(row)) papers.insert(paper_of(row.source));
      }
      for (const std::string& paper : papers) {
        Cluster fitted = Fit(middle_of_bounds(preset), paper).run();
        fmt::print("{{\"{}\",\n \"{}\",\n {{", preset.name, paper);
        const char* between = "";
        for (const Constant& constant : constants_of(preset)) {
          fmt::print("{}{{\"{}\", {:.4g}}}", std::exchange(between, ",\n  "), constant.name, constant.of(fitted));
        }
        fmt::print("}}}},\n");
        std::fflush(stdout);
      }
      return 0;
    }
    Fit fit(preset);
    fit.print("as it is", preset);
    fit.print("fitted", fit.run());
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
