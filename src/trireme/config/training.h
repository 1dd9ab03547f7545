// What the program that the user started passes to its workers: the resolved config and the predicted step.
#pragma once

#include <string>
#include <string_view>

#include "trireme/config/config.h"

namespace trireme {

/// The planner's prediction for a step; zeros if it was not asked.
struct PredictedStep {
  double ms = 0;
  double memory_bytes = 0;  ///< largest of all workers, or GPUs
  bool operator==(const PredictedStep&) const = default;
};

struct Training {
  Config config;
  PredictedStep predicted = {};
};

/// A JSON object with every value and its origin.
std::string training_to_json(const Training& training);
/// Restores values and origins. Only for output of training_to_json() of the same build: throws UsageError or
/// nlohmann's exceptions for any other text.
Training training_from_json(std::string_view text);

}  // namespace trireme
