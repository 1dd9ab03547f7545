// A training as the program that the user started hands it to its workers: the resolved config, and what is predicted.
#pragma once

#include <string>
#include <string_view>

#include "trireme/config/config.h"

namespace trireme {

/// What a planner has said of a step; zeros where none was asked.
struct PredictedStep {
  double ms = 0;
  double memory_bytes = 0;  ///< of the fullest worker, or of its GPU
  bool operator==(const PredictedStep&) const = default;
};

struct Training {
  Config config;
  PredictedStep predicted = {};
};

/// A JSON object with every value and its origin.
std::string training_to_json(const Training& training);
/// The same values from the same origins. Only for what training_to_json() of the same build has written: throws
/// UsageError, or nlohmann's errors, for another text.
Training training_from_json(std::string_view text);

}  // namespace trireme
