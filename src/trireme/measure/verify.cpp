#include "trireme/measure/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/units.h"
#include "trireme/checkpoint/diff.h"

namespace trireme::measure {
namespace {

constexpr double kRounding = 0x1p-24;  // the largest relative error of rounding to float32

// Where two trainings first differ they still have the same weights: sums in another order move an element by a few
// hundred roundings of the tensor's largest one, and a sum that is missing or done twice by a good part of it.
constexpr double kMostAtFirst = 1e-4;
// Later steps start from weights that differ, and an optimizer that divides by the gradient's size passes on more of it
// where gradients are small.
constexpr double kMostLater = 1e-2;

bool is_more_than(const Difference& difference, double most) {
  return difference.finite_in_one || !(difference.relative <= most);
}

/// "6.0e-07 of its largest element (10 roundings of float32)", "3.1 % of its largest element".
std::string size_of_difference(const Difference& difference) {
  if (difference.finite_in_one) return "numbers that are not finite in one of the two";
  if (difference.relative >= 1) return fmt::format("{:.3g} times its largest element", difference.relative);
  if (difference.relative >= 1e-3) return fmt::format("{:.2g} % of its largest element", 100 * difference.relative);
  const double roundings = std::max(1.0, std::round(difference.relative / kRounding));
  return fmt::format("{:.1e} of its largest element ({})", difference.relative,
                     counted(static_cast<int64_t>(roundings), "rounding") + " of float32");
}

std::string place_of(const Difference& difference) {
  return fmt::format("{}, step {}", difference.tensor, difference.step);
}

double largest_of(const TensorView& view) {
  double largest = 0;
  const auto scan = [&](auto zero) {
    using Number = decltype(zero);
    for (size_t at = 0; at + sizeof(Number) <= view.bytes.size(); at += sizeof(Number)) {
      Number value;
      std::memcpy(&value, view.bytes.data() + at, sizeof value);
      if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
  };
  if (view.info.type == DataType::kDouble) {
    scan(0.0);
  } else if (view.info.type == DataType::kFloat) {
    scan(0.0f);
  }
  return largest;
}

}  // namespace

std::optional<double> common_ratio(const TensorView& a, const TensorView& b) {
  if (a.info.type != DataType::kFloat) return std::nullopt;
  double ab = 0, aa = 0, bb = 0;
  for (size_t at = 0; at < a.bytes.size(); at += sizeof(float)) {
    float x, y;
    std::memcpy(&x, a.bytes.data() + at, sizeof x);
    std::memcpy(&y, b.bytes.data() + at, sizeof y);
    ab += static_cast<double>(x) * y;
    aa += static_cast<double>(x) * x;
    bb += static_cast<double>(y) * y;
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  const double ratio = ab / aa;
  const double rest = bb - ratio * ab;  // Σ (b − ratio·a)²
  if (rest > 1e-6 * bb || std::abs(ratio - 1) < 0.01) return std::nullopt;
  return ratio;
}

Comparison compare_recorded(const std::filesystem::path& a, const std::filesystem::path& b, int64_t steps) {
  Comparison comparison;
  for (int64_t step = 1; step <= steps; ++step) {
    const std::string name = fmt::format("step-{:06}.safetensors", step);
    const SafetensorsFile file_a(a / name), file_b(b / name);
    for (const StoredTensor& stored : file_a.tensors()) {
      const TensorView view_a = file_a.view(stored);
      const TensorView view_b = file_b.tensor(view_a.info.name);
      const TensorDifference found = diff_tensors(view_a, view_b);
      ++comparison.tensors;
      if (found.num_different == 0) continue;
      const double largest = std::max(largest_of(view_a), largest_of(view_b));
      comparison.differences.push_back({.tensor = view_a.info.name,
                                        .step = step,
                                        .num_elements = found.num_different,
                                        .relative = largest > 0 ? found.largest / largest : 0,
                                        .finite_in_one = found.num_one_nan + found.num_one_infinite > 0,
                                        .ratio = common_ratio(view_a, view_b)});
    }
    comparison.steps = step;
  }
  return comparison;
}

Verdict judge(const std::vector<Difference>& differences) {
  Verdict verdict;
  if (differences.empty()) return verdict;
  verdict.first = differences.front();
  verdict.largest =
      *std::max_element(differences.begin(), differences.end(), [](const Difference& a, const Difference& b) {
        return a.finite_in_one != b.finite_in_one ? b.finite_in_one : a.relative < b.relative;
      });
  const auto is_wrong = [&](const Difference& difference) {
    // Loss and gradients of this step come from equal weights, and so do weights whose gradients are equal.
    const bool from_equal_weights = difference.step == verdict.first->step && !difference.tensor.starts_with("weight.");
    const bool is_first = &difference == &differences.front();
    return difference.finite_in_one || ((is_first || from_equal_weights) && is_more_than(difference, kMostAtFirst));
  };
  if (const auto wrong = std::find_if(differences.begin(), differences.end(), is_wrong); wrong != differences.end()) {
    verdict.judgement = Judgement::kBug;
    verdict.first = *wrong;
  } else {
    verdict.judgement = is_more_than(*verdict.largest, kMostLater) ? Judgement::kGrown : Judgement::kNoise;
  }
  return verdict;
}

std::string name_of(Judgement judgement) {
  switch (judgement) {
    case Judgement::kEqual:
      return "equal";
    case Judgement::kNoise:
      return "noise";
    case Judgement::kGrown:
      return "grown";
    case Judgement::kBug:
      break;
  }
  return "bug";
}

std::string words_of(const Verdict& verdict, int64_t steps, int64_t tensors) {
  if (!verdict.first) {
    return fmt::format("equal: every loss, gradient and weight, bit for bit ({} steps, {} tensors compared).\n", steps,
                       tensors);
  }
  const Difference& first = *verdict.first;
  const Difference& largest = *verdict.largest;
  if (verdict.judgement == Judgement::kBug) {
    if (first.ratio) {
      return fmt::format(
          "bug, not noise: {} is {:.3g}x as large in b as in a: a sum over ranks is missing or done twice.\n",
          place_of(first), *first.ratio);
    }
    return fmt::format("bug, not noise: {} differs in {} elements, by up to {}.\n", place_of(first),
                       format_count(static_cast<int64_t>(first.num_elements)), size_of_difference(first));
  }
  const std::string begins = fmt::format("{} of {} differ{} first, by at most {}",
                                         counted(static_cast<int64_t>(first.num_elements), "element"), place_of(first),
                                         first.num_elements == 1 ? "s" : "", size_of_difference(first));
  const std::string most = fmt::format("{}: {}", place_of(largest), size_of_difference(largest));
  if (verdict.judgement == Judgement::kNoise) {
    return fmt::format(
        "float noise: {}. The most in {} steps is in {}.\n"
        "  Another order of sums explains it. Layouts that differ in dp alone promise equal bits: for those, please "
        "report it.\n",
        begins, steps, most);
  }
  return fmt::format(
      "too large to be called noise: {}, as rounding does; but then it grows. The most in {} steps is in {}.\n"
      "  Training may have done that: Adam turns rounding errors of gradients near zero into whole steps, and ReLU "
      "and\n"
      "  BatchNorm jump. A bug in the later steps would look the same. Fewer --steps, a lower optimizer.lr or\n"
      "  optimizer.kind=sgd tell them apart.\n",
      begins, steps, most);
}

}  // namespace trireme::measure
